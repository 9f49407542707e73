package responsestest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tidwall/gjson"
)

// openItem is an item whose events have begun and not ended.
type openItem struct {
	added gjson.Result
	id    string
	texts []*textEvents
}

// textEvents is one text of an item, as its events tell it.
type textEvents struct {
	event     string // what its events' names begin with
	partEvent string // those of its part; "" if it has none
	member    string // of the done event that has the text
	part      bool
	optional  bool // only told where it is asked for

	partAdded, done, partDone bool
	text                      strings.Builder
}

func newOpenItem(item gjson.Result) *openItem {
	o := &openItem{added: item, id: item.Get("id").Str}
	const content, summary = "response.content_part", "response.reasoning_summary_part"
	switch item.Get("type").Str {
	case "message":
		o.texts = []*textEvents{{event: "response.output_text", partEvent: content, member: "text"}}
	case "reasoning":
		o.texts = []*textEvents{
			{event: reasoningEvent, partEvent: content, member: "text"},
			{event: "response.reasoning_summary_text", partEvent: summary, member: "text", optional: true},
		}
	case "function_call":
		o.texts = []*textEvents{{event: "response.function_call_arguments", member: "arguments"}}
	case "custom_tool_call":
		o.texts = []*textEvents{{event: "response.custom_tool_call_input", member: "input"}}
	}
	for _, t := range o.texts {
		t.part = t.partEvent != ""
		t.done = t.optional // until its part is added
		t.partDone = t.optional
	}
	return o
}

// textOf is the text of an item, of all its parts together.
func textOf(item gjson.Result) string {
	texts := []string{item.Get("arguments").Str, item.Get("input").Str}
	for _, field := range []string{"content", "summary"} {
		for _, part := range item.Get(field).Array() {
			texts = append(texts, part.Get("text").Str)
		}
	}
	return strings.Join(texts, "")
}

// sameText checks that the item has the text that its deltas have told.
func (o *openItem) sameText(item gjson.Result) error {
	var told strings.Builder
	for _, t := range o.texts {
		told.WriteString(t.text.String())
	}
	if textOf(item) != told.String() {
		return errors.New("the item's text is not that of its deltas")
	}
	return nil
}

// event checks an event of the open item.
func (o *openItem) event(kind string, e gjson.Result) error {
	if e.Get("item_id").Str != o.id {
		return errors.New("not the item_id of the open item")
	}
	if e.Get("content_index").Int() != 0 || e.Get("summary_index").Int() != 0 {
		return errors.New("not the index of the only part")
	}
	for _, t := range o.texts {
		if step, ok := strings.CutPrefix(kind, t.event+"."); ok {
			return t.step(step, e)
		}
		if step, ok := strings.CutPrefix(kind, t.partEvent+"."); ok && t.part {
			return t.partStep(step, e.Get("part.text").Str)
		}
	}
	return errors.New("not an event of this type of item")
}

func (t *textEvents) step(step string, e gjson.Result) error {
	switch {
	case t.part && !t.partAdded:
		return errors.New("its part has not been added")
	case t.done:
		return errors.New("the text is done")
	case step == "delta":
		t.text.WriteString(e.Get("delta").Str)
		return nil
	}
	t.done = true
	if got := e.Get(t.member).Str; got != t.text.String() {
		return fmt.Errorf("the deltas join to %q, not %q", t.text.String(), got)
	}
	return nil
}

func (t *textEvents) partStep(step, text string) error {
	if step == "added" {
		if t.partAdded || text != "" {
			return errors.New("the part is added twice or with text")
		}
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
	return nil
}
