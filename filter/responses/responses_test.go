package responses

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/responsestest"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

var renderer = harmony.NewRenderer()

// newScope is the circumstances of a test's request: a fixed clock, ids that
// count, and a memory of its own.
func newScope() *turn.Scope {
	ids := 0
	now := func() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }
	return &turn.Scope{
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

func mustDecode(t testing.TB, body string) *Call {
	t.Helper()
	call, err := (&API{}).Decode(context.Background(), []byte(body), newScope())
	if err != nil {
		t.Fatalf("Decode: %v (param %q)", err, err.Param)
	}
	return call
}

// tokens encodes a model's output, in which special tokens are spelled.
func tokens(text string) []harmony.Token { return harmony.AppendEncodeSpecial(nil, text) }

// output is what the engine gives.
type output struct {
	tokens []harmony.Token
	finish engine.Finish
}

// chunks cuts an output into chunks, of sizes that next gives.
func chunks(o output, next func() int) []engine.Chunk {
	var all []engine.Chunk
	for {
		n := min(next(), len(o.tokens))
		c := engine.Chunk{Tokens: o.tokens[:n]}
		if o.tokens = o.tokens[n:]; len(o.tokens) == 0 {
			c.Finish = o.finish
			return append(all, c)
		}
		all = append(all, c)
	}
}

// run plays chunks into a reply, checks it, and gives all its bytes.
func run(t testing.TB, call *Call, chunks []engine.Chunk) string {
	t.Helper()
	r := call.NewReply()
	var out []byte
	for i := range chunks {
		if r.Done() {
			break
		}
		next, err := r.Push(out, &chunks[i])
		if err != nil {
			t.Fatalf("Push: %v", err)
		}
		out = next
	}
	out = r.End(out)
	final(t, call, string(out))
	return string(out)
}

// final checks a whole reply or a stream and gives its response object.
func final(t testing.TB, call *Call, reply string) string {
	t.Helper()
	object := []byte(reply)
	if call.Stream() {
		var err error
		if object, err = responsestest.Stream(object); err != nil {
			t.Fatalf("%v\n%s", err, reply)
		}
	}
	if err := responsestest.Object(object); err != nil {
		t.Fatalf("%v\n%s", err, object)
	}
	return string(object)
}

// reply is the response object after an output that comes in one chunk.
func reply(t testing.TB, members, text string, finish engine.Finish) gjson.Result {
	t.Helper()
	whole := run(t, mustDecode(t, ask(members)), []engine.Chunk{{Tokens: tokens(text), Finish: finish}})
	streamed := mustDecode(t, ask(members+`,"stream":true`))
	if got := final(t, streamed, run(t, streamed, chunks(output{tokens(text), finish}, func() int { return 1 }))); got != whole {
		t.Fatalf("stream and whole reply differ:\n%s\n%s", got, whole)
	}
	return gjson.Parse(whole)
}

// spell writes tokens with the special ones spelled.
func spell(t testing.TB, prompt []harmony.Token) string {
	t.Helper()
	text, err := harmony.AppendDecode(nil, prompt)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// quote makes a JSON string for a request.
func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func ask(members string) string {
	return fmt.Sprintf(`{"model":"gpt-oss-20b","input":"Hi"%s}`, members)
}

func askItems(items string) string {
	return fmt.Sprintf(`{"model":"gpt-oss-20b","input":[%s]}`, items)
}

const (
	weatherTool = `,"tools":[{"type":"function","name":"get_weather","description":"Weather of a city.","parameters":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}]`
	mixedTools  = `,"tools":[{"type":"function","name":"get_weather","parameters":{"type":"object","properties":{"city":{"type":"string"}}}},
		{"type":"custom","name":"apply_patch","description":"Edit files."},
		{"type":"namespace","name":"mcp__fs","description":"Files.","tools":[{"type":"function","name":"read","strict":false,"parameters":{"type":"object","properties":{"path":{"type":"string"}}}}]},
		{"type":"web_search","external_web_access":true}]`
)

func indent(t testing.TB, s string) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Indent(&b, []byte(s), "", "  "); err != nil {
		t.Fatalf("%v\n%s", err, s)
	}
	return b.String() + "\n"
}
