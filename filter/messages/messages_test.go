package messages

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/messages/write"
	"github.com/envoy-harmony/envoy-harmony/filter/seal"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// zeros is a source of randomness for which the same text is sealed the same way.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func newAPI(t testing.TB, key byte) *API {
	t.Helper()
	keys := make([]byte, seal.KeyBytes)
	keys[0] = key
	sealer, err := seal.NewSealer([][]byte{keys}, zeros{})
	if err != nil {
		t.Fatal(err)
	}
	return &API{Sealer: sealer}
}

func mustDecode(t testing.TB, body string) *write.Request {
	t.Helper()
	return decodeWith(t, apitest.NewContext(), body)
}

func decodeWith(t testing.TB, rc *turn.RequestContext, body string) *write.Request {
	t.Helper()
	request, err := newAPI(t, 1).Decode(context.Background(), []byte(body), rc)
	if err != nil {
		t.Fatalf("Decode: %v (param %q)", err, err.Param)
	}
	return request
}

// prompt returns the prompt of a request.
func prompt(t testing.TB, body string) string {
	t.Helper()
	return apitest.Spell(t, mustDecode(t, body).Engine().Prompt)
}

// answer returns the reply to a request from an output in one chunk.
func answer(t testing.TB, request *write.Request, text string, finish engine.Finish) string {
	t.Helper()
	return apitest.Play(t, request, api.Loop, []engine.Chunk{{Tokens: apitest.Tokens(text), Finish: finish}})
}

// object is a message as a client reads it.
type object struct {
	ID       string          `json:"id"`
	Type     string          `json:"type"`
	Role     string          `json:"role"`
	Model    string          `json:"model"`
	Content  []objectBlock   `json:"content"`
	Reason   *string         `json:"stop_reason"`
	Sequence *string         `json:"stop_sequence"`
	Usage    json.RawMessage `json:"usage"`
}

type objectBlock struct {
	Type      string          `json:"type"`
	Text      *string         `json:"text"`
	Thinking  *string         `json:"thinking"`
	Signature *string         `json:"signature"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`

	Server  string          `json:"server_name"`
	Call    string          `json:"tool_use_id"`
	Content json.RawMessage `json:"content"` // of a result
	IsError *bool           `json:"is_error"`
}

func (b *objectBlock) takesInput() bool {
	return b.Type == "tool_use" || b.Type == "server_tool_use" || b.Type == "mcp_tool_use"
}

func parseObject(t testing.TB, s string) object {
	t.Helper()
	var o object
	if err := json.Unmarshal([]byte(s), &o); err != nil {
		t.Fatalf("reply is not JSON: %v\n%s", err, s)
	}
	if o.Type != "message" || o.Role != "assistant" || o.Reason == nil || len(o.Content) == 0 {
		t.Fatalf("not a message: %s", s)
	}
	return o
}

// folding joins the events of a stream into the message that the same request without
// stream gets. It fails the test if the stream breaks a rule.
type folding struct {
	t       testing.TB
	message object
	state   string // "", started, ended or stopped
	open    bool   // a content block is open
	input   string // of an open call
}

func fold(t testing.TB, stream string) object {
	t.Helper()
	f := &folding{t: t}
	for event := range strings.SplitAfterSeq(stream, "\n\n") {
		if event == "" {
			continue
		}
		name, data, ok := strings.Cut(strings.TrimSuffix(event, "\n\n"), "\n")
		name, named := strings.CutPrefix(name, "event: ")
		data, isData := strings.CutPrefix(data, "data: ")
		if !ok || !named || !isData || !strings.HasSuffix(event, "\n\n") || strings.ContainsAny(data, "\r\n") || !gjson.Valid(data) || gjson.Get(data, "type").Str != name {
			t.Fatalf("not an event: %q", event)
		}
		f.event(name, gjson.Parse(data))
	}
	if f.state != "stopped" {
		t.Fatalf("the stream has no end:\n%s", stream)
	}
	return f.message
}

func (f *folding) event(name string, e gjson.Result) {
	f.t.Helper()
	m := &f.message
	rule := func(holds bool) {
		f.t.Helper()
		if !holds {
			f.t.Fatalf("state %q: %s", f.state, e.Raw)
		}
	}
	last := len(m.Content) - 1
	switch name {
	case "message_start":
		rule(f.state == "")
		f.state = "started"
		rule(json.Unmarshal([]byte(e.Get("message").Raw), m) == nil && len(m.Content) == 0 && m.Reason == nil)
	case "ping":
		rule(f.state == "started")
	case "content_block_start":
		rule(f.state == "started" && !f.open && int(e.Get("index").Int()) == len(m.Content))
		f.open, f.input = true, ""
		var b objectBlock
		rule(json.Unmarshal([]byte(e.Get("content_block").Raw), &b) == nil)
		m.Content = append(m.Content, b)
	case "content_block_delta":
		rule(f.open && int(e.Get("index").Int()) == last)
		f.delta(&m.Content[last], e.Get("delta"), rule)
	case "content_block_stop":
		rule(f.open && int(e.Get("index").Int()) == last)
		f.open = false
		if b := &m.Content[last]; b.takesInput() && gjson.Valid(f.input) && gjson.Parse(f.input).IsObject() {
			b.Input = jsontext.AppendCompact(nil, f.input)
		}
	case "message_delta":
		rule(f.state == "started" && !f.open)
		f.state = "ended"
		rule(json.Unmarshal([]byte(e.Get("delta").Raw), m) == nil && m.Reason != nil)
		m.Usage = json.RawMessage(e.Get("usage").Raw)
	case "message_stop":
		rule(f.state == "ended")
		f.state = "stopped"
	default:
		rule(false)
	}
}

func (f *folding) delta(b *objectBlock, d gjson.Result, rule func(bool)) {
	f.t.Helper()
	add := func(to **string, member string) {
		f.t.Helper()
		rule(*to != nil)
		joined := **to + d.Get(member).Str
		*to = &joined
	}
	switch kind := d.Get("type").Str; {
	case kind == "text_delta" && b.Type == "text":
		add(&b.Text, "text")
	case kind == "thinking_delta" && b.Type == "thinking":
		rule(*b.Signature == "")
		add(&b.Thinking, "thinking")
	case kind == "signature_delta" && b.Type == "thinking":
		rule(*b.Signature == "")
		add(&b.Signature, "signature")
	case kind == "input_json_delta" && b.takesInput():
		f.input += d.Get("partial_json").Str
	case kind == "compaction_delta" && b.Type == "compaction":
		rule(string(b.Content) == "null" || b.Content == nil)
		b.Content = json.RawMessage(d.Get("content").Raw)
	default:
		rule(false)
	}
}

func ask(members string) string {
	return fmt.Sprintf(`{"model":"gpt-oss-20b","messages":[{"role":"user","content":"Hi"}]%s}`, members)
}

// conversation returns a request with these messages.
func conversation(messages, members string) string {
	return `{"model":"gpt-oss-20b","messages":[` + messages + `]` + members + `}`
}

const weatherTool = `,"tools":[{"name":"get_weather","description":"Weather of a city.","input_schema":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}]`
