package enginesim

import (
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// likelihood is a token and its log probability.
type likelihood struct {
	id    harmony.Token
	value float32
}

// impossible is the log probability of an impossible token.
var impossible = float32(math.Inf(-1))

// rank returns how many tokens are likelier than the one at a position of the
// output. Some of them have no probability at all.
func (c *choice) rank(place int) int {
	if place%11 == 10 {
		return math.MaxInt
	}
	return place % 5
}

// likelihood returns the log probability of the token at a position of the output.
func (c *choice) likelihood(place int) likelihood {
	return likelihood{c.output[place], valueOf(c.rank(place))}
}

// valueOf returns the log probability of a rank. Only the first ranks are possible.
func valueOf(rank int) float32 {
	if rank > 18 {
		return impossible
	}
	return -float32(rank+1) / 4
}

// likeliest returns the n likeliest tokens at a position. The third is an end
// token.
func (c *choice) likeliest(place, n int) []likelihood {
	own, rank := c.output[place], c.rank(place)
	list := make([]likelihood, n)
	for r := range list {
		// Any other ids will do, as long as a test can predict them.
		id := (own + 1 + harmony.Token(r)) % harmony.TokenStartOfText
		switch {
		case r == rank:
			id = own
		// A filter that writes the likeliest tokens as text must be able to work with a special one.
		case r == 2 && own != harmony.TokenReturn:
			id = harmony.TokenReturn
		}
		list[r] = likelihood{id, valueOf(r)}
	}
	return list
}

// ownFirst returns the token at a position and the n likeliest others, in the order
// of vLLM and TensorRT-LLM: the token itself is first and not repeated.
func (c *choice) ownFirst(place, n int) []likelihood {
	list := []likelihood{c.likelihood(place)}
	for _, t := range c.likeliest(place, n) {
		if t.id != list[0].id {
			list = append(list, t)
		}
	}
	return list
}

// readLogprobs reads the number of top log probabilities that vLLM is asked for.
func (p params) readLogprobs() (*int, *apiError) {
	var n *int
	if err := p.get("logprobs", &n); err != nil {
		return nil, err
	}
	if n == nil {
		return nil, nil
	}

	const most = 20
	asked := *n
	if asked == -1 { // the whole vocabulary
		asked = vocabularySize
	}
	switch {
	case asked < 0:
		return nil, badRequest("logprobs", fmt.Sprintf("logprobs must be non-negative or -1, got %d. "+
			"(parameter=logprobs, value=%d)", asked, asked))
	case asked > most:
		return nil, afterHeaders(badRequest("logprobs", fmt.Sprintf("Requested sample logprobs of %d, "+
			"which is greater than max allowed: %d (parameter=logprobs, value=%d)", asked, most, asked)))
	}
	return n, nil
}

// readSGLangLogprobs reads the number of top log probabilities that SGLang is asked
// for.
func (p params) readSGLangLogprobs() (*int, *apiError) {
	on, n := false, 0
	if err := p.getAll(field{"return_logprob", &on}, field{"top_logprobs_num", &n}); err != nil || !on {
		return nil, err
	}
	return &n, nil
}

// appendNumber appends a log probability in vLLM's JSON format.
func appendNumber(b []byte, v float32) []byte {
	return append(b, pythonFloat(max(float64(v), -9999))...)
}

// appendCompletionLogprobs appends the logprobs of vLLM's completions for the
// output from an id on, before which the text has offset characters.
func appendCompletionLogprobs(b []byte, req *modelRequest, c *choice, from, offset int) []byte {
	if req.logprobs == nil {
		return append(b, "null"...)
	}
	name := func(id harmony.Token) string {
		if req.tokensAsIDs {
			return "token_id:" + strconv.FormatUint(uint64(id), 10)
		}
		return show([]harmony.Token{id})
	}

	var offsets, tokens, values, tops []byte
	for place := from; place < len(c.output); place++ {
		own := c.likelihood(place)
		offsets = append(strconv.AppendInt(offsets, int64(offset), 10), ',')
		offset += utf8.RuneCountInString(name(own.id))
		tokens = append(appendQuoted(tokens, name(own.id)), ',')
		values = append(appendNumber(values, own.value), ',')
		tops = append(tops, '{')
		for _, t := range c.ownFirst(place, *req.logprobs) {
			tops = append(appendNumber(append(appendQuoted(tops, name(t.id)), ':'), t.value), ',')
		}
		tops = append(tops[:len(tops)-1], '}', ',')
	}

	b = append(append(append(b, `{"text_offset":[`...), trimComma(offsets)...), `],"token_logprobs":[`...)
	b = append(append(b, trimComma(values)...), `],"tokens":[`...)
	b = append(append(append(b, trimComma(tokens)...), `],"top_logprobs":[`...), trimComma(tops)...)
	return append(b, `]}`...)
}

func trimComma(b []byte) []byte { return b[:max(len(b)-1, 0)] }

// appendGenerateLogprobs appends the logprobs of vLLM's generate API. Its lists
// have the requested number of entries, and the token itself is one of them.
func appendGenerateLogprobs(b []byte, req *modelRequest, c *choice, from int) []byte {
	if req.logprobs == nil {
		return append(b, "null"...)
	}
	entry := func(t likelihood) []byte {
		return appendNumber(fmt.Appendf(nil, `{"token_id":%d,"logprob":`, t.id), t.value)
	}
	b = append(b, `{"content":[`...)
	for place := from; place < len(c.output); place++ {
		b = append(append(b, entry(c.likelihood(place))...), `,"rank":1,"top_logprobs":[`...)
		all := c.ownFirst(place, *req.logprobs)
		// vLLM counts the token itself, so the last of the likeliest is lost where the token is none of them.
		for _, t := range all[:min(len(all), max(*req.logprobs, 1))] {
			b = append(append(b, entry(t)...), `,"rank":1},`...)
		}
		b = append(trimComma(b), `]},`...)
	}
	if from < len(c.output) {
		b = trimComma(b)
	}
	return append(b, `]}`...)
}

// appendSGLangLogprobs appends the two lists of SGLang's meta_info for the output
// from an id on. No probability is null.
func appendSGLangLogprobs(b []byte, req *modelRequest, c *choice, from int) []byte {
	if req.logprobs == nil {
		return b
	}

	entry := func(t likelihood) []byte {
		if t.value == impossible {
			return fmt.Appendf(nil, `[null,%d,null],`, t.id)
		}
		return fmt.Appendf(nil, `[%s,%d,null],`, pythonFloat(float64(t.value)), t.id)
	}

	var own, tops []byte
	for place := from; place < len(c.output); place++ {
		own = append(own, entry(c.likelihood(place))...)
		var top []byte
		for _, t := range c.likeliest(place, *req.logprobs) {
			top = append(top, entry(t)...)
		}
		tops = append(append(append(tops, '['), trimComma(top)...), ']', ',')
	}

	b = append(append(append(b, `,"input_token_logprobs":[],"output_token_logprobs":[`...), trimComma(own)...), ']')
	b = fmt.Appendf(b, `,"output_token_logprobs_length":%d`, len(c.output)-from)
	if *req.logprobs > 0 {
		b = append(b, `,"input_top_logprobs":[],"output_top_logprobs":[`...)
		b = append(append(b, trimComma(tops)...), ']')
	}
	return b
}

// appendColumns appends an OutputLogProbs of SGLang's and vLLM's gRPC APIs for the
// n tokens of the output from an id on.
func appendColumns(
	b []byte, number protowire.Number, c *choice, from, n int, likeliest func(place int) []likelihood,
) []byte {
	pack := func(b []byte, list []likelihood) []byte {
		var values, ids []byte
		for _, t := range list {
			values = protowire.AppendFixed32(values, math.Float32bits(t.value))
			ids = protowire.AppendVarint(ids, uint64(t.id))
		}
		b = protowire.AppendBytes(protowire.AppendTag(b, 1, protowire.BytesType), values)
		return protowire.AppendBytes(protowire.AppendTag(b, 2, protowire.BytesType), ids)
	}

	own := make([]likelihood, n)
	for i := range own {
		own[i] = c.likelihood(from + i)
	}

	inner := pack(nil, own)
	for i := range own {
		if likeliest == nil {
			break
		}
		inner = protowire.AppendTag(inner, 3, protowire.BytesType)
		inner = protowire.AppendBytes(inner, pack(nil, likeliest(from+i)))
	}

	return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), inner)
}

