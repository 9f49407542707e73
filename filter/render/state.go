package render

import (
	"strconv"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// streamState is what the client has of a reply that is derendered chunk by chunk: the
// tokens so far, from which the reply is made again, in the chunks that they came in.
// The names of the tokens and the chunks are vLLM's.
type streamState struct {
	begun   bool
	id      string // of the first chunk's request
	created int64  // when the first chunk came, Unix time in seconds
	tokens  []harmony.Token
	lengths []int         // of the chunks, in tokens
	finish  engine.Finish // of the choice; "" while it goes on
}

// read reads the state that an answer before had, of at most most tokens.
func (s *streamState) read(v jsontext.Field, most int) *apierror.Error {
	s.begun = true
	sum := 0

	err := v.Fields(func(key string, v jsontext.Field) (err *apierror.Error) {
		switch key {
		case "request_id":
			s.id, err = v.ShortText()
		case "created":
			s.created, err = v.Integer(0, 1<<40)
		case "output_token_ids":
			s.tokens, err = readTokens(v, nil, most)
		case "output_chunk_lens":
			err = v.Elements(func(_ int, v jsontext.Field) *apierror.Error {
				// Chunks without tokens are not in the state: see add.
				n, err := v.Integer(1, int64(most))
				s.lengths = append(s.lengths, int(n))
				sum += int(n)
				if err == nil && sum > most {
					err = apierror.Invalid(v.Path, "The chunks have more than %d tokens.", most)
				}
				return err
			})
		case "finish_reason":
			var finish string
			finish, err = v.ShortText()
			s.finish = engine.Finish(finish)
		// A state of vLLM's own service has other members: it cannot be continued here.
		default:
			err = apierror.Invalid(v.Path,
				"The field %q is unknown. Send the state as the answer before has it.", v.Path)
		}
		return err
	})

	switch {
	case err != nil:
		return err
	// The chunks cut the tokens by these lengths, and must neither run out of them nor leave any.
	case sum != len(s.tokens):
		return apierror.Invalid(v.Path,
			"The chunks of \"stream_state\" have %d tokens, but there are %d. Send the state as the answer before "+
				"has it.", sum, len(s.tokens))
	case s.finish != engine.FinishNone && s.finish != engine.FinishStop && s.finish != engine.FinishLength:
		return apierror.Invalid(v.Path+".finish_reason",
			"The field %q must be \"stop\", \"length\" or null.", v.Path+".finish_reason")
	}
	return nil
}

// bytes is about how many bytes of memory it takes to make the reply so far again.
func (s *streamState) bytes() (n int) {
	for _, token := range s.tokens {
		n += perByteOfStream * harmony.TokenLength(token)
		if token == harmony.TokenMessage {
			n += perMessageOfStream
		}
	}
	return n + perChunk*len(s.lengths)
}

// chunks returns the chunks so far. The last one has the finish reason.
func (s *streamState) chunks() []engine.Chunk {
	chunks := make([]engine.Chunk, len(s.lengths), len(s.lengths)+1)
	rest := s.tokens
	for i, n := range s.lengths {
		chunks[i].Tokens, rest = rest[:n], rest[n:]
	}
	if s.finish != engine.FinishNone {
		chunks = append(chunks, engine.Chunk{Finish: s.finish})
	}
	return chunks
}

// add adds a chunk.
func (s *streamState) add(c *engine.Chunk) {
	if len(c.Tokens) > 0 {
		s.tokens = append(s.tokens, c.Tokens...)
		s.lengths = append(s.lengths, len(c.Tokens))
	}
	s.finish = c.Finish
}

// append appends the state as JSON.
func (s *streamState) append(dst []byte) []byte {
	dst = jsontext.AppendString(append(dst, `{"request_id":`...), s.id)
	dst = strconv.AppendInt(append(dst, `,"created":`...), s.created, 10)
	dst = appendNumbers(append(dst, `,"output_token_ids":`...), s.tokens)
	dst = appendNumbers(append(dst, `,"output_chunk_lens":`...), s.lengths)
	if dst = append(dst, `,"finish_reason":`...); s.finish == engine.FinishNone {
		return append(dst, "null}"...)
	}
	return append(jsontext.AppendString(dst, string(s.finish)), '}')
}

func appendNumbers[N ~int | ~uint32](dst []byte, list []N) []byte {
	dst = append(dst, '[')
	for i, n := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, int64(n), 10)
	}
	return append(dst, ']')
}
