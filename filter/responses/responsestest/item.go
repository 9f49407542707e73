package responsestest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

// streamItem is an item of a stream.
type streamItem struct {
	added gjson.Result
	id    string
	texts []*textEvents
	tool  *toolEvents // nil: the server runs none for it
	done  string      // JSON of the item; "" while it is open

	commands []*command // of a shell call
}

// textEvents is one text of an item, as its events tell it.
type textEvents struct {
	event     string // what its events' names begin with
	partEvent string // those of its part; "" if it has none
	member    string // of the done event that has the text
	part      bool

	partAdded, done, partDone bool
	text                      strings.Builder
	annotations               []gjson.Result
	logprobs                  []string // of the deltas
}

func newStreamItem(item gjson.Result) *streamItem {
	kind := item.Get("type").Str
	o := &streamItem{added: item, id: item.Get("id").Str, tool: newToolEvents(kind)}
	const content, summary = "response.content_part", "response.reasoning_summary_part"
	switch kind {
	case "message":
		o.texts = []*textEvents{{event: "response.output_text", partEvent: content, member: "text"}}
	case "reasoning":
		o.texts = []*textEvents{{event: reasoningEvent, partEvent: content, member: "text"}}
		// Its text is its summary.
		if !item.Get("content").Exists() {
			o.texts = []*textEvents{{event: "response.reasoning_summary_text", partEvent: summary, member: "text"}}
		}
	case "function_call":
		o.texts = []*textEvents{{event: "response.function_call_arguments", member: "arguments"}}
	case "custom_tool_call":
		o.texts = []*textEvents{{event: "response.custom_tool_call_input", member: "input"}}
	case "mcp_call":
		o.texts = []*textEvents{{event: "response.mcp_call_arguments", member: "arguments"}}
	case "code_interpreter_call":
		o.texts = []*textEvents{{event: "response.code_interpreter_call_code", member: "code"}}
	}

	// Arguments of calls have deltas, and no part around them.
	for _, t := range o.texts {
		t.part = t.partEvent != ""
	}

	return o
}

// textOf is the text of an item, of all its parts together.
func textOf(item gjson.Result) string {
	texts := []string{item.Get("arguments").Str, item.Get("input").Str, item.Get("code").Str}
	for _, field := range []string{"content", "summary"} {
		for _, part := range item.Get(field).Array() {
			texts = append(texts, part.Get("text").Str)
		}
	}
	return strings.Join(texts, "")
}

// isEncrypted reports whether an item is reasoning of which clients can read nothing.
func isEncrypted(item gjson.Result) bool {
	return item.Get("type").Str == "reasoning" && item.Get("encrypted_content").Str != "" && textOf(item) == "" &&
		!item.Get("content").Exists() && len(item.Get("summary").Array()) == 0
}

// begun reports whether an event of a text of the item has come.
func (o *streamItem) begun() bool {
	return slices.ContainsFunc(o.texts, func(t *textEvents) bool { return t.partAdded || t.done || t.text.Len() > 0 })
}

// sameText checks that the item has the text of its deltas.
func (o *streamItem) sameText(item gjson.Result) error {
	// It has no deltas.
	if item.Get("type").Str == "mcp_approval_request" {
		if item.Raw != o.added.Raw {
			return errors.New("the item is not the one that was added")
		}
		return nil
	}

	var deltas strings.Builder
	for _, t := range o.texts {
		deltas.WriteString(t.text.String())
	}

	// A client that has joined the deltas must not see another text in the end.
	if textOf(item) != deltas.String() {
		return errors.New("the item's text is not that of its deltas")
	}

	return nil
}

// event checks an event of the open item.
func (o *streamItem) event(kind string, e gjson.Result) error {
	// Events of commands name their item by its index in the output alone.
	if step, ok := strings.CutPrefix(kind, commandEvent); ok {
		return o.commandStep(step, e)
	}
	if e.Get("item_id").Str != o.id {
		return errors.New("not the item_id of the open item")
	}
	// An item here never has a second part: each message of the model is an item.
	if e.Get("content_index").Int() != 0 || e.Get("summary_index").Int() != 0 {
		return errors.New("not the index of the only part")
	}

	if o.tool != nil {
		if step, ok := strings.CutPrefix(kind, o.tool.event+"."); ok {
			return o.tool.step(step)
		}
	}

	for _, t := range o.texts {
		if step, ok := strings.CutPrefix(kind, t.event+"."); ok {
			return o.textStep(t, step, e)
		}
		if step, ok := strings.CutPrefix(kind, t.partEvent+"."); ok && t.part {
			return t.partStep(step, e.Get("part"))
		}
	}

	return errors.New("not an event of this type of item")
}

