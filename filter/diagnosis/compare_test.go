package diagnosis

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// request is a conversation of a client, from which prompts are made.
type request struct {
	model, salt, date, identity string
	effort                      harmony.Effort
	builtins, tools             []harmony.Namespace
	instructions                string
	format                      string
	summary                     string
	truncated                   bool
	messages                    []harmony.Message
}

func text(s string) []harmony.Content { return []harmony.Content{harmony.Text(s)} }

// long is a text of many blocks that is different for every name.
func long(name string) string { return strings.Repeat("The "+name+" is a text of some length. ", 20) }

func user(s string) harmony.Message { return harmony.Message{Role: harmony.RoleUser, Content: text(s)} }

func said(channel, s string) harmony.Message {
	return harmony.Message{Role: harmony.RoleAssistant, Channel: channel, Content: text(s)}
}

func developer(s string) harmony.Message {
	return harmony.Message{Role: harmony.RoleDeveloper, Content: []harmony.Content{&harmony.DeveloperContent{Instructions: s}}}
}

func call(s string) harmony.Message {
	return harmony.Message{Role: harmony.RoleAssistant, Recipient: "functions.f", Channel: harmony.ChannelCommentary, ContentType: "json", Content: text(s)}
}

func result(s string) harmony.Message {
	return harmony.Message{Role: harmony.RoleTool, Name: "functions.f", Recipient: "assistant", Channel: harmony.ChannelCommentary, Content: text(s)}
}

func function(name, parameters string) harmony.Tool {
	return harmony.Tool{Name: name, Description: long(name), Parameters: []byte(parameters)}
}

func functions(tools ...harmony.Tool) []harmony.Namespace {
	return []harmony.Namespace{{Name: "functions", Tools: tools}}
}

func newRequest() request {
	return request{
		model: "gpt-oss-20b", date: "2026-11-23", effort: harmony.EffortMedium, identity: "You are ChatGPT.", instructions: long("instruction"),
		tools:    functions(function("one", `{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"number"}}}`), function("two", `{"type":"object"}`)),
		messages: []harmony.Message{user(long("question"))},
	}
}

func (r request) with(messages ...harmony.Message) request {
	r.messages = append(r.messages[:len(r.messages):len(r.messages)], messages...)
	return r
}

