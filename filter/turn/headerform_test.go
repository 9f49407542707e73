package turn

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/kept"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// statelessContext has no store, and ids as the filter makes them.
func statelessContext() *RequestContext {
	rc, _ := exactContext()
	ids := 0
	rc.Memory = nil
	rc.NewID = func(prefix string) string {
		ids++
		return prefix + fmt.Sprintf("%032x", ids)
	}
	return rc
}

// TestHeaderForms lists the headers of calls whose form stands in the call's id, so that the next
// prompt has it without a store, and those that are rendered as the library does.
func TestHeaderForms(t *testing.T) {
	t.Parallel()
	const start = "<|start|>assistant"
	for header, same := range map[string]bool{
		" to=functions.f<|channel|>commentary json<|message|>":              true,
		"<|channel|>commentary to=functions.f json<|message|>":              true,
		" to=functions.f<|channel|>commentary <|constrain|>json<|message|>": true,
		"<|channel|>commentary to=functions.f <|constrain|>json<|message|>": true,
		" to=functions.f<|channel|>commentary<|message|>":                   true,
		"<|channel|>commentary to=functions.f<|message|>":                   true,
		" to=functions.f<|channel|>commentary code<|message|>":              true,
		"<|channel|>commentary to=functions.f code<|message|>":              true,
		" to=python<|channel|>analysis code<|message|>":                     true,
		"<|channel|>analysis to=python code<|message|>":                     true,
		"<|channel|>analysis to=python <|constrain|>code<|message|>":        true,
		"<|channel|>analysis to=python<|message|>":                          true,

		"<|channel|>commentary to=functions.f  json<|message|>":             false,
		"<|channel|>commentary to=functions.f<|constrain|>json<|message|>":  false,
		"<|channel|>commentary to=functions.f <|constrain|>code<|message|>": false,
		"<|channel|>commentary json to=functions.f<|message|>":              false,
		"<|channel|>commentary to=f json<|message|>":                        false,
		"<|channel|>commentary to=functions.F json<|message|>":              false,
		"<|channel|>analysis to=functions.f json<|message|>":                false,
		"<|channel|>commentary to=python code<|message|>":                   false,
		"<|channel|>commentary to=functions.none json<|message|>":           false,
	} {
		rc := statelessContext()
		in := Input{Items: []Item{userHi}, Tools: functions("f"), Builtins: []harmony.Namespace{{Name: "python"}}}
		turn := prepare(t, rc, &in)
		output := harmony.AppendEncodeSpecial(nil, "<|channel|>analysis<|message|>Hm<|end|>"+start+header+`{"a": 1}<|call|>`)
		call := readTokens(t, turn, output, engine.FinishStop).calls[0]

		in.Items = []Item{userHi, {Kind: Reasoning, Text: "Hm"}, {
			Kind: Call, CallID: call.ID, Namespace: call.Namespace, Name: call.Name, Builtin: call.Builtin, Text: `{"a": 1}`,
		}, {Kind: Result, CallID: call.ID, Text: "2"}}
		next := prepare(t, rc, &in).Engine.Prompt
		want := turn.followed(output)
		if got := slices.Equal(next[:min(len(next), len(want))], want); got != same {
			t.Errorf("%s: of the call %s the prompt is\n%s", header, call.ID, spell(t, next))
		}

		// Other settings, and a store that fails.
		canonical, failing := *rc, *rc
		env := *rc.Env
		env.Memory = failingMemory{newMemory()}
		canonical.Model, failing.Env = &Model{}, &env
		samePrompt(t, prepare(t, &failing, &in), prepare(t, rc, &in))

		// An answer ends the turn, and drops the reasoning and the calls that are part of it. Of a turn
		// without reasoning the engine still has the call.
		answered, plain := in, in
		answered.Items = slices.Concat(in.Items, []Item{{Kind: Answer, Text: "a"}, userHi})
		plain.Items = slices.Concat(in.Items[:1], in.Items[2:], answered.Items[len(in.Items):])
		samePrompt(t, prepare(t, rc, &answered), prepare(t, rc, &plain))
		begun := in
		begun.Items = plain.Items[:3]
		ended, open := prepare(t, rc, &plain).Engine.Prompt, prepare(t, rc, &begun).Engine.Prompt
		open = open[:len(open)-len(startOfReply)]
		if begins := slices.Equal(ended[:min(len(ended), len(open))], open); begins == call.Builtin {
			t.Errorf("%s: after the answer the prompt is\n%s\nbefore it\n%s", header, spell(t, ended), spell(t, open))
		}
		if !same || call.Builtin || item.FormOf(call.ID) == 0 {
			samePrompt(t, prepare(t, rc, &answered), prepare(t, &canonical, &answered))
		}

		id := readTokens(t, prepare(t, &canonical, &Input{Items: []Item{userHi}, Tools: in.Tools, Builtins: in.Builtins}), output, engine.FinishStop).calls[0].ID
		if item.FormOf(id) != 0 || !same && item.FormOf(call.ID) != 0 {
			t.Errorf("%s: the ids are %s and, with a canonical history, %s", header, call.ID, id)
		}

		p, err := Extend(t.Context(), rc, nil, in.Items)
		if err != nil {
			t.Fatal(err)
		}
		samePrompts(t, rc, Input{Tools: in.Tools, Builtins: in.Builtins}, slices.Concat(in.Items, []Item{userHi}), p)
		samePrompts(t, rc, Input{Tools: in.Tools, Builtins: in.Builtins}, answered.Items, p)
		if p, err = Extend(t.Context(), rc, p, answered.Items[p.Len():]); err != nil {
			t.Fatal(err)
		}
		samePrompts(t, rc, Input{Tools: in.Tools, Builtins: in.Builtins}, answered.Items, p)
		samePrompts(t, &canonical, Input{Tools: in.Tools, Builtins: in.Builtins}, answered.Items, p)
		if _, err = Extend(t.Context(), &canonical, p, []Item{{Kind: Answer, Text: "a"}}); err == nil {
			t.Errorf("%s: extended with a canonical history", header)
		}
	}
}

