package chat

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
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
	call, err := Decode(context.Background(), []byte(body), newScope())
	if err != nil {
		t.Fatalf("Decode: %v (param %q)", err, err.Param)
	}
	return call
}

// tokens encodes a model's output, in which special tokens are spelled.
func tokens(text string) []harmony.Token { return harmony.AppendEncodeSpecial(nil, text) }

// output is what the engine gives of one choice.
type output struct {
	index  int
	tokens []harmony.Token
	finish engine.Finish
}

// likelihoods are those of tokens, different ones for each. Their third is of a
// control token.
func likelihoods(tokens []harmony.Token) []engine.Logprob {
	list := make([]engine.Logprob, len(tokens))
	for i, token := range tokens {
		v := -float64(i%16) / 4
		list[i] = engine.Logprob{Value: v, Top: []engine.TokenLogprob{{Token: token, Logprob: v}, {Token: 0, Logprob: v - 1}, {Token: harmony.TokenReturn, Logprob: v - 2}}}
	}
	return list
}

// chunks cuts outputs into chunks, of sizes that next gives, the choices in
// turn.
func chunks(outputs []output, next func() int) []engine.Chunk {
	var all []engine.Chunk
	rest := make([][]harmony.Token, len(outputs))
	likely := make([][]engine.Logprob, len(outputs))
	for i, o := range outputs {
		rest[i], likely[i] = o.tokens, likelihoods(o.tokens)
	}
	ended := make([]bool, len(outputs))
	for left := len(outputs); left > 0; {
		for i, o := range outputs {
			if ended[i] {
				continue
			}
			n := min(next(), len(rest[i]))
			c := engine.Chunk{Index: o.index, Tokens: rest[i][:n], Logprobs: likely[i][:n]}
			likely[i] = likely[i][n:]
			if rest[i] = rest[i][n:]; len(rest[i]) == 0 {
				c.Finish, ended[i] = o.finish, true
				left--
			}
			all = append(all, c)
		}
	}
	return all
}

// run plays chunks into a reply and gives all its bytes. Of log probabilities a
// chunk has only what was asked for.
func run(t testing.TB, call *Call, chunks []engine.Chunk) string {
	t.Helper()
	r := call.NewReply()
	var out []byte
	for i := range chunks {
		if r.Done() {
			break
		}
		chunk := chunks[i]
		if !call.Engine().Logprobs {
			chunk.Logprobs = nil
		}
		var err error
		if next, apiErr := r.Push(out, &chunk); apiErr != nil {
			err = apiErr
			t.Fatalf("Push: %v", err)
		} else {
			out = next
		}
	}
	return string(r.End(out))
}

// reply is run with the whole output of one choice in one chunk.
func reply(t testing.TB, call *Call, text string, finish engine.Finish) string {
	t.Helper()
	return run(t, call, []engine.Chunk{{Tokens: tokens(text), Finish: finish}})
}

// object is a reply as a client reads it.
type object struct {
	ID      string         `json:"id"`
	Object  string         `json:"object"`
	Created int64          `json:"created"`
	Model   string         `json:"model"`
	System  string         `json:"system_fingerprint"`
	Choices []objectChoice `json:"choices"`
	Usage   *usage         `json:"usage"`
	Error   *struct {
		Message string `json:"message"`
		Code    string `json:"code"`
	} `json:"error"`
}

type objectChoice struct {
	Index   int             `json:"index"`
	Message objectMessage   `json:"message"`
	Delta   objectMessage   `json:"delta"`
	Finish  *string         `json:"finish_reason"`
	Matched any             `json:"matched_stop"`
	Tokens  []harmony.Token `json:"token_ids"`

	Logprobs *struct {
		Content []entry `json:"content"`
		Refusal any     `json:"refusal"`
	} `json:"logprobs"`
}

// entry is a token of an answer and its likelihood.
type entry struct {
	Token   string  `json:"token"`
	Logprob float64 `json:"logprob"`
	Bytes   []int   `json:"bytes"`
	Top     []entry `json:"top_logprobs"`
}

type objectMessage struct {
	Role             string       `json:"role"`
	Content          *string      `json:"content"`
	Reasoning        *string      `json:"reasoning"`
	ReasoningContent *string      `json:"reasoning_content"`
	ToolCalls        []objectCall `json:"tool_calls"`
}

