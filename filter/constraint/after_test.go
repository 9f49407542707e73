package constraint

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/work"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

func tokensOf(text string) []harmony.Token { return harmony.AppendEncodeSpecial(nil, text) }

func spelledOut(t *testing.T, tokens []harmony.Token) string {
	t.Helper()
	text, err := harmony.AppendDecode(nil, tokens)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// After every token of a reply, what is left of the format accepts the rest of the reply,
// and nothing that the format does not accept there. It can be stated up to the first
// token of a value or an expression, and nowhere after that.
func TestAfter(t *testing.T) {
	t.Parallel()
	const thought = "<|channel|>analysis<|message|>Let me see.<|end|><|start|>assistant"

	for name, c := range map[string]struct {
		// Free: what precedes the constrained part; "": all of the text is free.
		spec, text, free string
	}{
		"call":            {"strict", thought + ` to=functions.get_weather<|channel|>commentary json<|message|>{"city":"Paris"}`, thought + " to=functions.get_weather<|channel|>commentary json<|message|>"},
		"other header":    {"strict", thought + `<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city":"Paris"}`, thought + "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"},
		"preamble":        {"strict", thought + `<|channel|>commentary<|message|>One moment.<|end|><|start|>assistant` + thought[:0] + `<|channel|>final<|message|>Hello there.`, ""},
		"free answer":     {"strict", "<|channel|>final<|message|>Hello there, how are you?", ""},
		"required":        {"required", thought + thought + " to=functions.search<|channel|>commentary<|message|>{}", thought + thought + " to=functions.search<|channel|>commentary<|message|>"},
		"json":            {"json", thought + `<|channel|>final<|message|>{"ok":true}`, thought + "<|channel|>final<|message|>"},
		"regex":           {"regex", thought + `<|channel|>final<|message|>ab1`, thought + "<|channel|>final<|message|>"},
		"names":           {"names", thought + `<|channel|>commentary<|message|>One moment.<|end|><|start|>assistant<|channel|>commentary to=functions.search<|message|>{"a":1`, ""},
		"choice of texts": {"choice-and-tools", thought + "<|channel|>final<|message|>yes", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := specs[c.spec]
			f := p.Format(newAccount())
			all := tokensOf(c.text)
			stated := len(all) - 1
			if c.free != "" {
				stated = len(tokensOf(c.free))
			}

			for n := range all {
				rest, ok := After(newAccount(), f, all[:n])
				if ok != (n <= stated) {
					t.Fatalf("behind %q: stated %t", spelledOut(t, all[:n]), ok)
				}

				if !ok {
					continue
				}

				if end := spelledOut(t, all[n:]); !accepts(rest, end) {
					t.Errorf("behind %q: %q is not accepted", spelledOut(t, all[:n]), end)
				}

				for _, wrong := range []string{"<|return|>", "<|channel|>analysis<|message|>a<|start|>", "<|channel|>final<|message|>{\"ok\":1}", " to=functions.other<|channel|>commentary<|message|>{}"} {
					if accepts(rest, wrong) != accepts(f, spelledOut(t, all[:n])+wrong) {
						t.Errorf("behind %q: %q is accepted %t", spelledOut(t, all[:n]), wrong, accepts(rest, wrong))
					}
				}
			}
		})
	}
}

// Nothing is stated after an output that the format does not allow.
func TestAfterWrongOutput(t *testing.T) {
	t.Parallel()
	p := specs["required"]
	for _, text := range []string{"Hello", "<|return|>", "<|channel|>final<|message|>", "<|channel|>analysis<|message|>a<|end|><|end|>", " to=functions.other<|channel|>"} {
		if rest, ok := After(newAccount(), p.Format(newAccount()), tokensOf(text)); ok || rest != nil {
			t.Errorf("behind %q: %v", text, rest)
		}
	}
}

// A long chain of thought costs no memory.
func TestAfterLongReasoning(t *testing.T) {
	p := specs["strict"]
	output := tokensOf("<|channel|>analysis<|message|>")
	for range 50_000 {
		output = append(output, 1000)
	}
	f := p.Format(newAccount())
	if n := testing.AllocsPerRun(3, func() {
		if _, ok := After(newAccount(), f, output); !ok {
			t.Error("not stated")
		}
	}); n > 1000 {
		t.Errorf("%v allocations", n)
	}
}

// TestStepsOfAfter has the headers of many tools with a long common beginning: what is
// derived is counted, and what is refused cannot be stated.
func TestStepsOfAfter(t *testing.T) {
	t.Parallel()
	p := Spec{Required: true, Parallel: true}
	for i := range 512 {
		p.Tools = append(p.Tools, Tool{Recipient: "functions." + strings.Repeat("a", 50) + strconv.Itoa(i)})
	}
	f := p.Format(newAccount())
	output := tokensOf(strings.Repeat("<|channel|>analysis<|message|>x<|end|><|start|>assistant", 500))
	steps, _ := stepsOf(func(account *work.Account) error {
		begun := time.Now()
		_, ok := After(account, f, output)
		t.Logf("%t, %s", ok, time.Since(begun))
		return nil
	})
	if t.Logf("%d steps", steps); steps < 1_000_000 {
		t.Errorf("only %d steps were counted", steps)
	}
	if _, ok := After(work.New(t.Context(), steps/2), f, output); ok {
		t.Error("half the steps are enough")
	}
}
