// Package responsestest checks what the Responses API answers: response
// objects and streams of events. It is for tests only, and knows no more of
// the code it checks than a client does.
//
// The schema is that of openai-python's types together with Open Responses'
// required fields; the rules of events are those that clients rely on.
package responsestest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
)

// Object checks a response object.
func Object(b []byte) error {
	if !json.Valid(b) {
		return errors.New("the response is not JSON")
	}
	r := gjson.ParseBytes(b)
	if err := response(r); err != nil {
		return err
	}
	return checkStatus(r)
}

// Conversation checks a conversation.
func Conversation(b []byte) error {
	if !json.Valid(b) {
		return errors.New("the conversation is not JSON")
	}
	return conversation(gjson.ParseBytes(b))
}

// Compaction checks the answer to a request for a compaction, and returns the
// compaction item. Before it stand messages that the assistant has not written.
func Compaction(b []byte) (item string, err error) {
	if !json.Valid(b) {
		return "", errors.New("the compaction is not JSON")
	}

	c := gjson.ParseBytes(b)
	if err := compaction(c); err != nil {
		return "", err
	}

	output := c.Get("output").Array()
	if len(output) == 0 {
		return "", errors.New("the output is empty")
	}

	// The output is the next request's input: what the assistant said is in the summary only.
	for i, message := range output[:len(output)-1] {
		if err := listed(message); err != nil {
			return "", fmt.Errorf("output[%d]: %w", i, err)
		}
		if message.Get("type").Str != "message" || message.Get("role").Str == "assistant" {
			return "", fmt.Errorf("output[%d] is no message to the assistant", i)
		}
	}

	last := output[len(output)-1]

	return last.Raw, compactionItem(last)
}

// Items checks a list of items: of a response's input, or of a conversation.
func Items(b []byte) error {
	if !json.Valid(b) {
		return errors.New("the list is not JSON")
	}

	list := gjson.ParseBytes(b)
	if err := itemList(list); err != nil {
		return err
	}

	data := list.Get("data").Array()
	for i, item := range data {
		if err := listed(item); err != nil {
			return fmt.Errorf("item %d: %w", i, err)
		}
	}

	// Clients ask for the next page after last_id: it must be an item of this one.
	if len(data) == 0 && (list.Get("first_id").Type != gjson.Null || list.Get("last_id").Type != gjson.Null) {
		return errors.New("an empty list has a first or last item")
	}
	if n := len(data); n > 0 && (list.Get("first_id").Str != data[0].Get("id").Str || list.Get("last_id").Str != data[n-1].Get("id").Str) {
		return errors.New("first_id or last_id is not that of the item")
	}

	return nil
}

// Item checks one item as it is listed.
func Item(b []byte) error {
	if !json.Valid(b) {
		return errors.New("the item is not JSON")
	}
	return listed(gjson.ParseBytes(b))
}

// listed checks an item of a list.
func listed(item gjson.Result) error {
	// Clients send listed items back, and refer to them by these.
	for _, field := range []string{"type", "id", "status"} {
		if item.Get(field).Str == "" && (field != "status" || hasStatus(item)) {
			return fmt.Errorf("it has no %s", field)
		}
	}

	switch item.Get("type").Str {
	case "mcp_approval_response":
		return approvalResponse(item)
	case "message":
		if !item.Get("content").IsArray() {
			return errors.New("its content is no list of parts")
		}
	}

	return nil
}

// checkStatus checks what a response's status says of its other members.
func checkStatus(r gjson.Result) error {
	status := r.Get("status").Str
	present := func(field string) bool { return r.Get(field).Type != gjson.Null }
	over := status != "in_progress" && status != "queued"
	switch {
	case present("completed_at") != (status == "completed"):
		return fmt.Errorf("a response that is %s has completed_at %s", status, r.Get("completed_at").Raw)
	case present("error") != (status == "failed"):
		return fmt.Errorf("a response that is %s has error %s", status, r.Get("error").Raw)
	case present("incomplete_details") && status != "incomplete":
		return fmt.Errorf("a response that is %s has incomplete_details", status)
	case present("usage") != over && !endedOutside(r):
		return fmt.Errorf("a response that is %s has usage %s", status, r.Get("usage").Raw)
	// Until the end the items are those of the events.
	case !over && len(r.Get("output").Array()) > 0:
		return fmt.Errorf("a response that is %s has output", status)
	case r.Get("usage.input_tokens").Int()+r.Get("usage.output_tokens").Int() != r.Get("usage.total_tokens").Int():
		return errors.New("total_tokens is no total")
	case r.Get("usage.output_tokens_details.reasoning_tokens").Int() > r.Get("usage.output_tokens").Int():
		return errors.New("more reasoning_tokens than output_tokens")
	}

	if err := checkTurns(r.Get("usage")); err != nil {
		return err
	}
	if given := r.Get("input_messages").Exists(); given != r.Get("output_messages").Exists() || given && !over {
		return fmt.Errorf("a response that is %s has input_messages: %v, output_messages: %v", status, given, r.Get("output_messages").Exists())
	}

	return checkOutput(status, r.Get("output").Array())
}

