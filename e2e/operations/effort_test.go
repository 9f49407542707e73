package operations

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// TestEffortScript runs the measurement for operators with GPUs: each question is asked with
// each effort at the head and in a late message, and the reasoning is counted in tokens.
func TestEffortScript(t *testing.T) {
	logs := stack.LogOf(t)
	sim := stack.StartSim(t, logs)
	service, _ := startRender(t, logs)

	folder := t.TempDir()
	questions, result := filepath.Join(folder, "questions.json"), filepath.Join(folder, "effort.json")
	if err := os.WriteFile(questions, []byte(`["THINK one two three four\nSAY x","NOTHINK\nSAY x"]`), 0o600); err != nil {
		t.Fatal(err)
	}

	// In the second run the engine returns no ids, and the text is read.
	for _, ids := range []string{"True", "False"} {
		script, err := os.ReadFile("../tools/effort/effort.py")
		if err != nil {
			t.Fatal(err)
		}
		changed := filepath.Join(folder, "effort.py")
		text := strings.Replace(string(script), `"return_token_ids": True`, `"return_token_ids": `+ids, 1)
		if err := os.WriteFile(changed, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}

		cmd := exec.CommandContext(t.Context(), "python3", changed, "--engine", sim, "--render", service.URL, "--model", stack.VLLMModel,
			"--questions", questions, "--samples", "2", "--json", result, "--concurrency", "2")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		checkEfforts(t, result, string(out))
	}
}

// checkEfforts requires a row for each prompt, with the reasoning of the two questions.
func checkEfforts(t *testing.T, result, table string) {
	t.Helper()
	text, err := os.ReadFile(result)
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		Format int
		Rows   []struct {
			Head, Form, Late    string
			Runs, Most, Unended int
			Mean                float64
			Unanswered          int
		}
		Runs []struct {
			Question     int
			Reasoning    int `json:"reasoning_tokens"`
			PromptTokens int `json:"prompt_tokens"`
			Form         string
		}
	}
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}

	if r.Format != 1 || len(r.Rows) != 3*(1+2*3) || len(r.Runs) != 21*4 {
		t.Fatalf("%d rows, %d runs:\n%s", len(r.Rows), len(r.Runs), table)
	}
	for _, row := range r.Rows {
		if row.Runs != 4 || row.Most != 4 || row.Mean != 2 || row.Unended+row.Unanswered != 0 {
			t.Errorf("%+v\n%s", row, table)
		}
	}

	// The late message is in the prompt.
	plain := map[int]int{}
	for _, run := range r.Runs {
		if run.Form == "" {
			plain[run.Question] = run.PromptTokens
		}
	}
	for _, run := range r.Runs {
		if longer := run.PromptTokens - plain[run.Question]; (run.Form != "") != (longer > 4) {
			t.Errorf("%+v has %d more tokens", run, longer)
		}
	}
	if lines := strings.Count(table, "\n"); lines < 22 || !strings.Contains(table, "system: low") {
		t.Errorf("the table:\n%s", table)
	}
}
