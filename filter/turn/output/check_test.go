package output

import (
	"strconv"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/toolset"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// heard is what a listener was told.
type heard struct {
	began, wrote int
	called       []string
	cached       []*engine.Usage
}

func (h *heard) Began() { h.began++ }

func (h *heard) Wrote([]harmony.Token, bool) { h.wrote++ }

func (h *heard) Called(id string) { h.called = append(h.called, id) }

func (h *heard) Cached(usage *engine.Usage) { h.cached = append(h.cached, usage) }

// newTestPlan returns the plan of a turn with one tool, of which a call is required that no engine enforces.
func newTestPlan(t *testing.T, listener Listener) *Plan {
	t.Helper()
	ids := 0
	rc := &request.Context{
		Env: &request.Env{
			Renderer: harmony.NewRenderer(), Limits: request.DefaultLimits(), Memory: noMemory{},
			NewID: func(prefix string) string { ids++; return prefix + strconv.Itoa(ids) },
		},
		Model: &request.Model{}, Checked: true,
	}
	in := &request.Input{
		Tools:  []harmony.Namespace{{Name: item.FunctionsNamespace, Tools: []harmony.Tool{{Name: "f"}}}},
		Choice: request.Choice{Required: true},
	}
	tools, err := toolset.New(rc, in, nil)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := toolset.NewSpec(rc, in, in.Choice, tools)
	if err != nil {
		t.Fatal(err)
	}

	plan := NewPlan(rc, in, tools)
	plan.Call, plan.Listener = &engine.Request{N: 1, MaxTokens: 100}, listener
	if err := plan.Verify(in, &spec, in.Choice); err != nil {
		t.Fatal(err)
	}
	return &plan
}

// noMemory is there, and nothing may be read from it here.
type noMemory struct{ request.Memory }

// TestCheckKeepsNothing shows that what a check reads is not kept: the reader of the client's output keeps it.
func TestCheckKeepsNothing(t *testing.T) {
	t.Parallel()
	plan := newTestPlan(t, nil)
	output := harmony.AppendEncodeSpecial(nil, "<|channel|>analysis<|message|>Hm<|end|>"+
		"<|start|>assistant<|channel|>commentary to=functions.f json<|message|>{}<|call|>")
	chunk := &engine.Chunk{Tokens: output, Finish: engine.FinishStop}

	check := plan.NewCheck()
	if verdict := check.Push(chunk); verdict != Complete {
		t.Fatalf("the verdict is %d", verdict)
	}
	if check.readers[0].Kept() != nil || plan.Kept() != nil {
		t.Error("a check keeps reasoning")
	}

	reader := plan.NewReader(func(item.Event) {})
	if _, err := reader.Push(chunk); err != nil || reader.Kept() == nil || plan.Kept() == nil {
		t.Errorf("%v, the reader keeps %v", err, reader.Kept())
	}
}

// TestListener shows what a listener is told.
func TestListener(t *testing.T) {
	t.Parallel()
	for text, wrote := range map[string]int{
		"<|channel|>commentary to=functions.f json<|message|>{}<|call|>": 1,
		"<|channel|>final<|message|>text<|return|>":                      0,
	} {
		listener := &heard{}
		plan := newTestPlan(t, listener)
		plan.Diagnosis = &request.Diagnosis{}
		reader := plan.NewReader(func(item.Event) {})
		_, _ = reader.Push(&engine.Chunk{Tokens: harmony.AppendEncodeSpecial(nil, text), Finish: engine.FinishStop})
		reader.Cached(&engine.Usage{})
		if listener.began != 1 || listener.wrote != wrote || len(listener.called) != wrote || len(listener.cached) != 1 {
			t.Errorf("%q: %+v", text, listener)
		}
	}
}

// TestArgumentsWithoutSchema shows that any object is asked for of a tool that has no schema.
func TestArgumentsWithoutSchema(t *testing.T) {
	t.Parallel()
	check := callCheck{rules: newCallRules(&toolset.Set{}), rc: &request.Context{}}
	if format := check.format(); string(format.(constraint.Value).Schema) != string(constraint.AnyObject) {
		t.Errorf("it is %v", format)
	}
}
