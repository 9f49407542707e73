package record

import (
	"github.com/envoy-harmony/envoy-harmony/filter/diagnosis"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// Prompts returns p with what comparing the exchange's prompts finds taken down; nil for
// nil.
func (t *Tape) Prompts(p turn.Prompts) turn.Prompts {
	if p == nil {
		return nil
	}
	return recordedPrompts{p, t}
}

type recordedPrompts struct {
	turn.Prompts

	tape *Tape
}

// Find implements [turn.Prompts].
func (p recordedPrompts) Find(name diagnosis.Session, now *diagnosis.Print) diagnosis.Finding {
	return p.tape.found(p.Prompts.Find(name, now))
}

// FindReply implements [turn.Prompts].
func (p recordedPrompts) FindReply(name diagnosis.Session, id string, now *diagnosis.Print) diagnosis.Finding {
	return p.tape.found(p.Prompts.FindReply(name, id, now))
}

func (t *Tape) found(f diagnosis.Finding) diagnosis.Finding {
	t.add(0, Event{Kind: KindFound, Found: &f})
	return f
}
