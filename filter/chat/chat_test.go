package chat

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

func mustDecode(t testing.TB, body string) *Request { return decodeWith(t, apitest.NewContext(), body) }

func decodeWith(t testing.TB, rc *turn.RequestContext, body string) *Request {
	t.Helper()
	request, err := Decode(context.Background(), []byte(body), rc)
	if err != nil {
		t.Fatalf("Decode: %v (param %q)", err, err.Param)
	}
	return request
}

// run pushes chunks into a reply and returns all its bytes.
func run(t testing.TB, request *Request, chunks []engine.Chunk) string {
	t.Helper()
	return apitest.Play(t, request, api.Loop, chunks)
}

// reply calls run with the output of one choice in one chunk.
func answer(t testing.TB, request *Request, text string, finish engine.Finish) string {
	t.Helper()
	return run(t, request, []engine.Chunk{{Tokens: apitest.Tokens(text), Finish: finish}})
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

// entry is a token of an answer and its log probability.
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

// fold joins the deltas of a stream into the object that the same request without
// stream gets. It fails the test if the stream breaks a rule.
func fold(t testing.TB, stream string, choices int) object {
	t.Helper()
	var o object
	o.Choices = make([]objectChoice, choices)
	for _, event := range apitest.Events(t, stream) {
		foldEvent(t, &o, parseObject(t, event.Raw))
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
		t.Fatal("the usage comes twice")
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

func ask(members string) string {
	return fmt.Sprintf(`{"model":"gpt-oss-20b","messages":[{"role":"user","content":"Hi"}]%s}`, members)
}

const weatherTool = `,"tools":[{"type":"function","function":{` + apitest.WeatherTool + `}}]`
