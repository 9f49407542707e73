package reply_test

import (
	"context"
	"fmt"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/reply"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// lines is the encoder of an API whose replies are lines of text. A whole object is the
// text of the answer alone.
type lines struct {
	reply  *reply.Machine
	stream bool
	answer []byte
}

func (e *lines) Begin(dst []byte, _ *reply.Choice) []byte { return append(dst, "hello\n"...) }

func (e *lines) Open(dst []byte, p *reply.Part) []byte {
	switch {
	case !e.stream:
		return dst
	case p.Kind == turn.Call:
		return fmt.Appendf(dst, "call of %s\n", p.Call.Name)
	}
	return fmt.Appendf(dst, "%s\n", p.Kind)
}

func (e *lines) Delta(dst []byte, p *reply.Part, text []byte) []byte {
	if e.stream {
		return fmt.Appendf(dst, "  %s\n", text)
	}
	if p.Kind == turn.Answer {
		e.answer = append(e.answer, text...)
	}
	return dst
}

func (e *lines) Close(dst []byte, p *reply.Part, text []byte, _ bool) []byte {
	if len(text) > 0 {
		dst = e.Delta(dst, p, text)
	}
	return dst
}

func (e *lines) Error(dst []byte, err *apierror.Error) []byte {
	return fmt.Appendf(dst, "error: %s\n", err.Message)
}

func (e *lines) End(dst []byte) []byte {
	return fmt.Appendf(dst, "bye after %d model calls\n", len(e.reply.Calls()))
}

func (e *lines) Object(dst []byte) ([]byte, *apierror.Error) { return append(dst, e.answer...), nil }

// The filter makes the calls of forecast.

func (e *lines) Maker(call *turn.CalledTool, last bool) reply.Maker {
	switch {
	case call.Name == "forecast":
		return reply.ByFilter
	case call.Namespace == "" && !last:
		return reply.ByNobody
	}
	return reply.ByClient
}

func (e *lines) Corrected(last bool) bool { return !last }

func (e *lines) run(p *reply.Part, refused *tools.Result) *reply.Run {
	r := &reply.Run{Call: p.Call, Known: refused, Show: func(dst []byte, result *tools.Result) []byte {
		if !e.stream {
			return dst
		}
		return fmt.Appendf(dst, "result\n  %s\n", result.Text)
	}}
	if refused == nil {
		r.Job = forecast{}
	}
	return r
}

// forecast is the job of a call.
type forecast struct{}

func (forecast) Do(context.Context) (any, error) {
	return tools.Result{Text: "Sunny, 12 degrees."}, nil
}

// begin begins a reply to a question.
func begin(stream bool) (*lines, *apierror.Error) {
	rc := &turn.RequestContext{Model: &turn.Model{}, Env: &turn.Env{
		Renderer: harmony.NewRenderer(), Now: time.Now, Limits: turn.DefaultLimits(),
		NewID: func(prefix string) string { return prefix + "0" }, // random bits in earnest
	}}
	t, err := turn.Prepare(context.Background(), rc, &turn.Input{
		Items: []turn.Item{{Kind: turn.User, Text: "Is it sunny in Oslo?"}},
		Tools: []harmony.Namespace{{Name: turn.FunctionsNamespace, Tools: []harmony.Tool{{Name: "forecast"}}}},
	})
	if err != nil {
		return nil, err
	}

	e := &lines{stream: stream}
	e.reply = reply.New(reply.Options{
		Encoder: e, Tools: e, Run: e.run, Stream: stream, Mode: api.Loop, Turn: t, Turns: rc.Limits.Turns,
	})
	return e, nil
}

// answers are the outputs of the engine: a call, a call of a tool that does not exist,
// and an answer.
var answers = []string{
	`<|channel|>analysis<|message|>I look.<|end|><|start|>assistant to=functions.forecast<|channel|>commentary json<|message|>{"city":"Oslo"}<|call|>`,
	` to=functions.umbrella<|channel|>commentary json<|message|>{}<|call|>`,
	`<|channel|>final<|message|>Yes, it is.<|return|>`,
}

// An encoder is what one more API has to write. The loop below is what package run does:
// it makes the model calls and does the jobs.
func Example() {
	e, err := begin(true)
	if err != nil {
		fmt.Println(err)
		return
	}

	var out []byte
	var step api.Step
	for outputs := answers; ; {
		if out, step, err = e.reply.Step(out); err != nil {
			out = e.reply.Fail(out, err)
			continue
		}
		for i, job := range step.Jobs {
			result, failed := job.Do(context.Background())
			out = e.reply.JobDone(out, i, result, failed)
		}
		if step.Call != nil {
			tokens := harmony.AppendEncodeSpecial(nil, outputs[0])
			outputs = outputs[1:]
			for _, chunk := range []engine.Chunk{{Tokens: tokens[:4]}, {Tokens: tokens[4:], Finish: engine.FinishStop}} {
				if out, err = e.reply.Push(out, &chunk); err != nil {
					out = e.reply.Fail(out, err)
				}
			}
		} else if len(step.Jobs) == 0 {
			break
		}
	}
	out, err = e.reply.End(out)
	fmt.Print(string(out), err)
	// Output:
	// hello
	// reasoning
	//   I
	//    look.
	// call of forecast
	//   {"city":"Oslo"}
	// result
	//   Sunny, 12 degrees.
	// answer
	//   Yes
	//   , it is.
	// bye after 3 model calls
	// <nil>
}
