package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
	"github.com/envoy-harmony/envoy-harmony/filter/telemetry"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// player makes the reply to a request with the filter's own state machine. It is the
// engine, which answers the first model calls alike, and does the jobs one after the other.
type player struct {
	script  *script
	dialect engine.Dialect
	// calls is how many calls of the model were answered, and again the bytes of the answers
	// after the first, which is a part of the scenario.
	calls int
	again int

	// What the run waits for; one of them is set.
	call *engine.Request
	jobs []api.Job
}

const (
	// maxAnswers is how many model calls get the scripted answer. After these the model says
	// that it is done: what calls cost together is in proportion to what the model writes.
	maxAnswers = 4
	// chunkTokens is how many tokens an event of the engine has: few, so that what is done
	// again for each event shows.
	chunkTokens = 8
)

// play makes the reply to a request, and forgets it. It returns how many bytes the model has
// written after its first answer: what the engine sends counts as what the client sends.
func play(request api.Request, script *script) (again int) {
	dialect, _ := engine.ByKind("vllm-generate")
	p := &player{script: script, dialect: dialect}
	// The clock stands still: the cost of a reply must not depend on how long it takes.
	now := clock()
	r := run.NewRunner(context.Background(), runs, now).Begin(run.Options{
		Request: request, Mode: api.Loop, RequestID: "1", Header: http.Header{},
		Target: run.Target{Engine: "engine", Model: "m", Dialect: dialect}, Downstream: nobody{}, Executor: p,
	}, nil, now)
	r.Start()

	// The run's own loop waits for events on channels. Here each is known before it is asked for.
	for !r.Ended() {
		switch call, jobs := p.call, p.jobs; {
		case call != nil:
			p.call = nil
			p.reply(r, call)
		case len(jobs) > 0:
			p.jobs = nil
			for i, job := range jobs {
				result, err := job.Do(context.Background())
				r.At(now)
				r.JobDone(run.JobDone{Index: i, Result: result, Err: err})
			}
		default: // it waits for a deadline
			r.Abandon()
		}
	}

	return p.again
}

// script is what the model answers, as events of the engine. Those of the first choice exist before
// anything is measured: what the engine takes is no cost of the request.
type script struct {
	bytes  int
	tokens []harmony.Token
	events map[int][][]byte // by choice
}

func newScript(bytes int, tokens []harmony.Token) *script {
	s := &script{bytes: bytes, tokens: tokens, events: map[int][][]byte{}}
	s.choice(0)
	return s
}

// choice returns the events of a choice.
func (s *script) choice(choice int) [][]byte {
	events, made := s.events[choice]
	if made {
		return events
	}

	for rest := s.tokens; len(rest) > 0; {
		n := min(chunkTokens, len(rest))
		event := append([]byte("data: "), generated(choice, rest[:n], n == len(rest))...)
		events = append(events, append(event, "\n\n"...))
		rest = rest[n:]
	}
	s.events[choice] = events
	return events
}

// done is the answer of a model that has nothing left to do.
var done = harmony.AppendEncodeSpecial(nil, "<|channel|>final<|message|>Done.<|return|>")

// reply is the engine's reply to a model call.
func (p *player) reply(r *run.Run, call *engine.Request) {
	now := clock()
	send := func(e run.Event) (goesOn bool) {
		r.At(now)
		r.EngineEvent(e)
		return !r.Ended() && p.call == nil && p.jobs == nil
	}
	if !send(run.Answered(http.StatusOK, http.Header{}, nil)) {
		return
	}

	script := p.script
	p.calls++
	if p.calls > maxAnswers {
		script = newScript(0, done)
	}

	// The choices are written in turns, an event of each.
	events := len(script.choice(0))
	for i := range events {
		if p.calls > 1 {
			p.again += script.bytes*(i+1)/events - script.bytes*i/events
		}
		for choice := range call.N {
			// The run has ended, or has asked for something else: nobody reads on.
			if !send(run.Bytes(script.choice(choice)[i])) {
				return
			}
		}
	}
	send(run.Ended(nil))
}

// generated is output of the engine as vLLM's generate endpoint has it.
func generated(choice int, tokens []harmony.Token, last bool) []byte {
	type choices struct {
		Index  int             `json:"index"`
		Tokens []harmony.Token `json:"token_ids"`
		Finish *string         `json:"finish_reason"`
	}
	c := choices{Index: choice, Tokens: tokens}
	if last {
		stop := "stop"
		c.Finish = &stop
	}

	// There is no error: these are numbers and texts.
	object, _ := json.Marshal(map[string]any{"request_id": "generate-tokens-1", "choices": []choices{c}})
	return object
}

// Call implements [run.Executor]. The request is encoded, as it is for an engine.
func (p *player) Call(req *engine.Request, _ run.Retry) *apierror.Error {
	// Writing the request for the engine is a part of the cost.
	if _, err := p.dialect.Encode(req); err != nil {
		return err
	}
	p.call, p.jobs = req, nil
	return nil
}

// Start implements [run.Executor].
func (p *player) Start(jobs []api.Job) { p.call, p.jobs = nil, jobs }

// Beside implements [run.Executor]. Only token budgets have such jobs, and there are none.
func (p *player) Beside(api.Job) {}

// Detach implements [run.Executor].
func (p *player) Detach(jobs []api.Job) {
	for _, job := range jobs {
		_, _ = job.Do(context.Background())
	}
}

// nobody is a client that reads everything and keeps nothing.
type nobody struct{}

func (nobody) SendHeaders([]engine.Header) {}
func (nobody) SendBody([]byte, bool)       {}
func (nobody) SendError(*apierror.Error)   {}

// runs is the environment of all runs. Their clock stands still, so they have no deadlines.
var runs = func() *run.Env {
	log := logrus.New()
	log.SetOutput(io.Discard)
	metrics, err := telemetry.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		panic(err)
	}
	workers := &run.Workers{Log: log}
	return &run.Env{
		Telemetry: telemetry.New(log, metrics, false), Now: clock,
		Locks: &run.Locks{Workers: workers}, Workers: workers,
	}
}()

func clock() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }
