package turn

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/fields"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/output"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/toolset"
	"github.com/envoy-harmony/envoy-harmony/filter/work"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// foldedRanges is a pattern that takes much more than its length to parse.
var foldedRanges = "(?i)[" + strings.Repeat("B-\U0001e942", 1300) + "]"

// newAccounted is a context with the account of a request.
func newAccounted() *RequestContext {
	rc, _ := newContext()
	rc.Work = work.New(context.Background(), work.PerRequest)

	return rc
}

// TestTooCostly has requests that take too much to read. The errors name the field, and
// also what is only enforced where it can be is an error then.
func TestTooCostly(t *testing.T) {
	t.Parallel()
	pattern, _ := json.Marshal(foldedRanges)
	field := func(raw string) jsontext.Field { return jsontext.Field{Path: "f", Result: gjson.Parse(raw)} }
	schema := `{"type":"object","properties":{"a":{"type":"string","pattern":` + string(pattern) + `}}}`
	tools := []harmony.Namespace{{Name: FunctionsNamespace, Tools: []harmony.Tool{{Name: "f", Parameters: json.RawMessage(schema)}}}}
	prepared := func(in Input) func(rc *RequestContext) *apierror.Error {
		return func(rc *RequestContext) *apierror.Error {
			in.Items = []Item{userHi}
			_, err := Prepare(context.Background(), rc, &in)
			return err
		}
	}

	for name, c := range map[string]struct {
		param string
		f     func(rc *RequestContext) *apierror.Error
	}{
		"expression": {"f", func(rc *RequestContext) *apierror.Error {
			_, err := fields.RegexFormat(rc, field(string(pattern)))
			return err
		}},
		"strict format": {"f.properties.a", func(rc *RequestContext) *apierror.Error {
			_, err := fields.NamedFormat(rc, field(`{"name":"n","strict":true,"schema":`+schema+`}`), nil)
			return err
		}},
		"format":      {"", prepared(Input{Format: jsonFormat(schema)})},
		"strict tool": {"tools.f.parameters.properties.a", prepared(Input{Tools: tools, Strict: map[ToolName]bool{{Namespace: FunctionsNamespace, Name: "f"}: true}})},
		"forced tool": {"", prepared(Input{Tools: tools, Choice: Choice{Required: true}})},
	} {
		rc := newAccounted()
		err := c.f(rc)
		if err == nil || err.Status != http.StatusBadRequest || err.Code != CodeTooCostly || err.Param != c.param {
			t.Errorf("%s: %+v", name, err)
		}
	}

	ended, cancel := context.WithCancel(context.Background())
	cancel()
	rc := newAccounted()
	rc.Work = rc.Work.Within(ended)
	if _, err := fields.RegexFormat(rc, field(`"a+"`)); err == nil || err.Status != http.StatusServiceUnavailable {
		t.Errorf("behind the end of the request: %+v", err)
	}
}

// slow is a pattern of which a text of letters takes a thousand steps each, and is no match.
var slow = "^a*" + strings.Repeat("a{0,128}", 7) + "b$"

