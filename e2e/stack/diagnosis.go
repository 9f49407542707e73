package stack

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/diagnosis"
)

// agentTurn is a request of an agent.
type agentTurn struct {
	Model        string           `json:"model"`
	Instructions string           `json:"instructions"`
	Input        []map[string]any `json:"input"`
	Tools        []map[string]any `json:"tools"`
	Reasoning    map[string]any   `json:"reasoning"`
	Store        bool             `json:"store"`

	// Where prompts are cached. With salts of their own, agents share nothing.
	Session string         `json:"prompt_cache_key"`
	Salt    string         `json:"cache_salt"`
	Options map[string]any `json:"prompt_cache_options,omitempty"`
}

// agentChanges are changes of an agent's request, with the cause that is found; "": the
// request goes on.
var agentChanges = []struct {
	cause, reason string
	change        func(a *agentTurn, n int)
}{
	{"", "", func(*agentTurn, int) {}},
	{"instructions", "input_changed", func(a *agentTurn, n int) {
		a.Instructions += fmt.Sprintf(
			" It is %d o'clock.", n)
	}},
	{"tools", "tools_changed", func(a *agentTurn, n int) {
		a.Tools = append(a.Tools, agentTool(fmt.Sprintf("tool%d", n)))
	}},
	{"tools_reordered", "tools_changed", func(a *agentTurn, _ int) { slices.Reverse(a.Tools) }},
	{"effort", "reasoning_effort_changed", func(a *agentTurn, _ int) {
		a.Reasoning = map[string]any{"effort": map[any]string{"low": "high", "high": "low"}[a.Reasoning["effort"]]}
	}},
	{"history", "input_changed", func(a *agentTurn, n int) {
		a.Input = slices.Clone(a.Input)
		a.Input[1] = map[string]any{"role": "assistant", "content": fmt.Sprintf(
			"An edit, the %dth. ", n) + strings.Repeat("It is long. ", 20)}
	}},
}

func agentTool(name string) map[string]any {
	return map[string]any{
		"type": "function", "name": name,
		"description": strings.Repeat(name+" does a thing. ", 12),
		"parameters":  json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"}}}`),
	}
}

// DiagnosisIsExact lets agents talk, each of which changes one thing after the other. The
// engine caches blocks of at most block tokens; 0: it may have less of a prompt than its
// beginning in its cache, as with sliding windows.
func (d *Dataplane) DiagnosisIsExact(t *testing.T, model string, block int64) {
	// A failure is the same in the next run.
	random := rand.New(rand.NewPCG(1, 1))
	for agent := range 4 {
		name := strings.ReplaceAll(fmt.Sprint(t.Name(), agent), "/", "-") // vLLM takes no salt with a slash

		a := &agentTurn{
			Model: model, Session: name, Salt: name, Reasoning: map[string]any{"effort": "low"},
			Instructions: fmt.Sprintf("You are agent %d of %s. ", agent, t.Name()) + strings.Repeat(
				"Be careful. ", 40+agent),
			Tools: []map[string]any{agentTool("read"), agentTool("write"), agentTool(fmt.Sprint("run", agent))},
			Input: []map[string]any{{"role": "user", "content": strings.Repeat(
				"Look at the files. ", 30) + "\nNOTHINK\nSAY yes"}},
		}

		before := d.agentReply(t, a, 0)
		// Two turns without a change come first, so that the engine has a conversation in its cache.
		for i, n := range append([]int{0, 0}, random.Perm(len(agentChanges))...) {
			a.Input = append(a.Input, map[string]any{"role": "assistant", "content": "yes"},
				map[string]any{"role": "user", "content": strings.Repeat(
					"And more. ", 10+random.IntN(30)) + "\nNOTHINK\nSAY yes"})

			// The message is added before the change, as agents do: a change of the history is one of what the
			// engine has seen.
			c := agentChanges[n]
			c.change(a, i)
			a.Options = map[string]any{"comparison_response_id": before.Get("id").Str}

			reply := d.agentReply(t, a, i+1)
			d.checkDiagnosis(t, before, reply, c.cause, c.reason, block)
			before = reply
		}
	}
}

// agentReply makes a reply, whose member line is the filter's log line.
func (d *Dataplane) agentReply(t *testing.T, a *agentTurn, n int) gjson.Result {
	t.Helper()
	body, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	id := fmt.Sprintf("turn-%s-%03d", strings.NewReplacer("/", "-", "_", "-").Replace(a.Session), n)
	text := d.Answer(t, "/v1/responses", string(body), "x-request-id", id)
	return gjson.Parse(`{"line":` + strconv.Quote(d.RequestLine(t, " request_id="+id+" ")) + "," + text[1:])
}

var prefixField = regexp.MustCompile(`prefix_(\w+)=(\w+)`)

// checkDiagnosis requires that a reply has the cause of a change, and that the tokens which
// are shared are those that the engine had in its cache, in whole blocks.
func (d *Dataplane) checkDiagnosis(t *testing.T, before, reply gjson.Result, cause, reason string, block int64) {
	t.Helper()
	fields := map[string]string{}
	for _, m := range prefixField.FindAllStringSubmatch(reply.Get("line").Str, -1) {
		fields[m[1]] = m[2]
	}
	found, cached := reply.Get("prompt_cache_diagnostics"), reply.Get("usage.input_tokens_details.cached_tokens").Int()

	// Missed means that the engine had less in its cache than the filter expected, as is right with
	// sliding windows.
	if fields["broken"] != cause || fields["missed"] != "" && block > 0 {
		t.Errorf("%q: %v", cause, fields)
	}

	// An engine caches whole blocks, so up to a block less may be cached than is shared.
	cachedOf := func(least, most int64) bool { return cached <= most && (block == 0 || cached > least-block) }
	if cause == "" {
		// At least the prompt before was cached, and at most its output too. The filter counts in blocks
		// of its own.
		prompt, output := before.Get("usage.input_tokens").Int(), before.Get("usage.output_tokens").Int()
		if found.Raw != `{"type":"cache_hit"}` ||
			!cachedOf(prompt/diagnosis.BlockTokens*diagnosis.BlockTokens, prompt+output) {
			t.Errorf("%s: %d tokens were cached of %d and an output of %d", found.Raw, cached, prompt, output)
		}
		return
	}

	// The filter counts whole blocks of its own. An engine with smaller ones may have more, but not one of the filter's.
	shared, _ := strconv.ParseInt(fields["shared_tokens"], 10, 64)
	most := shared
	if block > 0 {
		most += max(diagnosis.BlockTokens-block, 0)
	}
	if !cachedOf(shared, most) || found.Get("reason").Str != reason ||
		found.Get("comparison_reusable_tokens").Int() > shared {
		t.Errorf("%s: %d tokens were cached: %v %s", cause, cached, fields, found.Raw)
	}
}