// appendSGLangColumns appends the likeliest tokens only.
func appendSGLangColumns(b []byte, number protowire.Number, c *choice, from, n, top int) []byte {
	return appendColumns(b, number, c, from, n, func(place int) []likelihood { return c.likeliest(place, top) })
}

// appendVLLMColumns appends the requested number of tokens, with the output's own
// first.
func appendVLLMColumns(b []byte, number protowire.Number, c *choice, from, n, top int) []byte {
	list := func(place int) []likelihood { return c.ownFirst(place, top)[:top] }
	if top == 0 {
		list = nil
	}
	return appendColumns(b, number, c, from, n, list)
}

// appendRows appends TensorRT-LLM's TokenLogprobs for the n tokens of the output
// from an id on.
func appendRows(b []byte, number protowire.Number, c *choice, from, n, top int) []byte {
	// Protobuf leaves zeros out, and "!" is the token 0.
	entry := func(t likelihood) []byte {
		var b []byte
		if t.id != 0 {
			b = protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.VarintType), uint64(t.id))
		}
		if t.value != 0 {
			b = protowire.AppendFixed32(protowire.AppendTag(b, 2, protowire.Fixed32Type), math.Float32bits(t.value))
		}
		return b
	}

	for place := from; place < from+n; place++ {
		row := entry(c.likelihood(place))
		for _, t := range c.ownFirst(place, top) {
			row = protowire.AppendBytes(protowire.AppendTag(row, 3, protowire.BytesType), entry(t))
		}
		b = protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), row)
	}
	return b
}