// TestChecksInline shows that a check on the goroutine of an exchange takes no more than
// its share, and that the request's account pays for it: what takes longer is accepted.
func TestChecksInline(t *testing.T) {
	t.Parallel()
	long := `{"a":"` + strings.Repeat("a", 20_000) + `"}`
	schema := `{"type":"object","properties":{"a":{"type":"string","pattern":"` + slow + `"}},"required":["a"]}`
	tools := []harmony.Namespace{{Name: FunctionsNamespace, Tools: []harmony.Tool{{Name: "f", Parameters: json.RawMessage(schema)}}}}
	f := ToolName{Namespace: FunctionsNamespace, Name: "f"}
	strict := jsonFormat(schema)
	strict.Strict = true

	for name, c := range map[string]struct {
		in     Input
		output string
	}{
		"answer":     {Input{Format: strict}, "<|channel|>final<|message|>" + long + "<|return|>"},
		"expression": {Input{Format: &Format{Answer: constraint.AnswerRegex(slow)}}, "<|channel|>final<|message|>" + strings.Repeat("a", 20_000) + "<|return|>"},
		"arguments":  {Input{Tools: tools, Strict: map[ToolName]bool{f: true}}, "<|channel|>commentary to=functions.f<|message|>" + long + "<|call|>"},
		"retry":      {Input{Tools: tools}, "<|channel|>commentary to=functions.f<|message|>" + long + "<|call|>"},
	} {
		rc := newAccounted()
		model := *rc.Model
		model.ToolArguments = ArgumentsRetry
		rc.Model = &model
		c.in.Items = []Item{userHi}
		turn := prepare(t, rc, &c.in)
		before := stepsLeft(rc.Work)
		tokens := harmony.AppendEncodeSpecial(nil, c.output)
		if watcher := turn.NewWatcher(); watcher != nil {
			if _, why := watcher.Push(tokens); why != NotInterrupted {
				t.Errorf("%s: interrupted, %s", name, why)
			}
		}

		if _, err := turn.NewReader(func(Event) {}).Push(&engine.Chunk{Tokens: tokens, Finish: engine.FinishStop}); err != nil {
			t.Errorf("%s: %v", name, err)
		}

		if spent := before - stepsLeft(rc.Work); spent < request.MaxInline/2 || spent > 2*request.MaxInline || rc.Work.Err() != nil {
			t.Errorf("%s: %d steps were spent, %v", name, spent, rc.Work.Err())
		}
	}
}

// One event can have hundreds of calls. Their checks take as much together as one may, also
// if each takes less, and the next event's may take as much again.
func TestManyChecksOfAnEvent(t *testing.T) {
	t.Parallel()
	schema := `{"type":"object","properties":{"a":{"type":"string","pattern":"` + slow + `"}},"required":["a"]}`
	tools := []harmony.Namespace{{Name: FunctionsNamespace, Tools: []harmony.Tool{{Name: "f", Parameters: json.RawMessage(schema)}}}}
	f := ToolName{Namespace: FunctionsNamespace, Name: "f"}
	// It follows the schema: else the first call is the last one.
	call := `<|channel|>commentary to=functions.f<|message|>{"a":"` + strings.Repeat("a", 200) + `b"}<|end|><|start|>assistant`
	event := &engine.Chunk{Tokens: harmony.AppendEncodeSpecial(nil, strings.Repeat(call, 100))}

	for name, strict := range map[string]bool{"strict": true, "retry": false} {
		rc := newAccounted()
		model := *rc.Model
		in := Input{Items: []Item{userHi}, Tools: tools, Strict: map[ToolName]bool{f: strict}}
		if !strict {
			model.ToolArguments = ArgumentsRetry
		}
		rc.Model = &model
		turn := prepare(t, rc, &in)
		reader, watcher := turn.NewReader(func(Event) {}), turn.NewWatcher()
		for range 3 {
			before := stepsLeft(rc.Work)
			turn.BeginEvent()
			if watcher != nil {
				if _, why := watcher.Push(event.Tokens); why != NotInterrupted {
					t.Errorf("%s: interrupted, %s", name, why)
				}
			}
			if _, err := reader.Push(event); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if spent := before - stepsLeft(rc.Work); spent < request.MaxInline/2 || spent > request.MaxInline {
				t.Errorf("%s: %d steps in one event", name, spent)
			}
		}
	}
}

// TestCheckedOnce shows that the reader of a reply that a check has passed takes no steps
// for it again.
func TestCheckedOnce(t *testing.T) {
	t.Parallel()
	rc := newAccounted()
	rc.Checked = true
	turn := prepare(t, rc, &Input{Items: []Item{userHi}, Format: &Format{Answer: constraint.AnswerRegex(slow)}})
	chunk := &engine.Chunk{Tokens: harmony.AppendEncodeSpecial(nil, "<|channel|>final<|message|>"+strings.Repeat("a", 10_000)+"b<|return|>"), Finish: engine.FinishStop}
	before := stepsLeft(rc.Work)
	check := turn.NewCheck()
	if verdict := verdictOn(t, check, chunk); verdict != output.Passed {
		t.Errorf("the verdict is %d", verdict)
	}
	check.Settle(output.Passed)
	checked := stepsLeft(rc.Work)
	if _, err := turn.NewReader(func(Event) {}).Push(chunk); err != nil || before-checked < 1_000_000 || stepsLeft(rc.Work) != checked {
		t.Errorf("%v, %d steps, then %d", err, before-checked, checked-stepsLeft(rc.Work))
	}
}

