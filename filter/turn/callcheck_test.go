package turn

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
	"github.com/envoy-harmony/envoy-harmony/filter/work"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// checkedTools are tools whose calls are checked.
var checkedTools = []harmony.Namespace{{Name: FunctionsNamespace, Tools: []harmony.Tool{
	{Name: "look", Parameters: json.RawMessage(`{"type":"object","properties":{"place":{"type":"string"},"days":{"type":"integer"}},"required":["place"]}`)},
	{Name: "say", Parameters: json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"}}}`)},
	{Name: "any"},
	{Name: "strict", Parameters: json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`)},
}}}

// newCheckedTurn is a turn whose model's arguments are asked for again.
func newCheckedTurn(t *testing.T, change func(*Input)) *Turn {
	t.Helper()
	return newChangedTurn(t, func(_ *RequestContext, in *Input) {
		if change != nil {
			change(in)
		}
	})
}

// newChangedTurn is the same of a context and an input that are changed.
func newChangedTurn(t *testing.T, change func(*RequestContext, *Input)) *Turn {
	t.Helper()
	rc, _ := newContext()
	model := *rc.Model
	model.ToolArguments = ArgumentsRetry
	rc.Model = &model
	in := &Input{Items: []Item{{Kind: User, Text: "hi"}}, Tools: checkedTools, Strict: map[ToolName]bool{{Namespace: FunctionsNamespace, Name: "strict"}: true}}
	change(rc, in)
	return prepare(t, rc, in)
}

// Whatever the pieces in which output comes, arguments are let through once they are whole
// and valid, and held back where they are not.
func TestInvalidCallsAreFound(t *testing.T) {
	t.Parallel()
	const header, next = "<|channel|>commentary to=functions.%s <|constrain|>json<|message|>", "<|end|><|start|>assistant"

	for name, c := range map[string]struct {
		tool, arguments string
		valid           bool
	}{
		"valid":              {"look", `{"place": "here", "days": 3}`, true},
		"repaired":           {"look", `{'place': "here",}`, true},
		"raw text":           {"say", `hello "you"`, true},
		"no arguments":       {"any", ``, true},
		"no schema":          {"any", `{"x": [1]}`, true},
		"unknown tool":       {"nope", `{"x": `, true},
		"strict tool":        {"strict", `{"x": `, true},
		"no JSON":            {"look", `{"place": "here`, false},
		"no object":          {"any", `[1]`, false},
		"a member missing":   {"look", `{"days": 3}`, false},
		"none, one required": {"look", ``, false},
		"another type":       {"look", `{"place": "here", "days": "three"}`, false},
	} {
		before := "<|channel|>analysis<|message|>Well.<|end|><|start|>assistant" + fmt.Sprintf(header, c.tool)
		for _, end := range []string{"<|call|>", next + "<|channel|>final<|message|>x<|return|>"} {
			all, begin := harmony.AppendEncodeSpecial(nil, before+c.arguments+end), harmony.AppendEncodeSpecial(nil, before)
			random := rand.New(rand.NewPCG(1, uint64(len(name))))

			for range 30 {
				g := newCheckedTurn(t, nil).NewWatcher()
				var got []harmony.Token
				why := NotInterrupted

				for n := 0; n < len(all) && why == NotInterrupted; {
					size := 1 + random.IntN(len(all)-n)
					var kept []harmony.Token
					kept, why = g.Push(all[n : n+size])
					got = append(got, kept...)
					n += size
				}

				want, wantWhy := all, NotInterrupted
				if !c.valid {
					want, wantWhy = begin, InvalidCall
				}

				if why != wantWhy || spell(t, got) != spell(t, want) {
					t.Fatalf("%s: %q behind %q, want %q behind %q", name, why, spell(t, got), wantWhy, spell(t, want))
				}
			}
		}
	}
}

// Arguments that were asked for again are let through as they are. Those that are cut are,
// too; those of a lost call are dropped.
func TestAskedAgain(t *testing.T) {
	t.Parallel()
	encode := func(s string) []harmony.Token { return harmony.AppendEncodeSpecial(nil, s) }
	header := encode("<|channel|>commentary to=functions.look<|message|>")
	g := newCheckedTurn(t, nil).NewWatcher()
	if kept, why := g.Push(append(header, encode(`[1]<|call|>`)...)); why != InvalidCall || len(kept) != len(header) {
		t.Fatalf("%q behind %d tokens", why, len(kept))
	}

	format, ok := g.Again(header).(constraint.Value)
	if !ok || !strings.Contains(string(format.Schema), `"place"`) {
		t.Errorf("asked for %s", format.Schema)
	}

	if kept, why := g.Push(encode(`{"pl`)); why != NotInterrupted || len(kept) != 0 {
		t.Errorf("%q, %d tokens", why, len(kept))
	}

	g.Lost(header)
	if kept, why := g.Push(encode(`[2]<|call|>`)); why != NotInterrupted || spell(t, kept) != "[2]<|call|>" {
		t.Errorf("%q behind %q", why, spell(t, kept))
	}

	g = newCheckedTurn(t, nil).NewWatcher()
	g.Push(append(header, encode(`{"place":`)...))
	if held := g.Release(); spell(t, held) != `{"place":` {
		t.Errorf("cut: %q", spell(t, held))
	}
}

// Nothing is checked without tools, by an engine that takes no grammars, and with another
// setting.
func TestNotChecked(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*RequestContext, *Input){
		"no calls":    func(_ *RequestContext, in *Input) { in.NoCalls = true },
		"no tools":    func(_ *RequestContext, in *Input) { in.Tools = nil },
		"no grammars": func(rc *RequestContext, _ *Input) { rc.Checked = true },
		"repair":      func(rc *RequestContext, _ *Input) { rc.Model.ToolArguments = ArgumentsRepair },
	} {
		if newChangedTurn(t, change).NewWatcher() != nil {
			t.Errorf("%s: calls are checked", name)
		}
	}
}

// costlyTool is a tool whose schema takes more steps than an event has, or much memory.
func costlyTool(pattern string, times int) []harmony.Namespace {
	properties := map[string]any{}
	for i := range times {
		properties[fmt.Sprint("p", i)] = map[string]any{"type": "string", "pattern": fmt.Sprint(pattern, i)}
	}
	parameters, _ := json.Marshal(map[string]any{"type": "object", "properties": properties})
	return []harmony.Namespace{{Name: FunctionsNamespace, Tools: []harmony.Tool{{Name: "costly", Parameters: parameters}}}}
}

// A schema that takes more than an event may is read twice at most, however often its tool is
// called.
func TestCostlySchemaIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	turn := newCheckedTurn(t, func(in *Input) { in.Tools = costlyTool(strings.Repeat(".", 4000), 8) })
	const steps = 16 * request.MaxInline
	turn.rc.Work = work.New(t.Context(), steps)
	g := turn.NewWatcher()
	call := harmony.AppendEncodeSpecial(nil, "<|start|>assistant<|channel|>commentary to=functions.costly<|message|>{\"p0\":\"x\"}<|end|>")
	for i := range 30 {
		turn.BeginEvent()
		if kept, why := g.Push(call); why != NotInterrupted || len(kept) != len(call) {
			t.Fatalf("call %d: %q behind %d tokens", i, why, len(kept))
		}
	}
	if !turn.rc.Work.Affords(steps - 4*request.MaxInline) {
		t.Error("30 calls take more than four events have")
	}
}

// What is made of the schemas of called tools takes room before it is made, and gives it back
// where it is not made. Without room calls pass unchecked.
func TestCheckedCallsTakeRoom(t *testing.T) {
	t.Parallel()
	call := harmony.AppendEncodeSpecial(nil, "<|start|>assistant<|channel|>commentary to=functions.costly<|message|>{\"p0\":\"b\"}<|end|>")
	for name, c := range map[string]struct {
		room, least, most int
		want              Interruption
		pattern           string
	}{
		"room":     {1 << 30, 900 * 48, 6000 * 48, InvalidCall, "^a{0,900}$"},
		"no room":  {30_000, 0, 0, NotInterrupted, "^a{0,900}$"},
		"too much": {1 << 30, 0, 0, NotInterrupted, "^((((a{0,30}){0,30}){0,30}){0,30}b)$"},
	} {
		turn := newCheckedTurn(t, func(in *Input) { in.Tools = costlyTool(c.pattern, 1) })
		turn.rc.Work = work.New(t.Context(), work.PerRequest)
		taken := 0
		turn.rc.Reserve = func(n int) *apierror.Error {
			if taken+n > c.room {
				return apierror.New(503, "overloaded", "", "No room.")
			}
			taken += n
			return nil
		}
		if _, why := turn.NewWatcher().Push(call); why != c.want {
			t.Errorf("%s: %q, want %q", name, why, c.want)
		}
		if taken < c.least || taken > c.most {
			t.Errorf("%s: %d bytes taken, want %d to %d", name, taken, c.least, c.most)
		}
	}
}
