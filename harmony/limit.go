package harmony

import (
	"context"
	"fmt"
)

// LimitError says that a conversation has more tokens than it may have.
type LimitError struct {
	// AtLeast is a lower bound of the tokens: the rest was not encoded.
	AtLeast int
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("the conversation has at least %d tokens: shorten it", e.AtLeast)
}

// checkBytes is how much text is encoded between two looks at the bounds.
const checkBytes = 32 << 10

// bounds end an encoding early. A nil *bounds ends none.
type bounds struct {
	ctx       context.Context
	limit     int // of tokens
	unchecked int // bytes of text since the last look
	err       error
}

// spend notes that n more bytes have been encoded and that there are at least
// so many tokens. It reports whether the encoding may go on; b.err says why not.
func (b *bounds) spend(n, tokens int) bool {
	if b == nil {
		return true
	}
	b.unchecked += n
	if b.unchecked >= checkBytes && b.err == nil {
		b.unchecked = 0
		if b.err = b.ctx.Err(); tokens > b.limit {
			b.err = &LimitError{tokens}
		}
	}
	return b.err == nil
}

// admits reports whether n bytes of text may be within the limit behind this
// many tokens, as far as their number tells.
func (b *bounds) admits(n, tokens int) bool {
	if b == nil {
		return true
	}
	if least := tokens + (n+maxTokenSize-1)/maxTokenSize; least > b.limit && b.err == nil {
		b.err = &LimitError{least}
	}
	return b.err == nil
}

// admitsPiece is admits for the long piece s[i:end]. It costs no memory and
// much less than to encode a piece that is far too long. k tokens reach no
// farther than the longest token that begins where k-1 tokens reach or before,
// so it counts how many it takes to reach the end.
func (b *bounds) admitsPiece(s string, i, end, tokens int) bool {
	if b == nil {
		return true
	}
	for at, reach := i, i; reach < end; tokens++ {
		far := reach
		from := at
		for ; at <= reach; at++ {
			_, n := longest(s, at, end-at)
			far = max(far, at+n)
		}
		reach = far
		if tokens >= b.limit && b.err == nil {
			b.err = &LimitError{tokens + 1}
		}
		if !b.spend(at-from, tokens+1) {
			return false
		}
	}
	return true
}
