package kept

import (
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// sentStep is what a client has sent back of a step.
type sentStep struct {
	reasoning []string
	preambles []string
	// Those that have come, by id.
	calls map[string]*item.Item
	// How many results of these have come.
	answered int
}

// asWritten returns the items of the step that begins at begin as the model wrote them, with the
// results of its calls after them, and where they end. It returns nil unless they mean the same:
// nothing that a client has changed is undone. open reports that the items end before all calls of
// the choice have come.
func asWritten(
	rc *request.Context, items []item.Item, begin int, choice *Written,
) (same []item.Item, end int, open bool) {
	if choice.messages == nil {
		return nil, 0, false
	}

	// Where calls have results between them, the items of one choice are looked at by many steps.
	sent, results, end := sentOf(items, begin, choice)
	if !takesWork(rc, end-begin) {
		return nil, 0, false
	}
	if sent.answered < len(choice.calls) {
		return nil, 0, end == len(items)
	}
	if !affordsComparison(rc, items[begin:end], choice) || !sent.means(choice) {
		return nil, 0, false
	}

	same = make([]item.Item, 0, len(choice.messages)+len(results))
	next := 0
	for i := range choice.messages {
		m := &choice.messages[i]
		it := item.Item{Kind: item.KindOf(m.Channel)}
		if m.Recipient != "" {
			it = *sent.calls[choice.calls[next]]
			next++
		}
		it.Written = m
		same = append(same, it)
	}
	return append(same, results...), end, false
}

// sentOf returns what the items from begin on say, up to the last result of the choice's calls,
// the results, with tools that join between them, and the index after it. It ends early at anything
// else. All results must follow: where calls of one tool are put into the model's order, their results
// are put into the same, and those that come later could not be.
func sentOf(items []item.Item, begin int, choice *Written) (s sentStep, results []item.Item, end int) {
	s.calls = map[string]*item.Item{}
	for end = begin; end < len(items) && s.answered < len(choice.calls); end++ {
		it := &items[end]
		switch it.Kind {
		// Of an empty text the model would see nothing.
		case item.Reasoning, item.Preamble:
			s.say(it)
		case item.Call:
			if !choice.ids[it.CallID] || s.calls[it.CallID] != nil {
				return s, results, end
			}
			s.calls[it.CallID] = it
		case item.Result:
			if s.calls[it.CallID] == nil {
				return s, results, end
			}
			s.answered++
			results = append(results, *it)
		case item.Tools:
			if len(s.calls) < len(choice.calls) {
				return s, results, end
			}
			results = append(results, *it)
		default:
			return s, results, end
		}
	}
	return s, results, end
}

func (s *sentStep) say(it *item.Item) {
	switch {
	case it.Blank():
	case it.Kind == item.Reasoning:
		s.reasoning = append(s.reasoning, it.Text)
	default:
		s.preambles = append(s.preambles, it.Text)
	}
}

// means reports whether what was sent means what the model wrote. Reasoning may be left out: many
// clients do not know it. The order of texts and calls among each other is the client's format's.
func (s *sentStep) means(choice *Written) bool {
	var reasoning, preambles []string
	next := 0
	for i := range choice.messages {
		m := &choice.messages[i]
		text := string(m.Content[0].(harmony.Text))

		switch {
		case m.Recipient != "":
			if !sameCall(s.calls[choice.calls[next]], m, text) {
				return false
			}
			next++
		case item.KindOf(m.Channel) == item.Reasoning:
			reasoning = append(reasoning, text)
		default:
			preambles = append(preambles, text)
		}
	}

	return sameTexts(s.preambles, preambles) && (len(s.reasoning) == 0 || sameTexts(s.reasoning, reasoning) ||
		isRest(joinTexts(s.reasoning, asIs), joinTexts(reasoning, asIs)))
}

// sameCall reports whether a call that was sent is the one of a message.
func sameCall(sent *item.Item, m *harmony.Message, text string) bool {
	switch {
	case !item.Calls(m, sent.Tool()):
		return false
	// Most clients send arguments back as they are.
	case sent.Text == text:
		return true
	}
	return !sent.Tool().IsCode() && jsontext.Same(item.ShownArguments(sent), text)
}

// sameTexts reports whether texts are the same except for white space around them. A client, and
// a format that has only one of them, may have joined them by an empty line.
func sameTexts(sent, written []string) bool {
	return joinTexts(sent, asIs) == joinTexts(written, asIs) ||
		joinTexts(sent, strings.TrimSpace) == joinTexts(written, strings.TrimSpace)
}

func asIs(text string) string { return text }

func joinTexts(texts []string, cut func(string) string) string {
	if len(texts) == 1 {
		return strings.TrimSpace(texts[0])
	}

	parts := make([]string, 0, len(texts))
	for _, text := range texts {
		if text = cut(text); text != "" {
			parts = append(parts, text)
		}
	}
	return strings.TrimSpace(strings.Join(parts, "\n\n"))
}

// comparedBytes is how many bytes are compared in a step of work, of the texts that were sent and
// of those that the model wrote.
const comparedBytes = 8

// affordsComparison takes the work of comparing a step. Without it the step is rendered as the
// client has sent it.
func affordsComparison(rc *request.Context, sent []item.Item, choice *Written) bool {
	size := 0
	for i := range sent {
		if sent[i].Kind.OfModel() {
			size += len(sent[i].Text)
		}
	}
	for i := range choice.messages {
		size += len(choice.messages[i].Content[0].(harmony.Text))
	}
	return takesWork(rc, size/comparedBytes+1)
}

// takesWork takes steps of work if there are that many left.
func takesWork(rc *request.Context, steps int) bool {
	return rc.Work.Affords(steps) && rc.Work.Spend(steps) == nil
}
