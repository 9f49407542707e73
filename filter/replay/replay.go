// Package replay makes recorded exchanges again, offline: the recorded request goes
// through the same endpoints, renderer, parser and encoders, and everything that came
// from outside comes from the record. Would this version give the same prompts, and the
// same replies?
//
// [Player.Play] replays one record and returns the differences. There are none if the
// version, and the configuration that matters, are the same.
//
// How: a script ([record.Effects]) answers for stores, tools, ids and clocks, in place of the
// world; an exchange feeds the run with the record's events, in place of an engine and of Envoy.
// Jobs run when the record says that they were done, so that a replay has one order, on one
// goroutine. Token quotas, leases and Envoy are not replayed. [Player.Calls] and [Engine.Ask] do
// go out: they ask another engine what a recorded call would be answered with.
package replay

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/filter/work"
)

// Player replays records with the endpoints of a configuration. Their stores and tools
// must be those of [record.Store] and [record.Tools], and there must be no memory between
// requests. It is safe for concurrent use.
type Player struct {
	Endpoints []api.Endpoint
	Turns     *turn.Env
	Run       *run.Env
	// Keeper is that of the records.
	Keeper *record.Keeper
}

// Played is what became of a replay.
type Played struct {
	// Skipped is why the record cannot be replayed; "": it was.
	Skipped     string
	Differences []Difference
}

// Play replays a record.
func (p *Player) Play(ctx context.Context, r *record.Record) Played {
	if why := skippedRecord(r); why != "" {
		return Played{Skipped: why}
	}
	s := newScript(r, p.Keeper)
	if why := p.play(record.With(ctx, s), r, s); why != "" {
		return Played{Skipped: why}
	}
	return Played{Differences: s.compare()}
}

// skippedRecord returns why a record cannot be replayed.
func skippedRecord(r *record.Record) string {
	switch {
	case r.Format != record.Format:
		return fmt.Sprintf("the format is %d, this version reads %d", r.Format, record.Format)
	case r.Redacted:
		return "the record is redacted"
	case r.Cut:
		return "the record was cut: record.max_record_bytes is too small"
	case r.Request.Body.Bytes() == nil && r.Request.Body.Len() > 0:
		return "the body of its request was no JSON, so that there is only its length"
	}
	return ""
}

func (p *Player) play(ctx context.Context, r *record.Record, s *script) (skipped string) {
	path, rawQuery, _ := strings.Cut(r.Request.Path, "?")
	header := http.Header{}
	for name, value := range r.Request.Header {
		header.Set(name, value)
	}

	endpoint, ids := api.MatchWith(
		p.Endpoints, r.Request.Method, path, func(name string) bool { return header.Get(name) != "" },
	)
	if endpoint == nil {
		return "this version does not serve " + r.Request.Method + " " + path
	}

	// Parameters that cannot be read were not there for the exchange either.
	query, _ := api.QueryOf(r.Request.Method, rawQuery)
	env := *p.Turns
	env.NewID, env.Now = s.id, s.clock
	if env.Prompts != nil {
		env.Prompts = s
	}

	if r.Settings.Connected {
		// What the connection kept is in the record, as what the store returned is.
		ctx = store.WithLocal(ctx, store.NewLocal(0, func(int) error { return nil }))
	}
	outcome := endpoint.Handle(ctx, &api.HTTPRequest{
		IDs: ids, Path: path, Query: query, Header: header, Options: endpoint.OptionsOf(header.Get),
		Body: r.Request.Body.Bytes(), Codex: r.Settings.Codex,
		Context: &turn.RequestContext{
			Env: &env, Tenant: r.Tenant, RequestID: r.ID, Session: r.Settings.Session,
			Checked: r.Settings.Checked, Model: &r.Settings.Model,
			Reserve: func(int) *apierror.Error { return nil }, Work: work.New(ctx, work.PerRequest),
		},
	})
	switch outcome.Kind {
	case api.OutcomeRequest:
		return p.reply(ctx, r, s, outcome.Request)
	case api.OutcomeAnswer:
		s.made.reply = p.Keeper.Reply(outcome.Answer)
	case api.OutcomeStream:
		return "the client followed a stored stream, which other exchanges have made"
	case api.OutcomeRefused:
		s.made.refused = outcome.Err
	case api.OutcomeElsewhere:
		s.made.refused = outcome.Elsewhere
	}

	return ""
}

// reply makes the reply to a decoded request.
func (p *Player) reply(ctx context.Context, r *record.Record, s *script, request api.Request) (skipped string) {
	// It was refused before its run began, for instance by a quota: only the request is compared.
	if err := notBegun(r); err != nil {
		s.made.refused = err
		return ""
	}

	dialect, ok := engine.ByKind(r.Target.Kind)
	if !ok {
		return fmt.Sprintf("this version has no engines of the kind %q", r.Target.Kind)
	}

	mode := api.Loop
	if r.Target.Direct {
		mode = api.SingleCall
		if _, err := dialect.Encode(request.Engine()); err != nil {
			s.made.refused = err
			return ""
		}
	}
	inBackground := request.Info().Background
	if inBackground != nil && r.Target.Direct {
		return "a response in the background was refused: there was no loopback listener"
	}

	// Queue stores the beginning, with the ids and times that the record has for it.
	queued := false
	if inBackground != nil && r.Target.Background {
		owner, lease := s.maker()
		if _, _, err := inBackground.Queue(ctx, owner, lease); err != nil {
			s.made.refused = err
			return ""
		}
		queued = true
	}

	// As when it was recorded: another number of continuations would make other calls.
	env := *p.Run
	env.Limits.Continuations = r.Settings.Continuations
	runner := run.NewRunner(ctx, &env, r.Started)
	x := &exchange{script: s, dialect: dialect, disaggregated: r.Target.Disaggregated, ctx: ctx}
	target := run.Target{
		Engine: r.Target.Engine, Model: r.Target.Model, Dialect: scripted{Dialect: dialect, x: x},
		Disaggregated: r.Target.Disaggregated,
	}

	x.runner = runner
	x.run = runner.Begin(run.Options{
		Request: request, Mode: mode, Target: target, RequestID: r.ID, Header: http.Header{},
		Downstream: x, Executor: x, Queued: queued, Limit: s.limit,
	}, nil, r.Started)

	if queued {
		x.run.Reply().Background().Start()
	}
	if mode == api.SingleCall {
		s.limit(request.Engine())
		s.called(request.Engine(), 0)
		x.run.Await(request.Engine())
	}

	for i := 0; i < len(r.Events); {
		i += x.feed(r, i)
	}
	x.drop()
	x.run.Abandon()
	return ""
}

// notBegun returns the error that came from outside before the reply began, such as that
// of a token budget; nil if there was none.
func notBegun(r *record.Record) (refused *apierror.Error) {
	for i := range r.Events {
		switch e := &r.Events[i]; e.Kind {
		case record.KindID, record.KindClock, record.KindStore, record.KindFound:
		case record.KindFailed:
			errors.As(e.Error.Err(), &refused)
			return refused
		default:
			return nil
		}
	}
	return nil
}

// at is the time of an event.
func at(r *record.Record, e *record.Event) time.Time {
	return r.Started.Add(time.Duration(e.At) * time.Microsecond)
}