// textStep takes an event of one of the item's texts, which for a tool is one of
// its steps.
func (o *streamItem) textStep(t *textEvents, step string, e gjson.Result) error {
	if err := t.step(step, e); err != nil || o.tool == nil {
		return err
	}
	if step == "done" {
		return o.tool.step(theText)
	}
	if o.tool.steps[0] != theText {
		return fmt.Errorf("text where %s should come", o.tool.steps[0])
	}
	return nil
}

// waits reports whether the item may stay open while others are added: a tool is
// at work for it.
func (o *streamItem) waits() bool {
	return o.tool != nil && o.tool.repeated == "" && o.unfinished() == "" && !slices.Contains(o.tool.steps, "in_progress")
}

// unfinished is the text that is not done, "" if all are.
func (o *streamItem) unfinished() string {
	for _, t := range o.texts {
		if !t.done || t.part && !t.partDone {
			return t.event
		}
	}
	return ""
}

func (t *textEvents) step(step string, e gjson.Result) error {
	switch {
	// Clients append deltas to a part that they must have been told about.
	case t.part && !t.partAdded:
		return errors.New("its part has not been added")
	case t.done:
		return errors.New("the text is done")
	case step == "annotation.added":
		if e.Get("annotation_index").Int() != int64(len(t.annotations)) {
			return errors.New("not the next annotation_index")
		}
		t.annotations = append(t.annotations, e.Get("annotation"))
		return nil
	case step == "delta":
		t.text.WriteString(e.Get("delta").Str)
		for _, p := range e.Get("logprobs").Array() {
			// Compared as text: the entries of the whole must be those of the deltas to the last digit.
			t.logprobs = append(t.logprobs, p.Raw)
		}
		return nil
	}

	t.done = true
	if err := t.sameLogprobs(e.Get("logprobs")); err != nil {
		return err
	}
	if got := e.Get(t.member).Str; got != t.text.String() {
		return fmt.Errorf("the deltas join to %q, not %q", t.text.String(), got)
	}

	return nil
}

func (t *textEvents) partStep(step string, part gjson.Result) error {
	text := part.Get("text").Str
	if step == "added" {
		if t.partAdded || text != "" {
			return errors.New("the part is added twice or with text")
		}
		// Only from here on deltas of the text may come.
		t.partAdded, t.done, t.partDone = true, false, false
		return nil
	}

	switch {
	case !t.done || t.partDone:
		return errors.New("the part is done before its text, or twice")
	case text != t.text.String():
		return errors.New("the part's text is not that of its deltas")
	}

	t.partDone = true
	if err := t.sameLogprobs(part.Get("logprobs")); err != nil {
		return err
	}

	return sameAnnotations(part, t.annotations)
}

// sameLogprobs checks that what has the whole text has the log probabilities of its
// deltas, or none because they are too many.
func (t *textEvents) sameLogprobs(whole gjson.Result) error {
	given := whole.Array()
	if len(given) == 0 {
		// The part and the item have none either.
		t.logprobs = nil
	}
	if !slices.EqualFunc(given, t.logprobs, func(a gjson.Result, b string) bool { return a.Raw == b }) {
		return fmt.Errorf("%d log probabilities, not the %d that were deltas", len(given), len(t.logprobs))
	}
	return nil
}

// sameAnnotations checks that a part has the annotations that were deltas.
func sameAnnotations(part gjson.Result, deltas []gjson.Result) error {
	if !part.Get("annotations").Exists() {
		return nil
	}
	given := part.Get("annotations").Array()
	if !slices.EqualFunc(given, deltas, func(a, b gjson.Result) bool { return a.Raw == b.Raw }) {
		return fmt.Errorf("the part has %d annotations, not the %d that were deltas", len(given), len(deltas))
	}
	return nil
}

// checkCitations checks where in the text of a part its citations stand, counted
// in characters.
func checkCitations(part gjson.Result) error {
	n := int64(utf8.RuneCountInString(part.Get("text").Str))
	for i, c := range part.Get("annotations").Array() {
		if begin, end := c.Get("start_index").Int(), c.Get("end_index").Int(); begin >= end || end > n {
			return fmt.Errorf("annotation %d from %d to %d of %d characters", i, begin, end, n)
		}
	}
	return nil
}
