package inspect

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/diagnosis"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// watcher takes the events of a record in their order.
type watcher struct {
	view   *View
	marker *marker
	reply  strings.Builder
	// shown is how many tokens of prompts the view has.
	shown int
	// last is the time of the last event.
	last int64

	// The last model call.

	prompt []harmony.Token
	// called is when it was made.
	called int64
	// first is when its first tokens came; 0: none yet.
	first int64
	// open: it has not ended.
	open   bool
	output map[int]*output
}

// output is what a choice has said so far.
type output struct {
	tokens []harmony.Token
	pieces []Piece
}

func (w *watcher) take(e *record.Event) {
	switch e.Kind {
	case record.KindCall:
		w.call(e)
	case record.KindAnswer:
		if c := w.current(); c != nil {
			c.Status, c.Replica = e.Answer.Status, e.Answer.Replica
		}
	case record.KindTokens:
		w.tokens(e)
	case record.KindEnd:
		w.endCall("end")
	case record.KindBroken:
		why := "broken: " + e.Text.String()
		if e.Error != nil && e.Error.Message != "" {
			why += ": " + e.Error.Message
		}
		w.endCall(why)
	case record.KindTool:
		w.step("tool", strings.TrimSuffix(e.Tool.Server+"."+e.Tool.Tool, "."), e.At-e.Tool.Micros, e.At)
	case record.KindStore:
		w.step("store", e.Store.Operation, e.At-e.Store.Micros, e.At)
	case record.KindSent:
		w.reply.Write(e.Text.Bytes())
		w.view.Reply = w.reply.String()
	case record.KindRefused:
		w.view.Refused = e.Error.Message
	case record.KindFound:
		w.found(e.Found)
	case record.KindCancel:
		w.endCall("the client has left")
	}

	// Jobs run side by side: their events may come out of order.
	w.last = max(w.last, e.At)
}

// found takes what comparing the prompt with those of its session has found.
func (w *watcher) found(f *diagnosis.Finding) {
	if f == nil || f.Cause == diagnosis.None {
		return
	}
	w.view.Prefix = fmt.Sprintf(
		"%s: from token %d on, in message %d (%s); %d tokens are shared, %d lost", f.Cause, f.Token, f.Message,
		f.Role, f.Shared, f.Lost,
	)
}

func (w *watcher) current() *Call {
	if !w.open || len(w.view.Calls) == 0 {
		return nil
	}
	return &w.view.Calls[len(w.view.Calls)-1]
}

func (w *watcher) step(name, of string, from, to int64) {
	w.view.Steps = append(w.view.Steps, Step{Name: name, Of: of, From: max(from, 0), To: max(to, from, 0)})
}

// callStep adds a step of the last call.
func (w *watcher) callStep(name string, from, to int64) {
	calls := len(w.view.Calls)
	w.step(name, w.view.Calls[calls-1].ID, from, to)
	w.view.Steps[len(w.view.Steps)-1].Call = calls
}

// continues matches the ids of calls that continue the output of the call before.
var continues = regexp.MustCompile(`-c\d+$`)

func (w *watcher) call(e *record.Event) {
	if continues.MatchString(e.Call.ID) {
		w.endCall("continued")
	} else {
		w.endCall("repeated")
	}
	if len(w.view.Calls) == 0 {
		w.step("decode", "", 0, e.At)
	}

	// A copy of the beginning: the views of earlier calls have its memory.
	c := e.Call
	w.prompt = append(slices.Clone(w.prompt[:min(c.Shared, len(w.prompt))]), c.Prompt...)
	w.called, w.first, w.open, w.output = e.At, 0, true, map[int]*output{}

	w.view.Calls = append(w.view.Calls, Call{
		ID: c.ID, Retry: c.Retry, Options: string(c.Options), Tokens: c.Count, Shared: c.Shared,
		Prompt: w.promptMessages(c.Shared), Output: []Message{},
	})
}

// maxShown is of how many tokens the prompts of an exchange are shown whole.
const maxShown = 1 << 19

// promptMessages returns the messages of the prompt. Behind maxShown they are those that the
// call before did not have: a long exchange has many calls, each with the prompt so far.
func (w *watcher) promptMessages(shared int) []Message {
	// A long exchange repeats its prompt with each call. Beyond the bound only what is new is shown,
	// from the beginning of its message.
	from := 0
	if w.shown+len(w.prompt) > maxShown && len(w.view.Calls) > 0 {
		for from = min(shared, len(w.prompt)-1); from > 0 && w.prompt[from] != harmony.TokenStart; {
			from--
		}
	}

	from = max(from, 0)
	messages := Messages(w.prompt[from:], "")
	for i := range messages {
		messages[i].Start += from
	}
	w.shown += len(w.prompt) - from
	return messages
}

func (w *watcher) tokens(e *record.Event) {
	c, t := w.current(), e.Tokens
	if c == nil {
		return
	}
	if w.first == 0 && len(t.IDs)+t.Count > 0 {
		w.first = e.At
		w.callStep("queue", w.called, e.At)
	}

	o := w.output[t.Choice]
	if o == nil {
		o = &output{}
		w.output[t.Choice] = o
	}

	for i, id := range t.IDs {
		p := Piece{ID: id, At: e.At}
		if i < len(t.Logprobs) {
			p.Logprob = &t.Logprobs[i].Value
		}
		o.tokens, o.pieces = append(o.tokens, id), append(o.pieces, p)
	}

	if t.Usage && t.Cached >= 0 {
		c.Cached = &t.Cached
	}
	if t.Finish != "" {
		c.Ended = t.Finish
	}
}

// endCall ends the last call. Its own reason to end takes precedence.
func (w *watcher) endCall(why string) {
	c := w.current()
	if c == nil {
		return
	}

	// A break is shown also where the engine had said already that it has finished.
	w.open = false
	if c.Ended == "" || strings.HasPrefix(why, "broken") {
		c.Ended = why
	}
	if w.first > 0 {
		w.callStep("generate", w.first, w.last)
	} else {
		w.callStep("queue", w.called, w.last)
	}

	begun := begunMessage(w.prompt)

	// Choices are few and nearly always numbered from 0 on; one may be missing.
	for choice := range len(w.output) + 1 {
		o := w.output[choice]
		if o == nil {
			continue
		}
		messages := outputMessages(begun, o.tokens)
		for i := range messages {
			messages[i].Choice = choice
			for j := range messages[i].Pieces {
				said := &o.pieces[messages[i].Start+j]
				messages[i].Pieces[j].At, messages[i].Pieces[j].Logprob = said.At, said.Logprob
			}
		}
		w.marker.read(begun, messages)
		c.Output = append(c.Output, messages...)
	}
}

// begunMessage returns the message that a prompt has begun: its last header, and the text so far if the call continues
// the output of another one.
func begunMessage(prompt []harmony.Token) []harmony.Token {
	for i, t := range slices.Backward(prompt) {
		if t == harmony.TokenStart {
			return prompt[i:]
		}
	}
	return nil
}

// outputMessages returns the messages of an output whose prompt has begun one.
func outputMessages(begun, output []harmony.Token) []Message {
	if len(begun) == 0 {
		return Messages(output, harmony.RoleAssistant)
	}

	messages := Messages(slices.Concat(begun, output), "")
	for i := range messages {
		m := &messages[i]
		m.Start -= len(begun)
		if m.Start < 0 {
			// The header is the prompt's, what it says is true of the rest.
			m.Pieces = m.Pieces[min(-m.Start, len(m.Pieces)):]
			m.Start = 0
		}
	}
	return slices.DeleteFunc(messages, func(m Message) bool { return len(m.Pieces) == 0 })
}
