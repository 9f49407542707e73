package stack

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/header"
)

// ModelOf returns the model that an engine of a kind serves.
func ModelOf(kind string) string { return "gpt-oss-" + kind }

// EveryEngine configures an engine of each kind, each with its own model.
func EveryEngine(c *config.Config) {
	url := c.Engines[0].URLs[0]
	c.Engines, c.Models = nil, nil
	for _, kind := range engine.Kinds() {
		c.Engines = append(c.Engines, config.Engine{Kind: kind, URLs: []string{url}})
		c.Models = append(c.Models, config.Model{
			Match: "=" + ModelOf(kind), Engine: kind,
			UpstreamModel: "gpt-oss-20b",
		})
	}
}

// EngineFailures are the responses of a failing engine to its n-th model call,
// counted from 1. They fail before the first token.
var EngineFailures = map[string]func(w http.ResponseWriter, n int32){
	"disconnects before the headers": func(http.ResponseWriter, int32) { panic(http.ErrAbortHandler) },
	"disconnects after the headers": func(w http.ResponseWriter, _ int32) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		// Without a flush nothing is sent before the connection ends.
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	},
	// vLLM fails like this.
	"an error event, then 500": func(w http.ResponseWriter, n int32) {
		if n > 1 {
			http.Error(w, `{"error":{"message":"EngineCore encountered an `+
				`issue.","type":"InternalServerError","code":500}}`, http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"error":{"message":"EngineCore encountered an `+
			`issue.","type":"InternalServerError","code":500}}`+"\n\ndata: [DONE]\n\n")
	},
	"always an error event": func(w http.ResponseWriter, _ int32) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"error":{"message":"EngineCore encountered an `+
			`issue.","type":"InternalServerError","code":500}}`+"\n\ndata: [DONE]\n\n")
	},
}

// FlakyEngine is an engine that can be made to fail.
type FlakyEngine struct {
	*httptest.Server
	// failure is nil as long as the engine works.
	failure atomic.Pointer[func(http.ResponseWriter, int32)]
	// Calls are counted since SetFailure, or since the start.
	Calls atomic.Int32
	// Named says that the gateway cannot remove the filter's list of replicas.
	Named atomic.Bool
}

// NewFlakyEngine starts the engine, which works, until the test ends.
func NewFlakyEngine(t *testing.T, log *LogFile) *FlakyEngine {
	next := Forward(t, StartSim(t, log))
	p := &FlakyEngine{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost { // not a model call
			next.ServeHTTP(w, r)
			return
		}

		// The filter's list of replicas is for Envoy, which removes it.
		if names := r.Header.Get(header.Upstream); names != "" && !p.Named.Load() {
			t.Errorf("the engine gets a header of the filter: %s", names)
		}

		n, failure := p.Calls.Add(1), p.failure.Load()
		if failure == nil {
			next.ServeHTTP(w, r)
			return
		}

		// An answer before the end of the request would fail the sending of it, which is another fault.
		_, _ = io.Copy(io.Discard, r.Body)
		(*failure)(w, n)
	}))
	t.Cleanup(p.Close)
	return p
}

// SetFailure sets how the next requests fail.
func (p *FlakyEngine) SetFailure(how func(http.ResponseWriter, int32)) {
	// The failure that is set counts calls from 1.
	p.Calls.Store(0)
	p.failure.Store(&how)
}

// TryChat posts a chat request like Chat, but returns errors.
func (d *Dataplane) TryChat(content, more string) (int, string, error) {
	body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":%q}]%s}`, SGLangModel, content, more)
	resp, err := d.Client.Post(d.URL+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}
