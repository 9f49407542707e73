package enginesim

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

const (
	thinkThen = `{"type":"star","content":{"type":"sequence","elements":[` + channel + `,{"type":"const_string","value":"analysis"},` + content + `,` +
		`{"type":"any_tokens","exclude_tokens":[200006,200007]},{"type":"repeat","min":1,"max":1,"content":{"type":"token","token":200007}},` +
		`{"type":"repeat","min":1,"max":1,"content":{"type":"token","token":200006}},{"type":"const_string","value":"assistant"}]}}`
	channel   = `{"type":"repeat","min":1,"max":1,"content":{"type":"token","token":200005}}`
	content   = `{"type":"repeat","min":1,"max":1,"content":{"type":"token","token":200008}}`
	finalJSON = channel + `,{"type":"const_string","value":"final"},{"type":"optional","content":{"type":"const_string","value":" json"}},` + content +
		`,{"type":"json_schema","json_schema":{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"]}}`
	callF = channel + `,{"type":"const_string","value":"commentary to=functions.f "},{"type":"repeat","min":1,"max":1,"content":{"type":"token","token":200003}},` +
		`{"type":"const_string","value":"json"},` + content + `,{"type":"json_schema","json_schema":{"type":"object","properties":{"n":{"type":"integer","minimum":3}},"required":["n"]}}`
)

func tagOf(elements ...string) string {
	return `{"type":"structural_tag","format":{"type":"sequence","elements":[` + strings.Join(elements, ",") + `]}}`
}

func TestObey(t *testing.T) {
	const thought = "<|channel|>analysis<|message|>The user wants a reply.<|end|><|start|>assistant"
	for name, c := range map[string]struct{ tag, user, want string }{
		"as it is":        {tagOf(thinkThen, finalJSON), `JSON {"ok":false}`, thought + `<|channel|>final<|message|>{"ok":false}<|return|>`},
		"another form":    {tagOf(finalJSON), `JSON {"ok":false}`, `<|channel|>final<|message|>{"ok":false}<|return|>`},
		"smallest":        {tagOf(thinkThen, finalJSON), `SAY hello`, thought + `<|channel|>final<|message|>{"ok": true}<|return|>`},
		"another message": {tagOf(thinkThen, callF), `SAY hello`, thought + `<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"n": 3}<|return|>`},
		"bad arguments":   {tagOf(thinkThen, callF), `CALL f {"n":1}`, thought + `<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"n": 3}<|return|>`},
		"a call":          {tagOf(thinkThen, callF), `CALL f {"n":4}`, thought + `<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"n":4}<|call|>`},
		"exact":           {tagOf(callF), `@@<channel>final<message>x<return>@@`, `<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"n": 3}<|return|>`},
		"regex":           {tagOf(channel, `{"type":"const_string","value":"final"}`, content, `{"type":"regex","pattern":"(yes|no)[0-9]{2}"}`), `SAY maybe`, `<|channel|>final<|message|>yes00<|return|>`},
	} {
		t.Run(name, func(t *testing.T) {
			g, failed := readGrammar(c.tag)
			if failed != nil {
				t.Fatal(failed)
			}
			seq, err := g.choose(planCandidates(readPrompt(userPrompt(c.user))))
			if err != nil {
				t.Fatal(err)
			}
			ids := seq.ids
			said := make([]harmony.Token, len(ids))
			for i, id := range ids {
				said[i] = harmony.Token(id)
			}
			if text := show(said); text != c.want {
				t.Errorf("%s, want %s", text, c.want)
			}
		})
	}
}

// TestObeyBuiltins calls built-in tools under the filter's own tags.
func TestObeyBuiltins(t *testing.T) {
	tools := []constraint.Tool{{Recipient: "browser.search", Builtin: true}, {Recipient: "python", Builtin: true, Code: true}}
	answer := constraint.Spec{Tools: tools, Answer: constraint.AnswerChoice{"yes"}, Parallel: true}
	python := constraint.Spec{Tools: tools[1:], Required: true}
	system := withBuiltins(t)
	for _, c := range []struct {
		spec       constraint.Spec
		user, want string
	}{
		{answer, "CALL browser.search {\"query\":\"a\"}", thought + `<|channel|>analysis to=browser.search code<|message|>{"query":"a"}<|call|>`},
		{answer, "CALL browser.search no", thought + `<|channel|>analysis to=browser.search code<|message|>{}<|return|>`},
		{answer, "CALL python no JSON", thought + "<|channel|>analysis to=python code<|message|>no JSON<|call|>"},
		{answer, "SAY yes", thought + final + "yes<|return|>"},
		{python, "CALL python 1", thought + "<|channel|>analysis to=python code<|message|>1<|call|>"},
	} {
		g, failed := readGrammar(string(constraint.AppendStructuralTag(nil, c.spec.Format(nil))))
		if failed != nil {
			t.Fatal(failed)
		}
		seq, err := g.choose(planCandidates(readPrompt(conversation(system, c.user, ""))))
		if err != nil {
			t.Fatal(err)
		}
		if got := showSigned(seq.ids); got != c.want {
			t.Errorf("%s: %s, want %s", c.user, got, c.want)
		}
	}
}

func TestGrammarsRefused(t *testing.T) {
	for tag, status := range map[string]int{
		`x`:                         400,
		`{"type":"structural_tag"}`: 400,
		tagOf(`{"type":"grammar","grammar":"root ::= Token(1)"}`):                       400,
		tagOf(`{"type":"regex","pattern":"("}`):                                         400,
		tagOf(`{"type":"sequence"}`):                                                    400,
		tagOf(`{"type":"star"}`):                                                        400,
		tagOf(`{"type":"const_string","value":"<|end|>"}`):                              400,
		tagOf(channel, `{"type":"token","token":200002}`):                               500,
		tagOf(`{"type":"const_string","value":"a"}`, `{"type":"token","token":200007}`): 500,
		tagOf(`{"type":"or","elements":[{"type":"token","token":200012}]}`):             500,
	} {
		if _, err := readGrammar(tag); err == nil || err.status != status {
			t.Errorf("%s: %v, want status %d", tag, err, status)
		}
	}
}

// TestConstrainedRequests sends grammars over HTTP to both engines, and to an
// engine that ignores them.
func TestConstrainedRequests(t *testing.T) {
	prompt, err := json.Marshal(userPrompt("SAY hello"))
	if err != nil {
		t.Fatal(err)
	}
	quoted, err := json.Marshal(tagOf(finalJSON))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ path, body, directive, want string }{
		"vllm":   {"/v1/completions", `{"model":"gpt-oss-20b","max_tokens":99,"prompt":` + string(prompt) + `,"structured_outputs":{"structural_tag":` + string(quoted) + `}}`, "", `{\"ok\": true}`},
		"sglang": {"/generate", `{"input_ids":` + string(prompt) + `,"sampling_params":{"structural_tag":` + string(quoted) + `}}`, "", `{\"ok\": true}`},
		"ignore": {"/generate", `{"input_ids":` + string(prompt) + `,"sampling_params":{"structural_tag":` + string(quoted) + `}}`, "grammar=ignore", `hello`},
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodPost, c.path, strings.NewReader(c.body))
			r.Header.Set("x-engine-sim", c.directive)
			New(Options{}).ServeHTTP(w, r)
			if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), c.want) {
				t.Errorf("%d %s, want %s in it", w.Code, w.Body, c.want)
			}
		})
	}
}