func (r request) render(t *testing.T) []harmony.Token {
	t.Helper()
	system := &harmony.SystemContent{Identity: r.identity, KnowledgeCutoff: "2024-06", StartDate: r.date, Effort: r.effort, Channels: []string{"analysis", "commentary", "final"}, ChannelRequired: true, Tools: r.builtins}
	content := &harmony.DeveloperContent{Instructions: r.instructions, Tools: r.tools}
	if r.format != "" {
		content.ResponseFormats = []harmony.ResponseFormat{{Name: "answer", Schema: []byte(r.format)}}
	}
	messages := append([]harmony.Message{
		{Role: harmony.RoleSystem, Content: []harmony.Content{system}}, {Role: harmony.RoleDeveloper, Content: []harmony.Content{content}},
	}, r.messages...)
	tokens, err := harmony.NewRenderer().AppendCompletion(nil, messages, harmony.RoleAssistant)
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

func (r request) head() Head {
	h := Head{
		Model: r.model, Salt: Text(r.salt), Date: Text(r.date), Effort: Text(string(r.effort)), Instructions: Text(r.instructions), Format: Text(r.format),
		Summary: Text(r.summary), Truncated: r.truncated,
	}
	for _, m := range r.messages {
		if m.Role == harmony.RoleUser {
			h.First = Text(string(m.Content[0].(harmony.Text)))
			break
		}
	}
	var builtins Head
	builtins.AddTools(r.builtins)
	h.Builtins = builtins.Tools
	h.AddTools(r.tools)
	return h
}

func (r request) print(t *testing.T) *Print {
	t.Helper()
	return NewPrint(r.head(), r.render(t))
}

// common returns how many tokens two prompts begin with in common.
func common(a, b []harmony.Token) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// changes are changes of a conversation, with what they are found to be.
var changes = []struct {
	name    string
	earlier func(request) request
	now     func(request) request
	cause   Cause
	message int
	role    Role
}{
	{"the same request again", nil, nil, None, 0, NoRole},
	{"a turn more", nil, func(r request) request {
		return r.with(said("final", long("answer")), user(long("second")))
	}, None, 0, NoRole},
	{"a turn of tools goes on", func(r request) request {
		return r.with(said("analysis", long("thought")), call("{}"), result(long("result")))
	}, func(r request) request {
		return r.with(said("analysis", long("thought")), call("{}"), result(long("result")), said("analysis", long("another")), call("{}"), result(long("more")))
	}, None, 0, NoRole},
	{"the client goes back", func(r request) request { return r.with(said("final", long("answer")), user(long("second"))) }, nil, None, 0, NoRole},
	{"another model", nil, func(r request) request { r.model = "gpt-oss-120b"; return r }, Model, 0, RoleSystem},
	{"another cache_salt", nil, func(r request) request { r.salt = "s"; return r }, Salt, 0, RoleSystem},
	{"another identity", nil, func(r request) request { r.identity = "You are nobody at all, and say so."; return r }, System, 0, RoleSystem},
	{"another day", nil, func(r request) request { r.date = "2026-11-24"; return r }, Date, 0, RoleSystem},
	{"another effort", nil, func(r request) request { r.effort = harmony.EffortHigh; return r }, Effort, 0, RoleSystem},
	{"another day and effort", nil, func(r request) request { r.date, r.effort = "2026-11-24", harmony.EffortHigh; return r }, Date, 0, RoleSystem},
	{"a built-in tool", nil, func(r request) request {
		r.builtins = []harmony.Namespace{{Name: "browser", Description: long("browser"), Tools: []harmony.Tool{{Name: "search"}}}}
		return r
	}, Tools, 0, RoleSystem},
	{"other instructions", nil, func(r request) request { r.instructions += "Be terse."; return r }, Instructions, 1, RoleDeveloper},
	{"other instructions and tools", nil, func(r request) request {
		r.instructions += "Be terse."
		r.tools = functions(r.tools[0].Tools[0])
		return r
	}, Instructions, 1, RoleDeveloper},
	{"other instructions and no tools", nil, func(r request) request { r.instructions += "Be terse."; r.tools = nil; return r }, Tools, 0, RoleSystem},
	{"a tool less", nil, func(r request) request { r.tools = functions(r.tools[0].Tools[0]); return r }, Tools, 1, RoleDeveloper},
	{"a tool with another description", nil, func(r request) request {
		r.tools = functions(r.tools[0].Tools[0], function("three", `{"type":"object"}`))
		return r
	}, Tools, 1, RoleDeveloper},
	{"the tools in another order", nil, func(r request) request {
		r.tools = functions(r.tools[0].Tools[1], r.tools[0].Tools[0])
		return r
	}, ToolsReordered, 1, RoleDeveloper},
	{"the members of a schema in another order", nil, func(r request) request {
		r.tools = functions(function("one", `{"properties":{"b":{"type":"number"},"a":{"type":"string"}},"type":"object"}`), r.tools[0].Tools[1])
		return r
	}, ToolsReordered, 1, RoleDeveloper},
	{"another format", nil, func(r request) request {
		r.format = `{"type":"object","properties":{"answer":{"type":"string","description":"` + long("answer") + `"}}}`
		return r
	}, Format, 1, RoleDeveloper},
	{"an edited answer", func(r request) request { return r.with(said("final", long("answer")), user(long("second"))) }, func(r request) request {
		return r.with(said("final", "No. "+long("answer")), user(long("second")))
	}, History, 3, RoleAssistant},
	{"an edited question", func(r request) request { return r.with(said("final", long("answer")), user(long("second"))) }, func(r request) request {
		return r.with(said("final", long("answer")), user("No. "+long("second")), said("final", long("answer")), user(long("third")))
	}, History, 4, RoleUser},
	{"an edited system message in the conversation", func(r request) request {
		return r.with(developer(long("environment")), said("final", long("answer")), user(long("second")))
	}, func(r request) request {
		return r.with(developer("No. "+long("environment")), said("final", long("answer")), user(long("second")))
	}, History, 3, RoleDeveloper},
	{"a result that the client has shortened", func(r request) request {
		return r.with(said("analysis", long("thought")), call("{}"), result(long("result")))
	}, func(r request) request {
		return r.with(said("analysis", long("thought")), call("{}"), result("[shortened]"), call("{}"), result(long("result")))
	}, History, 5, RoleTool},
	{"the answer ends the reasoning", func(r request) request {
		return r.with(said("analysis", long("thought")), call("{}"), result(long("result")))
	}, func(r request) request {
		return r.with(call("{}"), result(long("result")), said("final", long("answer")), user(long("second")))
	}, Reasoning, 3, RoleAssistant},
	{"lost reasoning", func(r request) request {
		return r.with(said("analysis", long("thought")), call("{}"), result(long("result")))
	}, func(r request) request {
		return r.with(call("{}"), result(long("result")), said("analysis", long("another")), call("{}"), result(long("more")))
	}, ReasoningLost, 3, RoleAssistant},
	{"a call in another form", func(r request) request {
		r = r.with(said("analysis", long("thought")), call("{}"), result(long("result")))
		r.messages[2].Written = harmony.AppendEncodeSpecial(nil, "<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>")
		return r
	}, func(r request) request {
		return r.with(said("analysis", long("thought")), call("{}"), result(long("result")), call("{}"), result(long("more")))
	}, Respelled, 4, RoleAssistant},
	{"a call in another spelling after the answer", func(r request) request {
		return r.with(call(`{"a": 1}`), result(long("result")))
	}, func(r request) request {
		return r.with(call(`{"a":1}`), result(long("result")), said("final", long("answer")), user(long("second")))
	}, Respelled, 3, RoleAssistant},
	{"a call of a turn that was over is edited", func(r request) request {
		return r.with(call(`{"a": 1}`), result(long("result")), said("final", long("answer")), user(long("second")))
	}, func(r request) request {
		return r.with(call(`{"a": 2}`), result(long("result")), said("final", long("answer")), user(long("second")))
	}, History, 3, RoleAssistant},
	{"another call", func(r request) request {
		r = r.with(said("analysis", long("thought")), call("{}"), result(long("result")))
		r.messages[2].Written = harmony.AppendEncodeSpecial(nil, "<|start|>assistant<|channel|>commentary to=functions.g <|constrain|>json<|message|>{}<|call|>")
		return r
	}, func(r request) request {
		return r.with(said("analysis", long("thought")), call("{}"), result(long("result")), call("{}"), result(long("more")))
	}, History, 4, RoleAssistant},
	{"other arguments", func(r request) request {
		return r.with(said("analysis", long("thought")), call("{}"), result(long("result")))
	}, func(r request) request {
		return r.with(said("analysis", long("thought")), call(`{"a":1}`), result(long("result")), call("{}"), result(long("more")))
	}, History, 4, RoleAssistant},
	{"a compaction", func(r request) request { return r.with(said("final", long("answer")), user(long("second"))) }, func(r request) request {
		r.summary = "s"
		return r.with(user(long("summary")), user(long("third")))
	}, Compacted, 3, RoleUser},
	{"a truncation", func(r request) request { return r.with(said("final", long("answer")), user(long("second"))) }, func(r request) request {
		r.truncated = true
		return r.with(user(long("third")))
	}, Truncated, 3, RoleUser},
}

func TestCompare(t *testing.T) {
	for _, c := range changes {
		t.Run(c.name, func(t *testing.T) {
			earlier, now := newRequest(), newRequest()
			if c.earlier != nil {
				earlier = c.earlier(earlier)
			}
			if c.now != nil {
				now = c.now(now)
			}
			a, b := earlier.render(t), now.render(t)
			want := Finding{Known: true, Cause: c.cause, Shared: common(a, b) / BlockTokens * BlockTokens, Message: c.message, Role: c.role}
			if earlier.model != now.model || earlier.salt != now.salt {
				want.Shared = 0
			}
			got := Compare(earlier.print(t), now.print(t))
			if c.cause != None {
				want.Lost = min(len(a), len(b)) - want.Shared
			}
			want.Token = got.Token
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(Finding{})); diff != "" {
				t.Error(diff)
			}
			if first := common(a, b); c.cause > Salt && (got.Token > first || got.Token <= first-BlockTokens) {
				t.Errorf("the first different token is %d, and was found at %d", first, got.Token)
			}
		})
	}
}

