package prompt

import (
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// What hints to an engine's cache need of a prompt.

// HeadTokens returns how many tokens the prompt has before the conversation: instructions and tools.
func (p *Prompt) HeadTokens() int { return len(p.head.last.tokens) }

// Answered returns the ids of the calls whose results the model has not seen yet.
func (c *Conversation) Answered() (ids []string) {
	for _, it := range slices.Backward(c.items) {
		switch it.Kind {
		case item.Result:
			ids = append(ids, it.CallID)
		case item.User, item.Instructions, item.Tools:
			// The user may have said something while tools ran.
		default:
			return ids
		}
	}
	return ids
}

// Unanswered returns the index of the first token that the turn's answer changes: there the first reasoning
// after the last answer begins, which the format drops then. It is the length of a prompt that has none.
func Unanswered(tokens []harmony.Token) int {
	final := append([]harmony.Token{harmony.TokenChannel}, harmony.AppendEncode(nil, harmony.ChannelFinal)...)
	from := len(tokens) - len(final)
	for from >= 0 && !slices.Equal(tokens[from:from+len(final)], final) {
		from--
	}
	from = max(from, 0)

	analysis := append([]harmony.Token{harmony.TokenChannel}, harmony.AppendEncode(nil, harmony.ChannelAnalysis)...)
	for i := from; i <= len(tokens)-len(analysis); i++ {
		if slices.Equal(tokens[i:i+len(analysis)], analysis) {
			for tokens[i] != harmony.TokenStart && i > 0 {
				i--
			}
			return i
		}
	}
	return len(tokens)
}