func stepsLeft(account *work.Account) int {
	left := 0
	for step := work.PerRequest; step > 0; step /= 2 {
		if account.Affords(left + step) {
			left += step
		}
	}

	return left
}

// A turn is prepared in a job too, when the context has ended in which the request was
// decoded.
func TestPrepareInAJob(t *testing.T) {
	t.Parallel()
	rc, _ := newContext()
	decoding, end := context.WithCancel(t.Context())
	rc.Work = work.New(decoding, work.PerRequest)
	end()
	in := &Input{Items: []Item{{Kind: User, Text: "hi"}}}
	if _, err := Prepare(t.Context(), rc, in); err != nil {
		t.Error(err)
	}

	job, end := context.WithCancel(t.Context())
	end()
	if _, err := Prepare(job, rc, in); err == nil {
		t.Error("prepared in a job that has ended")
	}
}

// Tools that join take steps, in each try to truncate a conversation too.
func TestJoinsTakeSteps(t *testing.T) {
	t.Parallel()
	const joins = 20

	for _, truncate := range []bool{false, true} {
		rc, _ := newContext()
		in := &Input{Truncate: truncate}
		joined := make([]*JoinedTools, 0, joins)
		for range joins {
			joined = append(joined, &JoinedTools{Namespaces: functions("f", "g", "h")})
			in.Items = append(in.Items, Item{Kind: Tools, Tools: joined[len(joined)-1]})
		}

		for range 200 {
			in.Items = append(in.Items, Item{Kind: User, Text: strings.Repeat("word ", 100)}, Item{Kind: Answer, Text: "yes"})
		}

		in.Items = append(in.Items, Item{Kind: User, Text: "hi"})
		model := *rc.Model
		model.ContextLength = 4000
		rc.Model = &model

		// What it takes to have each of them join once.
		account := work.New(t.Context(), work.PerRequest)
		if err := toolset.SpendJoins(&RequestContext{Work: account}, joined, 1); err != nil {
			t.Fatal(err)
		}
		once := work.PerRequest - stepsLeft(account)
		rc.Work = work.New(t.Context(), once-1)
		if _, err := Prepare(t.Context(), rc, in); err == nil || err.Code != CodeTooCostly {
			t.Errorf("truncate %t, with too few steps to join: %v", truncate, err)
		}

		rc.Work = work.New(t.Context(), 2*once)
		if _, err := Prepare(t.Context(), rc, in); truncate && (err == nil || err.Code != CodeTooCostly) {
			t.Errorf("with too few steps to try: %v", err)
		}

		rc.Work = work.New(t.Context(), 10*once)
		if _, err := Prepare(t.Context(), rc, in); truncate && err != nil {
			t.Errorf("with enough steps: %v", err)
		}
	}
}

// TestForcedSchemasAreBounded requires a call of one of many tools whose schemas cannot be
// enforced: they are read as far as those that are, and no further.
func TestForcedSchemasAreBounded(t *testing.T) {
	t.Parallel()
	list := "[" + strings.TrimSuffix(strings.Repeat("[],", 20_000), ",") + "]"
	var ns harmony.Namespace
	ns.Name = FunctionsNamespace
	for i := range 100 {
		schema := `{"type":"object","properties":{"a":{"$ref":"#/nope"}},"examples":` + list + `}`
		ns.Tools = append(ns.Tools, harmony.Tool{Name: "f" + strconv.Itoa(i), Parameters: json.RawMessage(schema)})
	}
	rc := newAccounted()
	prepare(t, rc, &Input{Items: []Item{userHi}, Tools: []harmony.Namespace{ns}, Choice: Choice{Required: true}, NoCalls: false})
	if spent := work.PerRequest - stepsLeft(rc.Work); spent > work.PerRequest/4 {
		t.Errorf("%d steps were spent", spent)
	}
}