// endedOutside is for a background response that may have been cancelled, or
// whose maker may have died: nobody knows what it has used.
func endedOutside(r gjson.Result) bool {
	status := r.Get("status").Str
	return r.Get("background").Bool() && (status == "cancelled" || status == "failed")
}

// checkTurns checks the model calls that a usage lists, if it does: each has
// all counts, and the last of them make the totals.
func checkTurns(usage gjson.Result) error {
	in, out := usage.Get("input_tokens_details"), usage.Get("output_tokens_details")
	lists := []struct {
		name   string
		counts []gjson.Result
		total  gjson.Result
	}{
		{"input_tokens_per_turn", in.Get("input_tokens_per_turn").Array(), usage.Get("input_tokens")},
		{"cached_tokens_per_turn", in.Get("cached_tokens_per_turn").Array(), in.Get("cached_tokens")},
		{"output_tokens_per_turn", out.Get("output_tokens_per_turn").Array(), usage.Get("output_tokens")},
		{"tool_output_tokens_per_turn", out.Get("tool_output_tokens_per_turn").Array(), out.Get("tool_output_tokens")},
	}
	if !out.Get("tool_output_tokens").Exists() {
		for _, l := range lists {
			if len(l.counts) > 0 {
				return fmt.Errorf("%s without tool_output_tokens", l.name)
			}
		}
		return nil
	}

	turns := len(lists[0].counts)
	// Of several requests with one response, the last one's make the totals.
	for own := 1; own <= turns; own++ {
		exact := true
		for _, l := range lists {
			if len(l.counts) != turns {
				return fmt.Errorf("%s has %d turns, %s %d", lists[0].name, turns, l.name, len(l.counts))
			}
			var sum int64
			for _, n := range l.counts[turns-own:] {
				sum += n.Int()
			}
			exact = exact && sum == l.total.Int()
		}

		if exact {
			return nil
		}
	}

	return errors.New("the turns do not add up to the totals")
}

func checkOutput(status string, output []gjson.Result) error {
	ids, incomplete := map[string]bool{}, false
	for i, item := range output {
		// Both kinds of ids share one space: a client finds an item by either.
		for _, id := range []string{item.Get("id").Str, item.Get("call_id").Str} {
			if id != "" && ids[id] {
				return fmt.Errorf("two items have the id %q", id)
			}
			ids[id] = true
		}

		switch got := item.Get("status").Str; {
		// A status of the response that is better than its items' would hide that something is missing.
		case got == "incomplete" && status == "completed":
			return fmt.Errorf("item %d of %d is incomplete in a response that is completed", i, len(output))
		case got == "incomplete":
			incomplete = true
		case got != completed && got != failed && hasStatus(item):
			return fmt.Errorf("item %d of the output is %s", i, got)
		case incomplete:
			return fmt.Errorf("item %d of %d follows one that is incomplete", i, len(output))
		}

		if err := checkCitations(item.Get("content.0")); err != nil {
			return fmt.Errorf("item %d: %w", i, err)
		}
		if parts := item.Get("content"); parts.Exists() && len(parts.Array()) != 1 {
			return fmt.Errorf("item %d has %d parts", i, len(parts.Array()))
		}
	}

	return nil
}

