package write

import (
	"errors"
	"fmt"
	"maps"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// modelCalls is the model calls of a reply: the one being made, and what those before
// it came to.
type modelCalls struct {
	reader   *turn.Reader // nil before the first call
	usage    usage
	past     turn.Summary // of the calls before the one being made
	messages *messages    // nil: the client does not want them
	kept     *turn.Keep   // of the last answer, once its job has been returned
	fault    error

	diagnosis *turn.Diagnosis // of the first prompt of the conversation; nil: there is none
	compacted int             // tokens of the summary with which the reply begins
}

// begin begins a model call. Its answer's events go to emit.
func (m *modelCalls) begin(t *turn.Turn, emit func(turn.Event)) {
	m.count()
	if m.reader != nil {
		m.reader.AddTo(&m.past)
	}
	m.note(t.Fault())
	if d := t.Diagnosis(); d != nil {
		m.diagnosis = d
	}
	m.reader = t.NewReader(emit)
	m.usage.begin(t.PromptTokens())
	if n := m.usage.toolOutput(len(m.usage.turns) - 1); n < 0 && (m.compacted == 0 || m.usage.calls() != 2) {
		m.note(fmt.Errorf("the prompt of a model call is %d tokens shorter than that of the one before with its output: its tool_output_tokens are 0", -n))
	}
	if m.messages != nil {
		m.messages.begin(t.Engine.Prompt)
	}
}

func (m *modelCalls) note(err error) { m.fault = errors.Join(m.fault, err) }

// push takes a chunk of the answer.
func (m *modelCalls) push(chunk *engine.Chunk) *apierror.Error {
	taken, err := m.reader.Push(chunk)
	if m.messages != nil {
		m.messages.tokens = append(m.messages.tokens, chunk.Tokens[:taken]...)
	}
	return err
}

// count brings the usage up to where the model call is.
func (m *modelCalls) count() {
	if m.reader == nil {
		return
	}
	counts, last := m.reader.Counts(), m.usage.last()
	last.output, last.reasoning = counts.Output, counts.Reasoning
}

// finish is why the answer ended; turn.FinishNone while it has not.
func (m *modelCalls) finish() turn.Finish {
	if m.reader == nil {
		return turn.FinishNone
	}
	return m.reader.Finish()
}

// keep is the job that keeps the reasoning of an answer that has ended, once; nil if
// there is nothing to keep.
func (m *modelCalls) keep() *turn.Keep {
	if m.reader == nil || m.reader.Kept() == m.kept {
		return nil
	}
	m.kept = m.reader.Kept()
	return m.kept
}

// summary is what the calls have come to so far.
func (m *modelCalls) summary() turn.Summary {
	all := m.usage.total()
	s := m.past
	s.Prompt, s.Cached, s.ModelCalls = all.input, all.cached, m.usage.calls()
	s.Repairs = maps.Clone(s.Repairs)
	if m.reader != nil {
		s.Finish = m.reader.Finish()
		m.reader.AddTo(&s)
	}
	return s
}