func TestMissed(t *testing.T) {
	for _, c := range []struct {
		name    string
		f       Finding
		cached  int
		replica string
		want    Cause
	}{
		{"all is cached", Finding{Known: true, Shared: 1024}, 1024, "a", None},
		{"half is cached", Finding{Known: true, Shared: 1024}, 512, "a", None},
		{"little is cached", Finding{Known: true, Shared: 1024, Replica: "a"}, 511, "a", NotCached},
		{"another replica", Finding{Known: true, Shared: 1024, Replica: "a"}, 0, "b", OtherReplica},
		{"an unknown replica", Finding{Known: true, Shared: 1024, Replica: "a"}, 0, "", NotCached},
		{"no replica before", Finding{Known: true, Shared: 1024}, 0, "b", NotCached},
		{"the engine reports nothing", Finding{Known: true, Shared: 1024}, -1, "b", None},
		{"few tokens beside the output", Finding{Known: true, Shared: 1024, Output: 513}, 0, "b", None},
		{"few tokens", Finding{Known: true, Shared: 511}, 0, "b", None},
		{"nothing is known", Finding{Shared: 1024}, 0, "b", None},
		{"the shared part of another prompt", Finding{Known: true, Cause: Tools, Shared: 1024}, 0, "", NotCached},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.f.Missed(c.cached, c.replica); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestWords requires the tokens of the words that roles and channels are recognized by.
func TestWords(t *testing.T) {
	for word, token := range map[string]harmony.Token{
		"system": systemToken, "developer": developerToken, "user": userToken, "assistant": assistantToken, harmony.ChannelAnalysis: analysisToken, harmony.ChannelFinal: finalToken,
	} {
		if got := harmony.AppendEncode(nil, word); len(got) != 1 || got[0] != token {
			t.Errorf("%s is %v, not %d", word, got, token)
		}
	}
}

func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for c := None; c <= Respelled; c++ {
		if name := c.String(); seen[name] || (name == "") != (c == None) {
			t.Errorf("cause %d has the name %q", c, name)
		}
		seen[c.String()] = true
	}
	if got := fmt.Sprint(RoleSystem, RoleTool); got != "system tool" {
		t.Error(got)
	}
}