// Stream checks a stream of events, from the first byte to the last, and returns
// the response object of its last event.
func Stream(sse []byte) ([]byte, error) {
	frames, err := apitest.Frames(string(sse))
	if err != nil {
		return nil, err
	}

	last := len(frames) - 1
	if last < 0 || frames[last] != "data: [DONE]\n\n" {
		return nil, errors.New("the stream does not end in [DONE]")
	}

	s := &stream{}
	for _, block := range frames[:last] {
		if err := s.block(block); err != nil {
			return nil, fmt.Errorf("event %d: %w\n%.300s", s.next, err, block)
		}
	}

	if s.phase != phaseOver {
		return nil, errors.New("the stream has no last event")
	}

	return []byte(s.head.Raw), nil
}

// stream is how far a stream has come.
type stream struct {
	next  int64 // sequence number
	phase phase
	head  gjson.Result // the newest response object
	items []*streamItem
	named string // what the events of reasoning text are called
}

type phase int

const (
	phaseNew phase = iota
	phaseRunning
	phaseOver
)

// block checks one event with its lines.
func (s *stream) block(block string) error {
	lines := strings.Split(block, "\n")
	if len(lines) != 4 || lines[2] != "" || lines[3] != "" {
		return errors.New("not an event of two lines")
	}

	kind, isEvent := strings.CutPrefix(lines[0], "event: ")
	data, isData := strings.CutPrefix(lines[1], "data: ")
	// Libraries that split lines at these characters too would see two lines in one.
	if !isEvent || !isData || strings.ContainsAny(block, "\r\u0085\u2028\u2029") || !json.Valid([]byte(data)) {
		return errors.New("not an event")
	}

	e := gjson.Parse(data)
	c, known := events[kind]
	switch {
	case !known:
		return errors.New("clients do not know this event")
	case e.Get("type").Str != kind:
		return errors.New("event and type differ")
	case e.Get("sequence_number").Int() != s.next:
		return fmt.Errorf("sequence_number is not %d", s.next)
	case s.phase == phaseOver:
		return errors.New("it follows the last event")
	}

	s.next++
	// The members first: what follows reads them without looking whether they are there.
	if err := c(e); err != nil {
		return err
	}
	// Only events about the response itself have the object, and may come outside of items.
	if r := e.Get("response"); r.Exists() {
		return s.response(kind, r)
	}
	if s.phase != phaseRunning {
		return errors.New("it comes before response.in_progress")
	}
	if kind == "response.output_item.added" {
		return s.added(e)
	}

	// Several items may be open while tools run: the index says which one the event is about.
	i := e.Get("output_index").Int()
	if i >= int64(len(s.items)) || s.items[i].done != "" {
		return errors.New("not the output_index of an open item")
	}
	if kind == "response.output_item.done" {
		return s.items[i].end(e.Get("item"))
	}

	kind, err := s.reasoning(kind)
	if err != nil {
		return err
	}

	return s.items[i].event(kind, e)
}

// reasoning returns the events of reasoning text, which have one of two names,
// OpenAI's. A stream may not have both.
func (s *stream) reasoning(kind string) (string, error) {
	dot := strings.LastIndexByte(kind, '.')
	name, step := kind[:dot], kind[dot:]
	if name != reasoningEvent && name != openReasoningEvent {
		return kind, nil
	}
	if s.named != "" && s.named != name {
		return kind, errors.New("reasoning has two names")
	}
	s.named = name
	return reasoningEvent + step, nil
}

const (
	reasoningEvent     = "response.reasoning_text"
	openReasoningEvent = "response.reasoning" // Open Responses' name
)

// response checks an event that has the response object.
func (s *stream) response(kind string, r gjson.Result) error {
	if err := checkStatus(r); err != nil {
		return err
	}

	status := r.Get("status").Str
	switch kind {
	case "response.created", "response.queued", "response.in_progress":
		if err := s.begin(kind, status, r.Get("background").Bool()); err != nil {
			return err
		}
	default:
		// Clients know no event of the name response.cancelled.
		cancelled := kind == "response.incomplete" && status == "cancelled" && r.Get("background").Bool()
		if s.phase != phaseRunning || kind != "response."+status && !cancelled {
			return errors.New("not the end of a stream")
		}
		s.phase = phaseOver
		if err := s.final(r); err != nil {
			return err
		}
	}

	err := s.sameHead(r)
	s.head = r
	return err
}

