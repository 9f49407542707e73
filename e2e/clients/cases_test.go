//go:build clients

package clients

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// shortModel is a model whose context is short.
const (
	shortModel  = "gpt-oss-short"
	shortLength = 2000
)

// The reply of the case "stream" has keep-alives in front of its first event and
// between the others: after header_hold nothing comes for a while, and each token takes
// longer than matrixKeepAlive.
const (
	matrixKeepAlive = 25 * time.Millisecond
	matrixSilence   = "\nSIM first=2500ms delay=60ms"
)

// matrixCases are what a client gets in the variable MATRIX. Each value has words of
// its own, so that a script cannot know them and the engine's log shows which request
// belongs to which case.
type matrixCases struct {
	Model      string               `json:"model"`
	Text       matrixCase           `json:"text"`
	Stream     matrixCase           `json:"stream"`
	Tools      matrixTools          `json:"tools"`
	Structured matrixStructured     `json:"structured"`
	Reasoning  matrixCase           `json:"reasoning"`
	Usage      matrixCase           `json:"usage"`
	Errors     map[string]faultCase `json:"errors"`
	State      matrixState          `json:"state"`
}

// matrixCase is a prompt with what the model writes for it.
type matrixCase struct {
	Prompt    string `json:"prompt"`
	Text      string `json:"text"`
	Reasoning string `json:"reasoning,omitempty"`
}

// matrixTools is a prompt for which the model calls get_weather(city) and then
// repeats the result in its answer.
type matrixTools struct {
	Prompt string `json:"prompt"`
	City   string `json:"city"`
	Result string `json:"result"`
	Text   string `json:"text"`
}

// matrixStructured is a prompt for which the model writes an object with the members
// city and celsius. The description is for the schema's celsius.
type matrixStructured struct {
	Prompt      string        `json:"prompt"`
	Value       weatherReport `json:"value"`
	Description string        `json:"description"`
}

type weatherReport struct {
	City    string `json:"city"`
	Celsius int    `json:"celsius"`
}

// faultCase is a request that fails.
type faultCase struct {
	Model  string `json:"model"`
	Prompt string `json:"prompt"`
	Stream bool   `json:"stream"`
}

// matrixState is a conversation of two turns. The second answer is Text if the model
// gets the first turn.
type matrixState struct {
	First  string `json:"first"`
	Second string `json:"second"`
	Text   string `json:"text"`
}

// matrixRow is a client with one API.
type matrixRow struct {
	client matrixClient
	api    string
	// cases are what the script is told.
	cases matrixCases
	// result is what the tables say of the row.
	result *clientRow
}

// word returns a word that only this row and this use have.
func (row *matrixRow) word(use string) string {
	sum := sha256.Sum256([]byte(row.client.name + "/" + row.api + "/" + use))
	return "mark" + hex.EncodeToString(sum[:4])
}

// title is the name of the row.
func (row *matrixRow) title() string { return row.client.name + ", " + apiNames[row.api] }

