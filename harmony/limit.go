package harmony

import (
	"context"
	"fmt"
	"slices"
)

// LimitError is the error for a conversation that has more tokens than the
// limit.
type LimitError struct {
	// AtLeast is a lower bound of the number of tokens. The rest was not encoded.
	AtLeast int
}

// Error returns the lower bound of the tokens and asks to shorten the conversation.
func (e *LimitError) Error() string {
	return fmt.Sprintf("the conversation has at least %d tokens: shorten it", e.AtLeast)
}

// checkBytes is the number of bytes of text that are encoded between two checks
// of the bounds.
const checkBytes = 32 << 10

// nearBytes is that number where the limit is near. The memory for the tokens ends a little behind
// the limit, and what goes beyond it would copy all before it.
const nearBytes = 64

// bounds are conditions that end an encoding early: the end of ctx, or more
// tokens than limit. A nil *bounds has no conditions.
type bounds struct {
	ctx context.Context
	// limit is the number of tokens that may be there at most.
	limit int
	// unchecked counts the bytes of text since the last check.
	unchecked int
	// err is why the encoding ended.
	err error
}

// spend records that n more bytes have been encoded, and that there are at
// least this many tokens so far. It reports whether the encoding may continue;
// if not, b.err is the reason.
func (b *bounds) spend(n, tokens int) bool {
	if b == nil {
		return true
	}
	b.unchecked += n
	if b.err != nil {
		return false
	}
	if b.unchecked >= checkBytes {
		b.unchecked = 0
		b.err = b.ctx.Err()
	}

	// Of both reasons the limit is returned, because the client can do something about it.
	if tokens > b.limit {
		b.err = &LimitError{tokens}
	}
	return b.err == nil
}

// stretch returns how many bytes of text are encoded before the next check, after so many tokens:
// each token has a byte at least.
func (b *bounds) stretch(tokens int) int {
	if b == nil {
		return checkBytes
	}
	return max(nearBytes, min(b.limit-tokens, checkBytes))
}

// fits reports whether this many tokens are within the limit, without looking at the context.
func (b *bounds) fits(tokens int) bool {
	if b == nil {
		return true
	}
	if tokens > b.limit && b.err == nil {
		b.err = &LimitError{b.limit + 1}
	}
	return b.err == nil
}

// admits reports whether n bytes of text after this many tokens can be within
// the limit, given the length of the longest token.
func (b *bounds) admits(n, tokens int) bool {
	if b == nil {
		return true
	}
	if least := tokens + (n+maxTokenSize-1)/maxTokenSize; least > b.limit && b.err == nil {
		b.err = &LimitError{least}
	}
	return b.err == nil
}

// TextBytes is how many bytes of text a token has at least, in most texts.
const TextBytes = 4

// grow returns dst with capacity for the tokens of most texts of n bytes, but not beyond
// the limit. To grow as tokens come would copy them several times, and leave five times
// their memory to the garbage collector.
func (b *bounds) grow(dst []Token, n int) []Token {
	tokens := n / TextBytes
	if b != nil {
		// The sum with the limit could be beyond the largest number.
		const beyond = nearBytes + blockBytes
		tokens = max(0, min(tokens-beyond, b.limit-len(dst))+beyond)
	}

	return slices.Grow(dst, tokens)
}
