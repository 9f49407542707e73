package operations

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

const (
	historyTools = "<|start|>developer<|message|># Tools\n\n## functions\n\nnamespace functions {\n\ntype f = () => any;\n\n} // namespace functions<|end|>"
	// A call in the library's form, and in one of the model's.
	historyEarlier = "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}<|call|>" + historyOutput
	historyWritten = "<|start|>assistant<|channel|>commentary to=functions.f json<|message|>{}<|call|>" + historyOutput
	historyOutput  = "<|start|>functions.f to=assistant<|channel|>commentary<|message|>r<|end|>"
)

// historyPrompt is a prompt that is recorded: what the user asks of the simulated engine, and the calls
// of the turn.
type historyPrompt struct{ user, history string }

// TestHistoryScript runs the measurement for operators with GPUs: prompts of records are asked with
// their calls in both forms, and the calls of the answers are judged.
func TestHistoryScript(t *testing.T) {
	logs := stack.LogOf(t)
	sim := stack.StartSim(t, logs)
	service, _ := startRender(t, logs)

	r := runHistory(t, service.URL, sim, false, []historyPrompt{
		{"@@<channel>commentary to=functions.f <constrain>json<message>{}<call>@@", historyEarlier},
		{"@@<channel>analysis<message>a<end><start>assistant to=functions.f<channel>commentary json<message>{}<call>@@", historyWritten},
		{"@@<channel>commentary to=functions.nobody json<message>{}<call>@@", historyEarlier},
		{"@@<channel>commentary functions.f json<message>{}<call>@@", historyEarlier},
		{"@@<channel>commentary to=functions.f json<message>{<call>@@", historyEarlier},
		{"@@<channel>final<message>a<return>@@", historyEarlier},
		// A prompt that the engine refuses ends nothing.
		{"SIM status=400\n@@<channel>commentary functions.f json<message>{}<call>@@", historyEarlier},
		// Without calls after the answer there is nothing to compare.
		{"@@<channel>final<message>a<return>@@", historyEarlier + "<|start|>assistant<|channel|>final<|message|>a<|end|>"},
	})

	// The simulated engine's answers do not depend on the form.
	for i, row := range r.Rows {
		malformed, unknown := row.Malformed, row.Unknown
		if row.History != []string{"exact", "canonical"}[i] || row.Outputs != 6 || row.Calls != 5 || malformed.Per1000 != 400 || unknown.Per1000 != 200 ||
			malformed.From >= 400 || malformed.To <= 400 {
			t.Errorf("%+v\n%s", row, r.printed)
		}
	}
	if none := (historyShare{}); r.Difference.Malformed != none || r.Difference.Unknown != none {
		t.Errorf("differences %+v", r.Difference)
	}
	if r.Prompts != 6 || r.Failed != 1 || r.Error != "/v1/completions: 400" || r.Invented != 5 {
		t.Errorf("%+v", r)
	}
	for _, said := range []string{"400.0 (", "0.0 (0.0 to 0.0)", "1 prompts failed", "differ in the headers of calls alone", "5 calls of these prompts were recorded in the library's form"} {
		if !strings.Contains(r.printed, said) {
			t.Errorf("nothing says %q:\n%s", said, r.printed)
		}
	}
	checkHistoryPrompts(t, sim)
}

// TestHistoryScriptDifference: what counts is by how much the forms differ for the same prompts, which
// has narrower bounds than the shares where some prompts are hard in both forms.
func TestHistoryScriptDifference(t *testing.T) {
	logs := stack.LogOf(t)
	service, _ := startRender(t, logs)
	good := harmony.AppendEncodeSpecial(nil, "<|channel|>commentary to=functions.f json<|message|>{}<|call|>")
	bad := harmony.AppendEncodeSpecial(nil, "<|channel|>commentary to=functions.f json<|message|>{<|call|>")

	// A model that fails at hard prompts in both forms, and at every tenth easy one where it sees <|constrain|>.
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request struct{ Prompt []harmony.Token }
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			t.Error(err)
		}
		text, err := harmony.AppendDecode(nil, request.Prompt)
		if err != nil {
			t.Error(err)
		}
		ids, prompt := good, string(text)
		if strings.Contains(prompt, "hard") || strings.Contains(prompt, "0<|end|>") && strings.Contains(prompt, "<|constrain|>") {
			ids = bad
		}
		answer := map[string]any{"choices": []any{map[string]any{"token_ids": ids, "finish_reason": "stop"}}}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(engine.Close)

	const pairs = 50
	prompts := make([]historyPrompt, 0, 2*pairs)
	for i := range pairs {
		prompts = append(prompts, historyPrompt{fmt.Sprint("hard ", i), historyEarlier}, historyPrompt{fmt.Sprint("easy ", i), historyEarlier})
	}
	r := runHistory(t, service.URL, engine.URL, false, prompts)
	exact, d := r.Rows[0].Malformed, r.Difference.Malformed
	if exact.Per1000 != 550 || d.Per1000 != 50 || d.From < 0 || d.From >= 50 || d.To <= 50 || d.To-d.From >= exact.To-exact.From {
		t.Errorf("shares %+v, difference %+v\n%s", r.Rows, d, r.printed)
	}
}

