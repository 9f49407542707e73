// Package apitest contains the tests that every API of the filter passes, and what
// the tests of an API share: a request's context, the chunks of an engine, the run of
// a whole reply, and the reading of its bytes. It uses an API through [api.Request]
// and [api.Reply] only.
//
// An API describes itself in an [API], and calls the tests:
//
//	func TestGolden(t *testing.T)      { testAPI.Golden(t) }
//	func TestAnyChunking(t *testing.T) { testAPI.AnyChunking(t, apitest.Chunking{…}) }
//	func TestOutputs(t *testing.T)     { testAPI.Outputs(t, "chat", functions) }
//	func FuzzMessages(f *testing.F)    { testAPI.Fuzz(f, output, body) }
//	func BenchmarkStream(b *testing.B) { testAPI.BenchmarkStream(b, apitest.Stream{…}) }
package apitest

import (
	"strconv"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// API is an API under test.
type API struct {
	// Decode decodes the body of a request.
	Decode func(body []byte, rc *turn.RequestContext) (api.Request, *apierror.Error)
	// Ask returns the body of a request with one user message. members are further
	// members of the body, each with a comma before it.
	Ask func(members string) string
	// Whole and Streamed are the members, for [With], that make a request one for a
	// whole object, and one for a stream that has everything that the object has.
	Whole, Streamed []any
	// Mode is the mode of the replies in [API.Golden], [API.AnyChunking],
	// [API.Outputs] and [API.Fuzz].
	Mode api.Mode
	// Read checks the reply to a request, and returns what a client has of it: equal
	// values for an object and for the stream of the same output.
	Read func(t testing.TB, request api.Request, reply string) any
	// Accounts reports whether a whole reply shows something of a choice's output, or
	// has a reason to show nothing: the output was cut, or met a stop condition of the
	// client.
	Accounts func(t testing.TB, whole string, o Output) bool
	// Brief returns a whole reply in one line: reasoning "…" content "…" name(arguments),
	// as far as there is any, and why it ended: stop, tool_calls, or the API's own word.
	Brief func(t testing.TB, whole string) string
}

// MustDecode decodes the body of a request with a context of [NewContext].
func (a *API) MustDecode(t testing.TB, body string) api.Request {
	t.Helper()
	return a.decode(t, body, NewContext())
}

func (a *API) decode(t testing.TB, body string, rc *turn.RequestContext) api.Request {
	t.Helper()
	request, err := a.Decode([]byte(body), rc)
	if err != nil {
		t.Fatalf("Decode: %v (param %q)", err, err.Param)
	}
	return request
}

// choices is how many choices the reply to a request has.
func choices(request api.Request) int {
	if e := request.Engine(); e != nil {
		return max(1, e.N)
	}
	return 1
}

// outputs returns the outputs that next returns for the choices of a request.
func outputs(request api.Request, next func() ([]harmony.Token, engine.Finish)) []Output {
	all := make([]Output, choices(request))
	for i := range all {
		all[i].Index = i
		all[i].Tokens, all[i].Finish = next()
	}
	return all
}

var renderer = harmony.NewRenderer()

// NewContext returns the context of a test's request, with a fixed clock, ids that
// count, and a memory of its own.
func NewContext() *turn.RequestContext {
	ids := 0
	now := func() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }
	// Golden files have the ids and the times: neither may depend on when or how often a test runs.
	return &turn.RequestContext{
		Env: &turn.Env{
			Renderer: renderer,
			Now:      now,
			NewID: func(prefix string) string {
				if prefix == "" { // what no client sees
					return "0"
				}
				ids++
				return prefix + strconv.Itoa(ids)
			},
			Memory: store.NewMemory(store.Options{TextBytes: 1 << 20, TextTTL: time.Hour, Now: now}),
			Limits: turn.DefaultLimits(),
		},
		Model:     &turn.Model{},
		RequestID: "req-1",
	}
}
