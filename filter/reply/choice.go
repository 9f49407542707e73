package reply

import (
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Choice is one of the choices of a reply. All of them are read from one model call.
type Choice struct {
	Index int

	machine *Machine
	reader  *turn.Reader // of the current turn; nil until there is one
	state   choiceState
	begun   bool       // its first events are written
	kept    *turn.Keep // of the reader, once its job has been returned

	// The part that is being read, and its text in this push.
	part    Part
	text    []byte
	gathers bool // the whole text of the part is needed
	writing bool // the part has no end yet

	// inline is for the text of nearly every push, so that it takes no allocation.
	inline [64]byte
}

// choiceState is how far a choice is. Push and Step lead from one to the next; the next
// turn begins at generating again.
type choiceState uint8

const (
	generating choiceState = iota // its output is being read
	complete                      // its output is complete
	finishSent                    // the client has been told why it ended
)

// Finish returns why the choice ended; [turn.FinishNone] while it goes on.
func (c *Choice) Finish() turn.Finish { return c.reader.Finish() }

// Matched returns the client's stop condition that ended the choice, or nil.
func (c *Choice) Matched() *turn.StopMatch { return c.reader.Matched() }

// Calls returns how many calls the choice has made in this turn.
func (c *Choice) Calls() int { return c.reader.Calls() }

// acts reports whether the choice has made a call, or is writing one.
func (c *Choice) acts() bool {
	return c.reader != nil && c.reader.Calls() > 0 || c.writing && c.part.Kind == turn.Call
}

// TurnFollows reports whether the choice has ended, and another turn may follow it: there
// is nothing for the client to do.
func (c *Choice) TurnFollows() bool {
	m := c.machine
	answered := m.current.answered()

	return answered > 0 && c.Calls() == answered && c.Finish() != turn.FinishLength && !m.last() && m.stop == 0
}

// Push takes a chunk of the model call being made, and appends what the client gets of it.
func (m *Machine) Push(dst []byte, chunk *engine.Chunk) ([]byte, *apierror.Error) {
	// A call that was dropped may have chunks on their way.
	if m.phase != calling || m.failure != nil {
		return dst, nil
	}
	if err := chunk.Refusal(len(m.choices)); err != nil {
		return dst, err
	}

	// Engines report the cache with any chunk, also with one that has no tokens. The call has
	// one prompt, whatever the number of choices.
	if chunk.Usage != nil && chunk.Usage.CachedTokens != engine.Unknown {
		m.calls[len(m.calls)-1].Cached = chunk.Usage.CachedTokens
		m.choices[0].reader.Cached(chunk.Usage)
	}
	if chunk.Fingerprint != "" {
		m.fingerprint = chunk.Fingerprint
	}
	// A stream does not begin before the model has: an engine may still refuse.
	if len(chunk.Tokens) == 0 && chunk.Finish == engine.FinishNone {
		return dst, nil
	}

	m.dst = dst
	err := m.push(&m.choices[chunk.Index], chunk)
	dst, m.dst = m.dst, nil
	return dst, err
}

func (m *Machine) push(c *Choice, chunk *engine.Chunk) *apierror.Error {
	m.begin(c)
	taken, err := c.reader.Push(chunk)
	return m.settle(c, chunk.Tokens[:taken], err)
}

// closeChoices ends the choices whose end the engine has not reported.
func (m *Machine) closeChoices() *apierror.Error {
	for i := range m.choices {
		c := &m.choices[i]
		m.begin(c)
		if err := m.settle(c, nil, c.reader.Close()); err != nil {
			return err
		}
	}
	return nil
}

// begin writes the first events of a choice, once.
func (m *Machine) begin(c *Choice) {
	if !c.begun && m.o.Stream {
		c.begun = true
		m.dst = m.o.Encoder.Begin(m.dst, c)
	}
}

// Begun says that the first events of the reply have been written already.
func (m *Machine) Begun() { m.choices[0].begun = true }

// settle ends what the last tokens of a choice have begun to write, and the choice if
// they have ended it. err is what was wrong with them.
func (m *Machine) settle(c *Choice, tokens []harmony.Token, err *apierror.Error) *apierror.Error {
	c.flush()

	ends := err == nil && c.state == generating && c.Finish() != turn.FinishNone
	if ends {
		c.state = complete
	}
	if m.o.Settler == nil {
		return err
	}

	// Text that came before the fault is the client's all the same, with its tokens. The
	// fault is what the reply fails with, whatever the encoder says.
	if err != nil {
		m.dst, _ = m.o.Settler.Settle(m.dst, c, tokens)
		return err
	}
	if m.dst, err = m.o.Settler.Settle(m.dst, c, tokens); err != nil {
		return err
	}

	// A client may send the next request as soon as it knows the end of a choice: what that
	// needs is stored first.
	if ends && m.o.Stream && !c.TurnFollows() && c.reader.Kept() == nil {
		c.state = finishSent
		m.dst = m.o.Settler.Finish(m.dst, c)
	}
	return nil
}

// events returns what takes the events of the choice's reader. It is a function literal and no
// method: calling a method's value copies the event once more, and there is one for each token.
func (c *Choice) events() func(turn.Event) {
	return func(e turn.Event) {
		switch e.Step {
		case turn.Start:
			c.open(e)
		case turn.Delta:
			// The encoder gets the text of all tokens of the push at once.
			c.text = append(c.text, e.Text...)
			if len(e.Logprobs) > 0 {
				c.part.Logprobs = turn.AppendLogprobs(c.part.Logprobs, e.Logprobs)
			}
		case turn.End:
			c.close(e.Cut)
		}
	}
}

// open begins a part.
func (c *Choice) open(e turn.Event) {
	m, p := c.machine, &c.part
	// The parts of a choice share their buffers: they do not overlap.
	c.writing = true
	*p = Part{Choice: c, Kind: e.Kind, Call: e.Call, Logprobs: p.Logprobs[:0], Whole: p.Whole[:0]}
	if m.o.Tools != nil && e.Kind == turn.Call {
		p.Maker = m.o.Tools.Maker(e.Call, m.last())
	}
	c.gathers = p.Maker == ByFilter || m.remembers()

	if p.Maker != ByNobody {
		m.dst = m.o.Encoder.Open(m.dst, p)
	}
}

// flush hands the text of the push to the encoder.
func (c *Choice) flush() {
	if len(c.text) == 0 {
		return
	}

	m := c.machine
	c.gather()
	if c.part.Maker != ByNobody {
		m.dst = m.o.Encoder.Delta(m.dst, &c.part, c.text)
	}
	c.text, c.part.Logprobs = c.text[:0], c.part.Logprobs[:0]
}

func (c *Choice) gather() {
	if c.gathers {
		c.part.Whole = append(c.part.Whole, c.text...)
	}
}

// close ends the part.
func (c *Choice) close(cut bool) {
	m := c.machine
	c.writing = false
	c.gather()
	if c.part.Maker != ByNobody {
		m.dst = m.o.Encoder.Close(m.dst, &c.part, c.text, cut)
	}
	c.text, c.part.Logprobs = c.text[:0], c.part.Logprobs[:0]

	if m.remembers() {
		m.remember(&c.part)
	}
	if c.part.Kind == turn.Call {
		m.called(&c.part, cut)
	}
}