// TestHistoryScriptNothing: where nothing can be measured the file says why, and the command fails.
func TestHistoryScriptNothing(t *testing.T) {
	logs := stack.LogOf(t)
	sim := stack.StartSim(t, logs)
	service, _ := startRender(t, logs)
	r := runHistory(t, service.URL, sim, true, []historyPrompt{{"SIM status=400", historyEarlier}, {"SIM status=400\nSAY a", historyEarlier}})
	if r.Prompts != 0 || r.Failed != 2 || r.Error == "" || !strings.Contains(r.printed, "Nothing could be measured.") {
		t.Errorf("%+v", r)
	}
}

type historyShare struct {
	Per1000  float64 `json:"per_1000"`
	From, To float64
}

type historyResult struct {
	Rows []struct {
		History            string
		Outputs, Calls     int
		Malformed, Unknown historyShare
	}
	Difference                struct{ Malformed, Unknown historyShare }
	Prompts, Failed, Invented int
	Error                     string
	printed                   string
}

// runHistory runs the script over records of prompts, and returns what it writes and prints.
func runHistory(t *testing.T, render, engine string, wantError bool, prompts []historyPrompt) (r historyResult) {
	t.Helper()
	folder := t.TempDir()
	for i, p := range prompts {
		text := historyTools + "<|start|>user<|message|>" + p.user + "<|end|>" + p.history + "<|start|>assistant"
		prompt := harmony.AppendEncodeSpecial(nil, text)
		record := map[string]any{"format": 1, "events": []any{map[string]any{"kind": "call", "call": map[string]any{"prompt": prompt, "count": len(prompt)}}}}
		file, err := json.Marshal(record)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, strconv.Itoa(i)), file, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	result := filepath.Join(t.TempDir(), "history.json")
	cmd := exec.CommandContext(t.Context(), "python3", "../tools/history/history.py", "--engine", engine, "--render", render,
		"--model", stack.VLLMModel, "--samples", "1", "--json", result, "--concurrency", "2", folder)
	out, err := cmd.CombinedOutput()
	if (err != nil) != wantError {
		t.Fatalf("error %v, want one: %t\n%s", err, wantError, out)
	}
	text, err := os.ReadFile(result)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := json.Unmarshal(text, &r); err != nil || len(r.Rows) != 2 {
		t.Fatalf("%v\n%s", err, text)
	}
	r.printed = string(out)
	return r
}

// checkHistoryPrompts requires that the engine got each prompt with its calls in both forms.
func checkHistoryPrompts(t *testing.T, sim string) {
	t.Helper()
	answer, err := http.Get(sim + "/sim/requests") //nolint:noctx // a test's own server
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	var requests []struct{ Prompt string }
	if err := json.Unmarshal(text, &requests); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}

	forms := map[string]int{}
	want := map[string]int{
		// One of them is refused, and is not asked for again.
		"<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>": 6,
		"<|start|>assistant<|channel|>commentary to=functions.f json<|message|>{}<|call|>":              1,
		"<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}<|call|>":              6,
	}
	for _, request := range requests {
		for form := range want {
			if strings.Contains(request.Prompt, form) {
				forms[form]++
			}
		}
	}
	if len(requests) != 13 || !maps.Equal(forms, want) {
		t.Errorf("%d requests: %v", len(requests), forms)
	}
}