type objectCall struct {
	Index    int    `json:"index"`
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
	Details    *struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	Output struct {
		Reasoning int `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

func parseObject(t testing.TB, s string) object {
	t.Helper()
	var o object
	if err := json.Unmarshal([]byte(s), &o); err != nil {
		t.Fatalf("reply is not JSON: %v\n%s", err, s)
	}
	return o
}

// fold reads a stream strictly and joins its deltas into the object that the
// same request without stream gets. It fails the test where the stream breaks
// a rule.
func fold(t testing.TB, stream string, choices int) object {
	t.Helper()
	var o object
	o.Choices = make([]objectChoice, choices)
	events, end, found := strings.Cut(stream, "data: [DONE]\n\n")
	if !found || end != "" {
		t.Fatalf("stream does not end in [DONE]:\n%s", stream)
	}
	for event := range strings.SplitAfterSeq(events, "\n\n") {
		if event == "" {
			continue
		}
		data, ok := strings.CutPrefix(event, "data: ")
		if !ok || !strings.HasSuffix(data, "\n\n") || strings.Count(data, "\n") != 2 || strings.ContainsAny(data, "\r") {
			t.Fatalf("not an event: %q", event)
		}
		foldEvent(t, &o, parseObject(t, data))
	}
	for i := range o.Choices {
		c := &o.Choices[i]
		if o.Error == nil && c.Finish == nil {
			t.Fatalf("choice %d has no finish reason:\n%s", i, stream)
		}
		c.Index = i
		c.Message, c.Delta = c.Delta, objectMessage{}
		for j := range c.Message.ToolCalls {
			c.Message.ToolCalls[j].Index = 0
		}
	}
	o.Object = strings.TrimSuffix(o.Object, ".chunk")
	return o
}

func foldEvent(t testing.TB, o *object, e object) {
	t.Helper()
	if e.Error != nil {
		o.Error = e.Error
		return
	}
	if o.Usage != nil && len(e.Choices) == 0 {
		t.Fatal("usage is told twice")
	}
	if len(e.Choices) == 0 {
		o.Usage = e.Usage
	}
	o.ID, o.Object, o.Created, o.Model, o.System = e.ID, e.Object, e.Created, e.Model, e.System
	for _, c := range e.Choices {
		all := &o.Choices[c.Index]
		switch {
		case all.Finish != nil:
			t.Fatal("an event follows the finish reason")
		case (all.Delta.Role == "") != (c.Delta.Role != ""):
			t.Fatal("the role is not in the first event and only there")
		}
		all.Finish, all.Matched = c.Finish, c.Matched
		all.Tokens = append(all.Tokens, c.Tokens...)
		if all.Logprobs == nil {
			all.Logprobs = c.Logprobs
		} else if c.Logprobs != nil {
			all.Logprobs.Content = append(all.Logprobs.Content, c.Logprobs.Content...)
		}
		foldDelta(t, &all.Delta, c.Delta)
	}
}

func foldDelta(t testing.TB, all *objectMessage, d objectMessage) {
	t.Helper()
	all.Role += d.Role
	join := func(all **string, piece *string) {
		switch {
		case piece == nil:
		case *all == nil:
			*all = piece
		default:
			joined := **all + *piece
			*all = &joined
		}
	}
	join(&all.Content, d.Content)
	join(&all.Reasoning, d.Reasoning)
	join(&all.ReasoningContent, d.ReasoningContent)
	for _, call := range d.ToolCalls {
		if call.ID != "" {
			if call.Index != len(all.ToolCalls) || call.Type != "function" || call.Function.Arguments != "" {
				t.Fatalf("a call begins with %+v", call)
			}
			all.ToolCalls = append(all.ToolCalls, call)
			continue
		}
		if call.Index != len(all.ToolCalls)-1 || call.Type != "" || call.Function.Name != "" {
			t.Fatalf("a call goes on with %+v", call)
		}
		all.ToolCalls[call.Index].Function.Arguments += call.Function.Arguments
	}
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
	return fmt.Sprintf(`{"model":"gpt-oss-20b","messages":[{"role":"user","content":"Hi"}]%s}`, members)
}

const weatherTool = `,"tools":[{"type":"function","function":{"name":"get_weather","description":"Weather of a city.","parameters":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}}]`

func indent(t testing.TB, s string) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := json.Indent(&b, []byte(s), "", "  "); err != nil {
		t.Fatalf("%v\n%s", err, s)
	}
	return append(b.Bytes(), '\n')
}
