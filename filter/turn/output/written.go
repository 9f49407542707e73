package output

import (
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/turn/kept"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// writtenTokens collects the tokens of a choice. The zero value collects nothing.
type writtenTokens struct {
	on bool
	// Prompts may have them; else they are for the diagnosis alone.
	exact bool
	// From the <|start|> of the first message on, which the prompt ends with.
	tokens []harmony.Token
}

// maxWritten bounds the tokens that are collected. What has more is not kept.
const maxWritten = kept.MaxBytes / 4

// begunMessage is what prompts end with.
var begunMessage = harmony.AppendEncodeSpecial(nil, "<|start|>assistant")

// newWritten begins to collect, where calls can be made.
func (p *Plan) newWritten() writtenTokens {
	exact := p.rc.Model.History == request.HistoryExact
	if !exact && p.Diagnosis == nil || p.noCalls || p.tools.Empty() {
		return writtenTokens{}
	}
	return writtenTokens{on: true, exact: exact, tokens: slices.Clone(p.begunMessage())}
}

// begunMessage returns the beginning of the model's message that the prompt ends with.
func (p *Plan) begunMessage() []harmony.Token {
	if len(p.Begun) > 0 {
		return p.Begun
	}
	return begunMessage
}

func (w *writtenTokens) add(token harmony.Token) {
	if len(w.tokens) >= maxWritten {
		*w = writtenTokens{}
		return
	}
	w.tokens = append(w.tokens, token)
}

// writtenChoice returns what the model wrote in the choice, which has ended; nil if it must not
// stand in a prompt as it is. Nothing that had to be repaired may, by whomever: a model that
// sees its mistakes repeats them.
func (r *Reader) writtenChoice() *kept.Written {
	w := &r.written
	parsed := r.parser.Repairs()
	if !w.exact || r.ending.truncated || r.ending.matched != nil || len(r.repairs) > 0 || parsed.Total() > 0 {
		return nil
	}

	return kept.NewWritten(r.calls, withoutEnd(w.tokens))
}

// withoutEnd returns the tokens of a choice without the end of its last message. The engine does not
// generate on after that, and may not even report its token: it has nothing of it in its cache.
func withoutEnd(written []harmony.Token) []harmony.Token {
	if last := len(written) - 1; endsMessage(written[last]) {
		return written[:last]
	}
	return written
}
