package operations

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// TestHistoryScript runs the measurement for operators with GPUs: prompts of records are asked with
// their calls in both forms, and the calls of the answers are judged.
func TestHistoryScript(t *testing.T) {
	logs := stack.LogOf(t)
	sim := stack.StartSim(t, logs)
	service, _ := startRender(t, logs)

	const tools = "<|start|>developer<|message|># Tools\n\n## functions\n\nnamespace functions {\n\ntype f = () => any;\n\n} // namespace functions<|end|>"
	const earlier = "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}<|call|>" +
		"<|start|>functions.f to=assistant<|channel|>commentary<|message|>r<|end|>"
	const written = "<|start|>assistant<|channel|>commentary to=functions.f json<|message|>{}<|call|>" +
		"<|start|>functions.f to=assistant<|channel|>commentary<|message|>r<|end|>"

	folder := t.TempDir()
	for i, c := range []struct{ script, history string }{
		{"<channel>commentary to=functions.f <constrain>json<message>{}<call>", earlier},
		{"<channel>analysis<message>a<end><start>assistant to=functions.f<channel>commentary json<message>{}<call>", written},
		{"<channel>commentary to=functions.nobody json<message>{}<call>", earlier},
		{"<channel>commentary functions.f json<message>{}<call>", earlier},
		{"<channel>commentary to=functions.f json<message>{<call>", earlier},
		{"<channel>final<message>a<return>", earlier},
		// Without calls after the answer there is nothing to compare.
		{"<channel>final<message>a<return>", earlier + "<|start|>assistant<|channel|>final<|message|>a<|end|>"},
	} {
		text := tools + "<|start|>user<|message|>@@" + c.script + "@@<|end|>" + c.history + "<|start|>assistant"
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
	cmd := exec.CommandContext(t.Context(), "python3", "../tools/history/history.py", "--engine", sim, "--render", service.URL,
		"--model", stack.VLLMModel, "--samples", "1", "--json", result, "--concurrency", "2", folder)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	checkHistories(t, result, string(out))
	checkHistoryPrompts(t, sim)
}

// checkHistories requires that both forms have the same calls, since the engine's answers do not depend on them.
func checkHistories(t *testing.T, result, table string) {
	t.Helper()
	text, err := os.ReadFile(result)
	if err != nil {
		t.Fatal(err)
	}
	type share struct {
		Per1000 float64 `json:"per_1000"`
		From    float64
		To      float64
	}
	var r struct {
		Rows []struct {
			History            string
			Outputs, Calls     int
			Malformed, Unknown share
		}
	}
	if err := json.Unmarshal(text, &r); err != nil || len(r.Rows) != 2 {
		t.Fatalf("%v\n%s", err, text)
	}

	for i, row := range r.Rows {
		malformed, unknown := row.Malformed, row.Unknown
		if row.History != []string{"exact", "canonical"}[i] || row.Outputs != 6 || row.Calls != 5 || malformed.Per1000 != 400 || unknown.Per1000 != 200 ||
			malformed.From >= 400 || malformed.To <= 400 {
			t.Errorf("%+v\n%s", row, table)
		}
	}
	if !strings.Contains(table, "400.0 (") {
		t.Errorf("the table:\n%s", table)
	}
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
	for _, request := range requests {
		for _, form := range []string{
			"<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>",
			"<|start|>assistant<|channel|>commentary to=functions.f json<|message|>{}<|call|>",
			"<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}<|call|>",
		} {
			if strings.Contains(request.Prompt, form) {
				forms[form]++
			}
		}
	}
	counts := fmt.Sprint(forms)
	if len(requests) != 12 || len(forms) != 3 || !strings.Contains(counts, ":5") || !strings.Contains(counts, ":1") || !strings.Contains(counts, ":6") {
		t.Errorf("%d requests: %s", len(requests), counts)
	}
}
