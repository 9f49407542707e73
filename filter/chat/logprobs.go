package chat

import (
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// maxLogprobs bounds the log probabilities of a choice of a whole reply, in
// bytes. A stream needs no bound.
const maxLogprobs = 32 << 20

// appendLogprobs appends the member logprobs of a choice; entries have a comma
// behind each.
func appendLogprobs(dst, entries []byte) []byte {
	dst = append(dst, `,"logprobs":{"content":[`...)
	if len(entries) > 0 {
		dst = append(dst, entries[:len(entries)-1]...)
	}
	return append(dst, `],"refusal":null}`...)
}

// appendEntries appends an entry for each token, with a comma behind it. Of the
// likeliest tokens control tokens are left out, which no client sees.
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

// appendTokenLogprob appends the members of an entry that all have, and no
// closing bracket.
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

// appendTokenText appends a token's text as it stands between quotes. Bytes that
// are a part of a character only are spelled \x9f, as OpenAI does.
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