// failingMemory is a store that does not answer.
type failingMemory struct{ Memory }

func (failingMemory) Texts(context.Context, string, []string) (map[string]string, error) {
	return nil, errors.New("it is not there")
}

func samePrompt(t *testing.T, got, want *Turn) {
	t.Helper()
	if !slices.Equal(got.Engine.Prompt, want.Engine.Prompt) {
		t.Errorf("the prompt is\n%s\nwant\n%s", spell(t, got.Engine.Prompt), spell(t, want.Engine.Prompt))
	}
}

// TestFormsCopyNoItems reads what is kept of many calls where there is nothing: a copy of the items is
// of no account of the request's memory.
func TestFormsCopyNoItems(t *testing.T) {
	exact := statelessContext()
	canonical, failing := *exact, *exact
	env := *exact.Env
	env.Memory = failingMemory{newMemory()}
	canonical.Model, failing.Env = &Model{}, &env

	items := slices.Repeat([]Item{{Kind: Call, CallID: "call_" + strings.Repeat("0", 32) + "h", Name: "f"}}, 20_000)
	for _, c := range []struct {
		name string
		rc   *RequestContext
	}{{"without a store", exact}, {"with one that fails", &failing}, {"canonical", &canonical}} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _ = kept.Read(t.Context(), c.rc, nil, items)
		runtime.ReadMemStats(&after)
		bytes := after.TotalAlloc - before.TotalAlloc
		size := float64(len(items)) * float64(unsafe.Sizeof(Item{}))
		if copies := float64(bytes) / size; copies > 0.2 {
			t.Errorf("%s: the items are copied %.1f times", c.name, copies)
		}
	}
}

// TestFormsOfEdits plays turns of tools without a store, whose clients edit what they send back. The
// prompt has each call as the client sends it, in whatever form its header is, also after an answer.
func TestFormsOfEdits(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(13, 14))
	others := 0

	for range 300 {
		rc := statelessContext()
		canonical := *rc
		canonical.Model = &Model{}
		in := Input{Items: []Item{userHi}, Tools: functions("f", "g")}
		calls := 0
		items := in.Items

		for range 1 + rng.IntN(4) {
			step := playStep(t, rng, prepare(t, rc, &in), &calls)
			in.Items = slices.Concat(in.Items, step.items, step.results)
			for range rng.IntN(3) {
				rewrites[rng.IntN(len(rewrites))](rng, &step)
			}
			if rng.IntN(2) == 0 {
				changes[rng.IntN(len(changes))](rng, &step)
			}
			// A mark that the client has made up, or dropped.
			if i := len(step.items) - 1; rng.IntN(4) == 0 && step.items[i].Kind == Call {
				id := step.items[i].CallID
				forged := strings.TrimRight(id, "hijklmn") + []string{"", "h", "k", "n"}[rng.IntN(4)]
				step.items[i].CallID = forged
				for r := range step.results {
					if step.results[r].CallID == id {
						step.results[r].CallID = forged
					}
				}
			}
			items = slices.Concat(items, step.sent())
			if rng.IntN(3) == 0 {
				over := []Item{{Kind: Answer, Text: "It is done."}, userHi}
				in.Items, items = slices.Concat(in.Items, over), slices.Concat(items, over)
			}
		}

		in.Items = items
		got, want := prepare(t, rc, &in).Engine.Prompt, prepare(t, &canonical, &in).Engine.Prompt
		if !slices.Equal(got, want) {
			others++
		}
		if got = inLibraryForm(t, got); !slices.Equal(got, want) {
			t.Fatalf("the prompt is\n%s\nwant\n%s", spell(t, got), spell(t, want))
		}
	}
	if others < 100 {
		t.Errorf("only %d prompts have another form", others)
	}
}

// inLibraryForm returns a prompt whose calls are read, and rendered in the library's form.
func inLibraryForm(t *testing.T, prompt []harmony.Token) (all []harmony.Token) {
	t.Helper()
	for len(prompt) > 0 {
		end := len(prompt)
		if i := slices.Index(prompt[1:], harmony.TokenStart); i >= 0 {
			end = 1 + i
		}
		message := prompt[:end]
		prompt = prompt[end:]

		written, ok := harmony.ReadWritten(message)
		if ok && written[0].Recipient != "" {
			m := written[0]
			m.Written, m.ContentType = nil, "json"
			rendered, err := renderer.AppendConversation(nil, []harmony.Message{m})
			if err != nil {
				t.Fatal(err)
			}
			message = rendered
		}
		all = append(all, message...)
	}
	return all
}