// begin checks the events with which a stream begins. A background response is
// queued first.
func (s *stream) begin(kind, status string, background bool) error {
	want := []struct{ kind, status string }{{"response.created", "in_progress"}, {"response.in_progress", "in_progress"}}
	if background {
		want = []struct{ kind, status string }{{"response.created", "queued"}, {"response.queued", "queued"}, {"response.in_progress", "in_progress"}}
	}

	n := int(s.next) - 1
	if n >= len(want) || kind != want[n].kind || status != want[n].status {
		return errors.New("not the beginning of a stream")
	}

	if n == len(want)-1 {
		s.phase = phaseRunning
	}

	return nil
}

// sameHead checks that what does not change in a response has not changed.
func (s *stream) sameHead(r gjson.Result) (err error) {
	changing := map[string]bool{"status": true, "completed_at": true, "error": true, "incomplete_details": true, "output": true, "usage": true, "store": true}
	// It could not be given the items.
	if r.Get("conversation").Type == gjson.Null {
		changing["conversation"] = true
	}

	// By raw text, so that the order of a schema's members and the digits of numbers count too.
	s.head.ForEach(func(k, v gjson.Result) bool {
		if !changing[k.Str] && r.Get(k.Str).Raw != v.Raw {
			err = fmt.Errorf("%s has changed", k.Str)
		}
		return err == nil
	})

	return err
}

// final checks that the response has the items that the events have told.
func (s *stream) final(r gjson.Result) error {
	output := r.Get("output").Array()
	for i, o := range s.items {
		// A response that failed has its open item; one that was ended from outside may lack it.
		switch here := len(output) > 0 && output[0].Get("id").Str == o.id; {
		case o.done != "" && (!here || output[0].Raw != o.done):
			return fmt.Errorf("item %d is not as it was told", i)
		case o.done != "":
		case !here && endedOutside(r):
			continue
		case r.Get("status").Str != failed:
			return fmt.Errorf("item %d is open", i)
		case !here || hasStatus(output[0]) && output[0].Get("status").Str != "incomplete":
			return fmt.Errorf("item %d, which is open, is not there as incomplete", i)
		default:
			if err := o.sameText(output[0]); err != nil {
				return err
			}
		}

		output = output[1:]
	}

	if len(output) > 0 {
		return fmt.Errorf("%d items were told, the response has %d more", len(s.items), len(output))
	}

	return nil
}

func (s *stream) added(e gjson.Result) error {
	item := e.Get("item")
	switch {
	case slices.ContainsFunc(s.items, func(o *streamItem) bool { return o.done == "" && !o.waits() }):
		return errors.New("another item is open")
	case e.Get("output_index").Int() != int64(len(s.items)):
		return errors.New("not the next output_index")
	case hasStatus(item) && item.Get("status").Str != "in_progress":
		return errors.New("the item is not in progress")
	}

	o := newStreamItem(item)
	s.items = append(s.items, o)
	if len(o.texts) > 0 && textOf(item) != "" {
		return errors.New("the item begins with text")
	}

	return nil
}

// end takes the event with which an item ends.
func (o *streamItem) end(item gjson.Result) error {
	// Ids and names are the same in all events of an item: clients join the events by them.
	for _, field := range []string{"type", "id", "call_id", "name", "namespace", "server_label", "approval_request_id", "role", "phase"} {
		if item.Get(field).Raw != o.added.Get(field).Raw {
			return fmt.Errorf("%s is not that of the added item", field)
		}
	}

	if item.Get("status").Str == "in_progress" {
		return errors.New("the item is in progress")
	}
	// Reasoning that is all encrypted has no events of text, as at OpenAI.
	if isEncrypted(item) && !o.begun() {
		o.texts = nil
	}
	if text := o.unfinished(); text != "" {
		return fmt.Errorf("%s of the item is not done", text)
	}

	if o.tool != nil {
		if err := o.tool.over(item); err != nil {
			return err
		}
	}

	for _, t := range o.texts {
		if t.event != "response.output_text" {
			continue
		}
		if err := sameAnnotations(item.Get("content.0"), t.annotations); err != nil {
			return err
		}
		if err := t.sameLogprobs(item.Get("content.0.logprobs")); err != nil {
			return err
		}
	}

	if err := o.sameAction(item); err != nil {
		return err
	}

	o.done = item.Raw

	return o.sameText(item)
}
