package output

import (
	"math"
	"net/http"
	"strconv"
	"unicode/utf8"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// MaxLogprobs is the most log probabilities that are collected for a choice, in bytes
// of their JSON.
const MaxLogprobs = 32 << 20

// LogprobsTooLarge returns the error for log probabilities above [MaxLogprobs] in a
// reply that is one object. param is the request field that asks for them, limit the
// one that limits the output.
func LogprobsTooLarge(param, limit string) *apierror.Error {
	return apierror.New(http.StatusBadRequest, "logprobs_too_large", param,
		"The log probabilities of the reply are larger than %d MiB. "+
			"Ask for a stream, or for less with %s or top_logprobs.", MaxLogprobs>>20, limit)
}

// AppendLogprobs appends OpenAI's entry {"token","logprob","bytes","top_logprobs"} for
// each token, followed by a comma. Control tokens among the most likely tokens are
// left out: no client may see them.
func AppendLogprobs(dst []byte, logprobs []item.Logprob) []byte {
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

// AppendLogprobsArray appends the array of the entries that [AppendLogprobs] made.
func AppendLogprobsArray(dst, entries []byte) []byte {
	dst = append(dst, '[')
	if len(entries) > 0 {
		dst = append(dst, entries[:len(entries)-1]...)
	}
	return append(dst, ']')
}

// appendTokenLogprob appends the members that all entries have, without the closing
// brace.
func appendTokenLogprob(dst []byte, token harmony.Token, logprob float64) []byte {
	// Longer than nearly every token, so that nothing is allocated.
	var buf [128]byte
	text, err := harmony.AppendDecode(buf[:0], []harmony.Token{token}) //nolint:gosec // buf is not indexed
	// An id outside the vocabulary.
	if err != nil {
		text = nil
	}

	dst = append(appendTokenText(append(dst, `{"token":"`...), text), `","logprob":`...)
	dst = strconv.AppendFloat(dst, logprob, 'f', -1, 64)
	// Clients of typed languages read a float, and OpenAI sends one.
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
