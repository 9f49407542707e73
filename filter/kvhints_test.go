package filter

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// listeningEngine notes the model calls it gets, and answers each with a call of a tool.
type listeningEngine struct {
	mu    sync.Mutex
	calls []string
}

func (e *listeningEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"gpt-oss-20b","max_model_len":131072}]}`)
		return
	}
	body, _ := io.ReadAll(r.Body)
	e.mu.Lock()
	e.calls = append(e.calls, string(body))
	e.mu.Unlock()

	text := harmony.AppendEncodeSpecial(nil, "<|channel|>commentary to=functions.look <|constrain|>json<|message|>{}<|call|>")
	ids, _ := json.Marshal(text)
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"text\":\"\",\"token_ids\":%s,\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n", ids)
}

// hintedSession plays two requests of an agent at a service, and returns what its engine and its client got.
func hintedSession(t *testing.T, kind, hints string) (calls, replies []string) {
	t.Helper()
	e := &listeningEngine{}
	_, address := serveLoopback(t, e)
	cfg := config.Defaults()
	cfg.Engines = []config.Engine{{Name: "main", Kind: kind, KVHints: hints}}
	cfg.Loopback, cfg.Date = address, "2026-01-02"
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}

	var ids, seconds atomic.Int64
	log := logrus.New()
	log.SetOutput(io.Discard)
	s, err := New(cfg, Options{
		Log: log, NewID: func(prefix string) string { return prefix + strconv.FormatInt(ids.Add(1), 10) },
		Now: func() time.Time { return time.Unix(1_800_000_000+seconds.Load(), 0) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = s.Close(ctx)
	})

	send := func(more string) string {
		// The client's own hints are nobody's.
		return ask(t, s, "/v1/chat/completions", `{"model":"gpt-oss-20b","kv_hints":{"actions":[{"action_id":"mine"}]},"tools":[{"type":"function","function":{"name":"look"}}],`+
			`"messages":[{"role":"system","content":"Be terse."},{"role":"user","content":"Look."}`+more+`]}`, map[string]string{"x-request-id": strconv.FormatInt(ids.Add(1), 10)}).body.String()
	}
	first := send("")
	seconds.Add(20)
	id := gjson.Get(first, "choices.0.message.tool_calls.0.id").Str
	second := send(`,{"role":"assistant","tool_calls":[{"id":"` + id + `","type":"function","function":{"name":"look","arguments":"{}"}}]},{"role":"tool","tool_call_id":"` + id + `","content":"seen"}`)
	return e.calls, []string{first, second}
}

// TestKVHints plays a session with hints and without: the engine gets the same requests but for the hints, and
// the client the same replies.
func TestKVHints(t *testing.T) {
	t.Parallel()
	without, plain := hintedSession(t, "vllm", "")
	with, hinted := hintedSession(t, "vllm", config.KVHintsRetain)
	if len(with) != 2 || len(without) != 2 || !reflect.DeepEqual(plain, hinted) {
		t.Fatalf("%d and %d calls, replies\n%s\n%s", len(with), len(without), plain, hinted)
	}
	if none, _ := hintedSession(t, "vllm", config.KVHintsNone); !reflect.DeepEqual(none, without) {
		t.Errorf("none is not the default:\n%s\n%s", none, without)
	}

	for i, body := range with {
		hints := gjson.Get(body, "kv_hints")
		rest := strings.Replace(body, `,"kv_hints":`+hints.Raw, "", 1)
		if !hints.Exists() || rest != without[i] || strings.Contains(without[i], "hints") || strings.Contains(body, "mine") {
			t.Errorf("call %d is\n%s\nand without hints\n%s", i, body, without[i])
		}
		tokens := gjson.Get(body, "prompt.#").Int()
		last := int64(0)
		hints.Get("actions.0.payload.directives").ForEach(func(_, d gjson.Result) bool {
			last = max(last, d.Get("end").Int())
			return true
		})
		if last != tokens {
			t.Errorf("of %d tokens %s", tokens, hints.Raw)
		}
	}

	// The tool took 20 s, and the second call has the head of the first.
	if got := gjson.Get(with[1], "kv_hints.actions.0.payload.directives.@reverse.0.duration").Num; got != 30 {
		t.Errorf("the second output is kept for %v s: %s", got, with[1])
	}
	if got := gjson.Get(with[1], "kv_hints.actions.0.payload.directives.0.priority").Int(); got != 90 {
		t.Errorf("the head has the priority %d", got)
	}
}