func newMatrixRow(t *testing.T, c matrixClient, api string) *matrixRow {
	t.Helper()
	result, err := newClientRow(c, api)
	if err != nil {
		t.Fatal(err)
	}
	result.Ran = time.Now().UTC().Format(time.DateOnly)
	row := &matrixRow{client: c, api: api, result: result}

	said := func(use string) matrixCase {
		text := fmt.Sprintf("Grüße aus %s, 世界 👋🏽: \"%s\" & <b>.", row.word(use), row.word(use+" again"))
		return matrixCase{Prompt: "NOTHINK\nSAY " + text, Text: text}
	}

	silent := said("stream")
	silent.Prompt += matrixSilence

	thought := fmt.Sprintf("The word %s comes first.", row.word("thought"))
	city, degrees := "Bern "+row.word("city"), int(row.word("celsius")[4])
	fetched := row.word("result")
	report := weatherReport{City: city, Celsius: degrees}

	asJSON, err := json.Marshal(report)
	if err != nil {
		panic(err) // the type has only a string and a number
	}

	row.cases = matrixCases{
		Model:  stack.VLLMModel,
		Text:   said("text"),
		Stream: silent,
		Tools: matrixTools{
			Prompt: fmt.Sprintf("THINK Tools know %s.\nCALL get_weather %s", row.word("tools"), mustJSON(map[string]string{"city": city})),
			City:   city, Result: fetched, Text: "RESULT: " + fetched,
		},
		Structured: matrixStructured{Prompt: "JSON " + string(asJSON), Value: report, Description: "Degrees of " + row.word("description")},
		Reasoning:  matrixCase{Prompt: "THINK " + thought + "\nSAY Yes.", Reasoning: thought, Text: "Yes."},
		Usage:      matrixCase{Prompt: "THINK Count " + row.word("usage") + ".\nSAY Counted.", Text: "Counted."},
		State:      matrixState{First: "REMEMBER " + row.word("state") + "\nSAY Noted.", Second: "RECALL", Text: "RECALL:" + row.word("state")},
		Errors: map[string]faultCase{
			"bad_request":    {Model: stack.VLLMModel, Prompt: "SIM status=400"},
			"not_found":      {Model: "gpt-oss-none", Prompt: "Hello"},
			"rate_limit":     {Model: stack.VLLMModel, Prompt: "SIM status=429 retry-after=1"},
			"unavailable":    {Model: stack.VLLMModel, Prompt: "SIM status=503"},
			"context_length": {Model: shortModel, Prompt: strings.Repeat("word ", 2*shortLength)},
			"broken_stream":  {Model: stack.VLLMModel, Prompt: "NOTHINK\nWORDS 60\nSIM delay=5ms fault=error@30", Stream: true},
		},
	}
	return row
}

func mustJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // the callers' values have only strings
	}
	return string(text)
}

// judge compares what a client saw with what the model wrote. The error says what
// differs.
func (row *matrixRow) judge(capability string, saw map[string]gjson.Result, requests []stack.EngineRequest) error {
	if capability == "history" {
		return row.judgeHistory(requests)
	}

	line, ok := saw[capability]
	switch {
	case !ok:
		return errNothingSeen
	case line.Get("error").Exists():
		return errors.New(line.Get("error").Str)
	}

	got := line.Get("saw")
	switch capability {
	case "text":
		return differs("text", got.Get("text").Str, row.cases.Text.Text)
	case "stream":
		if got.Get("pieces").Int() < 2 {
			return fmt.Errorf("%d pieces", got.Get("pieces").Int())
		}
		return differs("text", got.Get("text").Str, row.cases.Stream.Text)
	case "tools":
		return row.judgeTools(got, requests)
	case "structured":
		return row.judgeStructured(got, requests)
	case "reasoning":
		return errors.Join(differs("reasoning", got.Get("reasoning").Str, row.cases.Reasoning.Reasoning), differs("text", got.Get("text").Str, row.cases.Reasoning.Text))
	case "usage":
		return row.judgeUsage(got, requests)
	case "errors":
		return row.judgeErrors(got)
	case "state":
		return row.judgeState(got)
	}
	return fmt.Errorf("no capability %s", capability)
}

func differs(what, got, want string) error {
	if got != want {
		return fmt.Errorf("%s %q, want %q", what, got, want)
	}
	return nil
}

// of returns the requests whose prompts have a word of the row.
func (row *matrixRow) of(requests []stack.EngineRequest, use string) []stack.EngineRequest {
	return slices.DeleteFunc(slices.Clone(requests), func(r stack.EngineRequest) bool { return !strings.Contains(r.Prompt, row.word(use)) })
}

// judgeTools: the tool got its argument, the model its result, the client the answer.
func (row *matrixRow) judgeTools(got gjson.Result, requests []stack.EngineRequest) error {
	turns := row.of(requests, "tools")
	if len(turns) < 2 {
		return fmt.Errorf("the engine has %d requests", len(turns))
	}
	if last := turns[len(turns)-1]; !strings.Contains(last.Prompt, row.cases.Tools.Result) {
		return fmt.Errorf("the model does not get the tool's result: %s", end(last.Prompt))
	}
	text := got.Get("text").Str
	if row.client.Agent && strings.HasPrefix(text, "RESULT: ") && strings.Contains(text, row.cases.Tools.Result) {
		text = row.cases.Tools.Text // agents write more into a result than the command's output
	}
	return errors.Join(differs("city", got.Get("city").Str, row.cases.Tools.City), differs("text", text, row.cases.Tools.Text))
}

