package chat

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// updateForms are the forms of a message that sets the effort.
var updateForms = []string{
	`{"type":"configuration_update","reasoning":{"effort":%q}}`,
	`{"id":"u","reasoning":{"effort":%q},"type":"configuration_update"}`,
	`{"role":"system","output_config":{"effort":%q}}`,
	`{"role":"developer","output_config":{"effort":%q},"content":"Think well."}`,
}

// TestEffortUpdates shows which effort counts, and that of an update nothing else is left.
func TestEffortUpdates(t *testing.T) {
	t.Parallel()
	const hi, answer = `{"role":"user","content":"Hi"}`, `{"role":"assistant","content":"Yes?"}`
	for _, form := range updateForms {
		update := func(effort string) string { return fmt.Sprintf(form, effort) }
		for _, c := range []struct {
			messages []string
			members  string
			effort   string
			hidden   bool
		}{
			{[]string{hi, update("low")}, ``, "low", false},
			{[]string{update("low"), hi}, `,"reasoning_effort":"high"`, "low", false},
			{[]string{hi, answer, update("low"), hi, answer, update("max"), hi}, `,"reasoning_effort":"low"`, "high", false},
			{[]string{hi, answer, update("none"), hi}, `,"reasoning_effort":"high"`, "low", true},
			{[]string{hi, answer, update("high"), hi}, `,"reasoning_effort":"none"`, "high", false},
			{[]string{hi, answer, update("high"), hi}, `,"thinking":{"type":"disabled"}`, "low", true},
		} {
			r := mustDecode(t, `{"model":"gpt-oss-20b","messages":[`+strings.Join(c.messages, ",")+`]`+c.members+`}`)
			prompt := apitest.Spell(t, r.Engine().Prompt)
			if !strings.Contains(prompt, "Reasoning: "+c.effort+"\n") || r.options.hideReasoning != c.hidden {
				t.Errorf("%s%s: not %s, or hidden %v:\n%s", c.messages, c.members, c.effort, r.options.hideReasoning, prompt)
			}
			if messages := strings.Count(prompt, "<|start|>") - 2; messages != len(c.messages)-strings.Count(fmt.Sprint(c.messages), "effort")+strings.Count(prompt, "Think well.") {
				t.Errorf("%s: %d messages:\n%s", c.messages, messages, prompt)
			}
		}
	}
}

// TestEffortUpdatesRefused names what is wrong with an update, also if a later one is right.
func TestEffortUpdatesRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ update, param string }{
		{`{"type":"configuration_update","reasoning":{"effort":"huge"}}`, "messages[1].reasoning.effort"},
		{`{"type":"configuration_update","reasoning":{"effort":1}}`, "messages[1].reasoning.effort"},
		{`{"type":"configuration_update","text":{"format":{"type":"text"}}}`, "messages[1].text"},
		{`{"type":"configuration_update","reasoning":{"effort":"low"},"role":"user"}`, "messages[1].role"},
		{`{"content":"Hi","type":"configuration_update","reasoning":{"effort":"low"}}`, "messages[1].content"},
		{`{"role":"system","output_config":{"effort":"huge"}}`, "messages[1].output_config.effort"},
		{`{"role":"system","output_config":{"effort":["low"]}}`, "messages[1].output_config.effort"},
		{`{"role":"system","output_config":"low"}`, "messages[1].output_config"},
		{`{"role":"system","output_config":{"effort":"low","format":{}}}`, "messages[1].output_config.format"},
		{`{"role":"system","output_config":{}}`, "messages[1].content"},
		{`{"role":"user","output_config":{"effort":"low"},"content":"Hi"}`, "messages[1].output_config"},
		{`{"role":"assistant","output_config":{"effort":"low"},"content":"Hi"}`, "messages[1].output_config"},
	} {
		body := `{"model":"gpt-oss-20b","messages":[{"role":"user","content":"Hi"},` + c.update + `,{"role":"system","output_config":{"effort":"low"}}]}`
		_, err := Decode(context.Background(), []byte(body), apitest.NewContext())
		if err == nil || err.Status != 400 || err.Param != c.param {
			t.Errorf("%s: %v", c.update, err)
		}
	}
	r := mustDecode(t, `{"model":"gpt-oss-20b","messages":[{"role":"user","content":"Hi"},{"type":"configuration_update","reasoning":{"effort":null}},{"role":"user","content":"Hi","type":"message","reasoning":{}}]}`)
	if got := strings.Join(r.ignored, " "); got != "messages messages.type messages.reasoning" {
		t.Errorf("ignored: %s", got)
	}
}

// TestKeepPrefix requires that each prompt begins with the one before, whatever efforts the
// conversation sets.
func TestKeepPrefix(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	words := []string{"none", "minimal", "low", "medium", "high", "xhigh", "max"}
	for range 100 {
		rc := apitest.NewContext()
		rc.Model = &turn.Model{EffortUpdates: turn.EffortKeepPrefix}
		members := fmt.Sprintf(`,"reasoning_effort":%q`, words[random.IntN(len(words))])
		messages, before := "", ""
		for range 5 {
			var sent []string
			for _, word := range words {
				if random.IntN(8) == 0 {
					sent = append(sent, fmt.Sprintf(updateForms[random.IntN(len(updateForms))], word))
				}
			}
			messages += strings.Join(append(sent, `{"role":"user","content":"Go on."}`), ",")

			r := decodeWith(t, rc, `{"model":"gpt-oss-20b","messages":[`+messages+`]`+members+`}`)
			prompt := apitest.Spell(t, r.Engine().Prompt)
			if !strings.HasPrefix(prompt, before) {
				t.Fatalf("%s: the prompt\n%s\ndoes not begin with\n%s", messages, prompt, before)
			}
			before = strings.TrimSuffix(prompt, "<|start|>assistant")
			messages += `,{"role":"assistant","content":"Yes."},`
		}
	}
}
