package read

import (
	"context"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/messages/request"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// TestFieldsAreHandled shows that every field does what its row says.
func TestFieldsAreHandled(t *testing.T) {
	t.Parallel()
	turns := func(call, result string) string {
		return `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}` + call + `}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"a"` + result + `}]}]}`
	}
	testAPI.Handles(t, objects, map[string]string{
		"":                              ask(`,%s`),
		"messages":                      `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"Hi",%s}]}`,
		"messages.content[tool_use]":    turns(`,%s`, ``),
		"messages.content[tool_result]": turns(``, `,%s`),
		"thinking":                      ask(`,"thinking":{"type":"adaptive",%s}`),
		"messages.output_config":        `{"model":"m","messages":[{"role":"user","content":"Hi"},{"role":"system","content":"a","output_config":{%s}}]}`,
		"output_config":                 ask(`,"output_config":{%s}`),
		"compaction":                    ask(`,"compaction":{"type":"summarize",%s}`),
		"container":                     ask(`,"container":{%s}`),
		"metadata":                      ask(`,"metadata":{%s}`),
		"tools":                         ask(`,"tools":[{"name":"f","input_schema":{},%s}]`),
		"tool_choice":                   ask(`,"tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"auto",%s}`),
		"chat_template_kwargs":          ask(`,"chat_template_kwargs":{%s}`),
	})
}

// TestReasoningSwitches shows the names that clients of other servers have for an effort and
// an opt-out.
func TestReasoningSwitches(t *testing.T) {
	t.Parallel()
	for fields, want := range map[string]struct {
		effort   string
		thinking request.Visibility
	}{
		`"thinking":{"type":"adaptive"},"reasoning_effort":"high"`:                        {"high", request.Shown},
		`"chat_template_kwargs":{"reasoning_effort":"high"}`:                              {"high", request.Hidden},
		`"thinking":{"type":"adaptive"},"chat_template_kwargs":{"enable_thinking":false}`: {"low", request.Hidden},
		`"enable_thinking":false,"output_config":{"effort":"high"}`:                       {"low", request.Hidden},
		`"thinking":{"type":"enabled","budget_tokens":2000},"include_reasoning":false`:    {"medium", request.Hidden},
	} {
		r, err := (Reader{}).Read(context.Background(), []byte(ask(","+fields)), apitest.NewContext(), Purpose{})
		if err != nil {
			t.Fatalf("%s: %v", fields, err)
		}
		prompt := apitest.Spell(t, r.Engine().Prompt)
		if !strings.Contains(prompt, "Reasoning: "+want.effort+"\n") || r.Options.Thinking != want.thinking {
			t.Errorf("%s: %v\n%s", fields, r.Options.Thinking, prompt)
		}
	}
}

// testAPI reads requests, and makes no replies.
var testAPI = &apitest.API{
	Decode: func(body []byte, rc *turn.RequestContext) (api.Request, *apierror.Error) {
		q, err := (Reader{}).Read(context.Background(), body, rc, Purpose{})
		return unanswered{q}, err
	},
	Ask: ask,
}

// unanswered is a request to which no reply is made.
type unanswered struct{ *request.Request }

func (unanswered) Info() api.Info              { return api.Info{} }
func (unanswered) NewReply(api.Mode) api.Reply { return nil }

func ask(members string) string { return conversation(userHi, members) }

// conversation returns a request with these messages.
func conversation(messages, members string) string {
	return `{"model":"gpt-oss-20b","messages":[` + messages + `]` + members + `}`
}

const (
	userHi      = `{"role":"user","content":"Hi"}`
	callA       = `{"role":"assistant","content":[{"type":"tool_use","id":"toolu_a","name":"get_weather","input":{}}]}`
	weatherTool = `,"tools":[{"name":"get_weather","input_schema":{"type":"object"}}]`
)