// judgeHistory: in the requests of "tools" each prompt begins with the previous prompt and its
// output, as the model wrote it. The result stands in a message of the tool.
func (row *matrixRow) judgeHistory(requests []stack.EngineRequest) error {
	turns := row.of(requests, "tools")
	if len(turns) < 2 {
		return errNothingSeen
	}
	for i, r := range turns[:len(turns)-1] {
		if len(r.Output) == 0 {
			return fmt.Errorf("request %d has no output", i+1)
		}
		before, next := r.Prompt+r.Output[0], turns[i+1].Prompt
		if !strings.HasPrefix(next, before) {
			at := sharedPrefix(before, next)
			return fmt.Errorf("prompt %d does not continue prompt and output %d; from byte %d on it has\n%s\nwant\n%s", i+2, i+1, at, next[at:], before[at:])
		}
	}
	return nil
}

// judgeStructured: the client has the object, and the engine's request the schema.
func (row *matrixRow) judgeStructured(got gjson.Result, requests []stack.EngineRequest) error {
	sent := slices.ContainsFunc(requests, func(r stack.EngineRequest) bool {
		return strings.Contains(r.Prompt+string(r.Params), row.cases.Structured.Description)
	})
	if !sent {
		return errors.New("the engine does not get the schema's description")
	}
	value := got.Get("value")
	return errors.Join(differs("city", value.Get("city").Str, row.cases.Structured.Value.City), differs("celsius", value.Get("celsius").Raw, strconv.Itoa(row.cases.Structured.Value.Celsius)))
}

// judgeUsage: the client's counts are the engine's.
func (row *matrixRow) judgeUsage(got gjson.Result, requests []stack.EngineRequest) error {
	made := row.of(requests, "usage")
	if len(made) == 0 || len(made[len(made)-1].OutputIDs) == 0 {
		return errors.New("the engine has no request with an output")
	}
	last := made[len(made)-1]
	return errors.Join(
		differs("input tokens", got.Get("input").Raw, strconv.Itoa(len(last.PromptIDs))),
		differs("output tokens", got.Get("output").Raw, strconv.Itoa(len(last.OutputIDs[0]))),
	)
}

// tooLong matches the texts by which clients know that a prompt is too long: OpenAI's
// and Anthropic's.
var tooLong = regexp.MustCompile(`maximum context length|prompt is too long: \d+ tokens > \d+ maximum`)

// judgeErrors: each fault is an error of the client's type.
func (row *matrixRow) judgeErrors(got gjson.Result) (err error) {
	for _, fault := range faults {
		want, reason := lookup(row.client.Errors, row.api, fault), lookup(row.client.Gaps, row.api, "errors."+fault)
		if want == "" && reason == "" {
			return fmt.Errorf("%s: the manifest needs its type or the reason of a gap", fault)
		}
		e := got.Get(fault)
		if wrong := differs(fault, e.Get("type").Str, want); wrong != nil {
			err = errors.Join(err, fmt.Errorf("%w: %.500q", wrong, e.Get("message").Str))
		}
		// A type with a reason is that of an error that has lost its text.
		counts := fault == "context_length" && reason == "" && !row.client.Agent
		if message := e.Get("message").Str; counts && !tooLong.MatchString(message) {
			err = errors.Join(err, fmt.Errorf("%s: message %.300q", fault, message))
		}
	}
	return err
}

// judgeState: the model gets the first turn in each way that the client has.
func (row *matrixRow) judgeState(got gjson.Result) (err error) {
	all := got.Map()
	ways := make([]string, 0, len(all))
	for way, text := range all {
		ways = append(ways, way)
		err = errors.Join(err, differs(way, text.Str, row.cases.State.Text))
	}
	if len(ways) == 0 {
		return errNothingSeen
	}
	slices.Sort(ways)
	row.result.State = strings.Join(ways, ", ")
	return err
}
