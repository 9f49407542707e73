package chat

import (
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// maxLogprobs bounds the log probabilities of a choice of a whole object, in bytes.
// A stream does not collect them.
const maxLogprobs = 32 << 20

// appendLogprobs appends the member logprobs of a choice; each of the entries is
// followed by a comma.
func appendLogprobs(dst, entries []byte) []byte {
	dst = append(dst, `,"logprobs":{"content":[`...)
	if len(entries) > 0 {
		dst = append(dst, entries[:len(entries)-1]...)
	}
	return append(dst, `],"refusal":null}`...)
}

// appendEntries appends an entry for each token, followed by a comma. Control tokens
// among the most likely tokens are left out: no client may see them.
func appendEntries(dst []byte, logprobs []turn.Logprob) []byte {
	for i := range logprobs {
		p := &logprobs[i]
		dst = appendTokenLogprob(dst, p.Token, p.Value)
		dst = append(dst, `,"top_logprobs":[`...)
		comma := false
		for _, t := range p.Top {
			if t.Token >= harmony.TokenStartOfText {
				continue
			}
			if comma {
				dst = append(dst, ',')
			}
			comma = true
			dst = append(appendTokenLogprob(dst, t.Token, t.Logprob), '}')
		}
		dst = append(dst, `]},`...)
	}
	return dst
}

// appendTokenLogprob appends the members that all entries have, without the closing
// brace.
func appendTokenLogprob(dst []byte, token harmony.Token, logprob float64) []byte {
	var buf [128]byte                                                  // longer than nearly every token
	text, err := harmony.AppendDecode(buf[:0], []harmony.Token{token}) //nolint:gosec // buf is not indexed
	if err != nil {
		text = nil // an id outside the vocabulary
	}
	dst = append(appendTokenText(append(dst, `{"token":"`...), text), `","logprob":`...)
	dst = strconv.AppendFloat(dst, logprob, 'f', -1, 64)
	if logprob == math.Trunc(logprob) {
		dst = append(dst, ".0"...)
	}
	dst = append(dst, `,"bytes":[`...)
	for i, c := range text {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(c), 10)
	}
	return append(dst, ']')
}

// appendTokenText appends a token's text as it stands between the quotes of JSON.
// Bytes of incomplete characters are written as \x9f, as OpenAI does.
func appendTokenText(dst, text []byte) []byte {
	const hex = "0123456789abcdef"
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		if r == utf8.RuneError && size == 1 {
			dst = append(dst, '\\', '\\', 'x', hex[text[0]>>4], hex[text[0]&15])
		} else {
			dst = jsontext.AppendEscaped(dst, text[:size])
		}
		text = text[size:]
	}
	return dst
}
