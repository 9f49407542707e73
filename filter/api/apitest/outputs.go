package apitest

import (
	_ "embed"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// WeatherTool is the function that the outputs of the tests call: the JSON members
// name, description and parameters.
const WeatherTool = `"name":"get_weather","description":"Weather of a city.","parameters":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}`

// outputTools are the functions that the recorded outputs call, by name.
var outputTools = map[string]string{
	"get_weather":          WeatherTool,
	"python":               declared("python", `{"code":{"type":"string"}},"required":["code"]`),
	"run_terminal_command": declared("run_terminal_command", `{"command":{"type":"string"}},"required":["command"]`),
	"list_dir":             declared("list_dir", `{"path":{"type":"string"}}`),
	"read":                 declared("read", `{"path":{"type":"string"}},"required":["path"]`),
	"grep":                 declared("grep", `{"path":{"type":"string"},"pattern":{"type":"string"}},"required":["pattern"]`),
	"search":               declared("search", `{"query":{"type":"string"},"topn":{"type":"integer"}},"required":["query"]`),
	"edit":                 declared("edit", `{"input":{"type":"string"}},"required":["input"]`),
	"write_file":           declared("write_file", `{"path":{"type":"string"},"content":{"type":"string"},"mode":{"type":["string","null"]}}`),
	"web-browsing":         declared("web-browsing", `{"query":{"type":"string"}},"required":["query"]`),
}

// declared returns the members of a function. properties are those of its parameters, and what is
// required.
func declared(name, properties string) string {
	return `"name":"` + name + `","description":"","parameters":{"type":"object","properties":` + properties + `}`
}

// recorded are outputs that models and engines are known to write, each with the right value: the
// form is that of the report, the words are ours. A value changes here alone, on purpose.
//
//go:embed testdata/outputs.jsonl
var recorded string

// texts are texts that are no arguments of a tool with the one parameter code, however they look.
//
//go:embed testdata/texts.jsonl
var texts string

// output is a row of the recorded outputs.
type output struct {
	Name string
	// From is who writes such an output, and the public thread that reports it.
	From string
	// Tools are the names of the tools of the request; nil: get_weather.
	Tools *[]string
	// Output is the model's, with its control tokens as text.
	Output string
	// Want is the reply as [API.Brief] returns it, and Own that of an API that writes another.
	Want string
	Own  map[string]string
}

// Outputs shows the replies to outputs that models and engines are known to write, right and wrong
// ones, however they are cut into chunks, and that their streams are the same. name is the API's
// in the rows, and members makes those of a request with functions, which it gets as
// [WeatherTool] is.
func (a *API) Outputs(t *testing.T, name string, members func(functions []string) string) {
	rows := jsonLines[output](t, recorded)
	names := map[string]bool{}

	for _, row := range rows {
		if names[row.Name] || row.From == "" || row.Want == "" {
			t.Errorf("the row %q is there twice, or has no source or no reply", row.Name)
		}
		names[row.Name] = true

		called := []string{"get_weather"}
		if row.Tools != nil {
			called = *row.Tools
		}
		functions := make([]string, len(called))
		for i, tool := range called {
			if functions[i] = outputTools[tool]; functions[i] == "" {
				t.Fatalf("%s: no tool %q", row.Name, tool)
			}
		}
		want := row.Want
		if own, ok := row.Own[name]; ok {
			want = own
		}

		t.Run(row.Name, func(t *testing.T) {
			t.Parallel()
			a.replies(t, a.Ask(members(functions)), row.Output, want)
		})
	}
}

// RawTexts shows that a text that a tool with one parameter is called with, where the header does
// not say that it is JSON, is the parameter's in any API, whatever it looks like.
func (a *API) RawTexts(t *testing.T, members func(functions []string) string) {
	body := a.Ask(members([]string{outputTools["python"]}))
	headers := []string{
		"<|channel|>analysis to=python code<|message|>",
		"<|channel|>commentary to=functions.python <|constrain|>code<|message|>",
		" to=functions.python<|channel|>commentary<|message|>",
	}
	for i, row := range jsonLines[struct{ Name, Text string }](t, texts) {
		t.Run(row.Name, func(t *testing.T) {
			t.Parallel()
			// The text is no structure of the output, whatever it spells.
			tokens := append(Tokens(headers[i%len(headers)]), harmony.AppendEncode(nil, row.Text)...)
			o := Output{Tokens: append(tokens, Tokens("<|call|>")...), Finish: engine.FinishStop}
			for _, chunks := range o.cuts() {
				request, streamed := a.MustDecode(t, body), a.MustDecode(t, With(t, body, a.Streamed...))
				whole := Play(t, request, a.Mode, chunks)
				a.compareStream(t, request, whole, streamed, Play(t, streamed, a.Mode, chunks))

				got := a.Brief(t, whole)
				arguments := strings.TrimSuffix(strings.TrimPrefix(got, "python("), ") tool_calls")
				var value map[string]string
				if err := json.Unmarshal([]byte(arguments), &value); err != nil || len(value) != 1 || value["code"] != row.Text {
					t.Errorf("got %s, want the code %q", got, row.Text)
				}
			}
		})
	}
}

// replies checks the replies to an output that the model has ended itself.
func (a *API) replies(t *testing.T, body, output, want string) {
	t.Helper()
	if got := a.reply(t, body, Said(output)); got != want {
		t.Errorf("\ngot  %s\nwant %s", got, want)
	}
}

// reply returns the reply to an output in brief, and shows that it is the same in chunks of several
// sizes, and streamed.
func (a *API) reply(t *testing.T, body string, o Output) (brief string) {
	t.Helper()
	for i, chunks := range o.cuts() {
		request, streamed := a.MustDecode(t, body), a.MustDecode(t, With(t, body, a.Streamed...))

		whole := Play(t, request, a.Mode, chunks)
		got := a.Brief(t, whole)
		if i == 0 {
			brief = got
		}
		if got != brief {
			t.Errorf("in %d chunks\ngot  %s\nwant %s", len(chunks), got, brief)
		}

		a.compareStream(t, request, whole, streamed, Play(t, streamed, a.Mode, chunks))
		if strings.Contains(got, "<|") {
			t.Error("a special token is shown")
		}
	}
	return brief
}

// cuts are ways to cut an output into chunks.
func (o Output) cuts() [][]engine.Chunk {
	rng := rand.New(rand.NewPCG(7, uint64(len(o.Tokens))))
	return [][]engine.Chunk{
		o.Chunks(Size(1 << 20)), o.Chunks(Size(1)), o.Chunks(Size(3)), o.Chunks(func() int { return rng.IntN(6) }),
	}
}

// jsonLines reads rows.
func jsonLines[T any](t testing.TB, text string) (rows []T) {
	t.Helper()
	for line := range strings.Lines(text) {
		var row T
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		rows = append(rows, row)
	}
	return rows
}
