package inspect

import (
	"strings"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// marks are the tokens of a view at which something was repaired.
func marks(v *View) string {
	var all []string
	for i := range v.Calls {
		for _, m := range v.Calls[i].Output {
			for _, p := range m.Pieces {
				if len(p.Repairs) > 0 {
					all = append(all, p.Text+" "+strings.Join(p.Repairs, "+"))
				}
			}
		}
	}
	return strings.Join(all, "; ")
}

// A repair is marked at the token that showed that one was needed.
func TestRepairs(t *testing.T) {
	t.Parallel()
	const begun = "<|start|>user<|message|>Hi<|end|><|start|>assistant"
	call := func(text string) string { return "<|channel|>commentary to=functions.f<|message|>" + text + "<|call|>" }
	for _, c := range []struct {
		name, outcome string
		// outputs are those of calls, each behind its prompt.
		outputs []string
		counted map[string]int
		want    string
	}{
		{"none", "ok", []string{begun, "<|channel|>final<|message|>Hi<|return|>"}, nil, ""},
		{
			"of the format", "ok",
			[]string{begun, "<|channel|>analysis<|message|>hm<|end|><|message|>no header<|return|>"},
			map[string]int{"missing_channel": 1, "missing_start": 1},
			"<|message|> missing_start+missing_channel",
		},
		{"of one kind, as often as it is counted", "ok", []string{begun, "<|channel|>final<|message|>a<|end|><|end|><|end|>"}, map[string]int{"stray_stop": 1}, "<|end|> stray_stop"},
		{"at the end", "ok", []string{begun, "<|channel|>final<|message|>a<|end|><|start|>assistant<|channel|>fin"}, map[string]int{"cut_header": 1}, "fin cut_header"},
		{"of a reply that was not repaired", "failed", []string{begun, "<|channel|>final<|message|>a<|end|><|end|>"}, map[string]int{"failed": 1}, ""},
		{"of an exchange that goes on", "", []string{begun, "<|channel|>final<|message|>a<|end|><|end|>"}, nil, "<|end|> stray_stop"},
		{"arguments", "ok", []string{begun, call(`{"a": [1,], "b": True}`)}, map[string]int{"trailing_comma": 1, "python_word": 1}, "<|call|> trailing_comma+python_word"},
		{"arguments that are passed on", "ok", []string{begun, call(`{"a": [1,]}`)}, nil, ""},
		{"no arguments", "ok", []string{begun, call("")}, map[string]int{"empty_arguments": 1}, "<|call|> empty_arguments"},
		{"a bare text", "ok", []string{begun, call("ls")}, map[string]int{"raw_text": 1}, "<|call|> raw_text"},
		{"arguments that are none", "ok", []string{begun, call("{a}")}, map[string]int{"invalid_arguments": 1}, "<|call|> invalid_arguments"},
		{"code", "ok", []string{begun, "<|channel|>analysis to=python code<|message|>x<|call|>"}, map[string]int{"invalid_arguments": 1}, ""},
		{"names of all calls", "ok", []string{begun, call("{}")}, map[string]int{"unknown_tool": 1}, "<|message|> unknown_tool"},
		{
			"names of one of two calls", "ok",
			[]string{begun, call("{}"), begun, call("{}")},
			map[string]int{"unknown_tool": 1},
			"",
		},
		// The header and half of the arguments are of the call before.
		{
			"a call that continues", "ok",
			[]string{begun, `<|channel|>commentary to=functions.f<|message|>{"a":`, begun + `<|channel|>commentary to=functions.f<|message|>{"a":`, ` True}<|call|>`},
			map[string]int{"python_word": 1},
			"<|call|> python_word",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			tape := record.NewTape(record.Record{Started: started}, 1<<20, func() time.Time { return started })
			for i := 0; i < len(c.outputs); i += 2 {
				tape.Call(&engine.Request{ID: engine.CallID{Request: "r"}, Prompt: harmony.AppendEncodeSpecial(nil, c.outputs[i]), N: 1}, 0)
				tape.Chunks([]engine.Chunk{{Tokens: harmony.AppendEncodeSpecial(nil, c.outputs[i+1])}})
			}
			r := tape.Ended(record.Result{Outcome: c.outcome, Repairs: c.counted})
			if got := marks(Of(&r)); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// What a call continues has its header, and its channel, from the prompt.
func TestContinuedOutput(t *testing.T) {
	t.Parallel()
	const header = "<|start|>assistant<|channel|>final<|message|>"
	for _, c := range []struct{ name, begun, output, want string }{
		{"in a text", header + "It is", " sunny.<|return|>", "0 assistant|final||| sunny.\n"},
		{"in a header", "<|start|>assistant<|channel|>", "final<|message|>Sun.<|return|>", "0 assistant|final|||Sun.\n"},
		{"behind a message", header + "It is.<|end|>", header + "Sun.<|return|>", "0 assistant|final|||Sun.\n"},
		{"from nothing", "", "<|channel|>final<|message|>Sun.", "0 assistant|final|||Sun.\n"},
	} {
		begun := harmony.AppendEncodeSpecial(nil, c.begun)
		if got := brief(outputMessages(begun, harmony.AppendEncodeSpecial(nil, c.output))); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// Jobs that run side by side are shown in the order in which they have begun.
func TestStepsAreSorted(t *testing.T) {
	t.Parallel()
	r := &record.Record{Started: started, Events: []record.Event{
		{Kind: record.KindStore, At: 50, Store: &record.Access{Operation: "get_chain", Micros: 10}},
		{Kind: record.KindCall, At: 60, Call: &record.Call{ID: "c"}},
		{Kind: record.KindEnd, At: 70},
		{Kind: record.KindTool, At: 90, Tool: &record.ToolRun{Server: "s", Tool: "short", Micros: 5}},
		{Kind: record.KindTool, At: 95, Tool: &record.ToolRun{Server: "s", Tool: "long", Micros: 20}},
	}}
	steps := Of(r).Steps
	names := make([]string, 0, len(steps))
	for _, s := range steps {
		names = append(names, strings.TrimSpace(s.Name+" "+s.Of))
	}
	if got, want := strings.Join(names, ", "), "decode, store get_chain, queue c, tool s.long, tool s.short"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
