package chat

import (
	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/reply"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// encoder writes the reply to one request. Streams and whole objects are made of the
// same parts: a stream has its events at once, the object is written at the end. It is a
// [reply.Encoder], [reply.Settler] and [reply.Tools].
type encoder struct {
	request *Request
	reply   *reply.Machine
	created int64 // Unix seconds
	choices []choice

	// The members with which every event begins, and the engine's fingerprint, which is one
	// of them.
	head    []byte
	version string

	// The event that is being written, with the entries of its log probabilities, each
	// followed by a comma.
	open     delta
	logprobs []byte

	plain []byte // of a custom tool's call: the piece of text being added

	one [1]choice // which most replies have, so that it takes no allocation of its own
}

// choice is what a choice has come to.
type choice struct {
	// Some text has been written.
	hasReasoning, hasContent bool

	unwrap turn.Unwrapper // of a custom tool's call that is being written
	// tokens are all tokens of a whole object; of a stream those of the finish event.
	tokens []harmony.Token

	// Of a whole object: the texts as they stand between the quotes of JSON. The entries of
	// logprobs are followed by a comma each.
	reasoning []byte
	content   []byte
	logprobs  []byte
	calls     []calledTool
}

type calledTool struct {
	*turn.CalledTool
	arguments []byte
}

// NewReply begins the reply to the request. In [api.SingleCall] mode the model
// call is being made already, and the first step follows it.
func (r *Request) NewReply(m api.Mode) api.Reply {
	e := &encoder{request: r, created: r.rc.Now().Unix()}
	if e.choices = e.one[:]; r.Engine().N > 1 {
		e.choices = make([]choice, r.Engine().N)
	}
	o := reply.Options{
		Encoder: e, Settler: e, Stream: r.options.stream, Mode: m, Turn: r.turn,
		Choices: len(e.choices), Turns: r.rc.Limits.Turns, MaxTokens: r.maxTokens,
	}
	// Without a value here the machine hands all calls to the client.
	if r.corrects {
		o.Tools = e
	}

	e.reply = reply.New(o)
	return e.reply
}

// Maker says who makes a call. A call of a tool that the request does not have is for
// the client if the model has no turn to correct it.
func (*encoder) Maker(call *turn.CalledTool, last bool) reply.Maker {
	if call.Namespace == "" && !last {
		return reply.ByNobody
	}
	return reply.ByClient
}

// Corrected implements [reply.Tools]. Where no tool is offered, a call becomes text.
func (*encoder) Corrected(bool) bool { return false }

// Begin writes the first event of a choice, with the role.
func (e *encoder) Begin(dst []byte, c *reply.Choice) []byte {
	dst = e.beginEvent(dst, c)
	dst = append(dst, `"role":"assistant","content":null},"finish_reason":null}]`...)
	// vLLM, whose field this is, has the prompt once in a stream: in the first event.
	if e.request.options.tokenIDs {
		dst = appendTokens(append(dst, `,"prompt_token_ids":`...), e.request.Engine().Prompt)
	}
	return e.endChunk(dst)
}

// Settle ends the delta that a push has opened. Tokens of a push that ends the choice
// belong to its finish event.
func (e *encoder) Settle(dst []byte, c *reply.Choice, tokens []harmony.Token) ([]byte, *apierror.Error) {
	choice := &e.choices[c.Index]
	tokenIDs := e.request.options.tokenIDs

	switch {
	case !e.request.options.stream:
		if tokenIDs {
			choice.tokens = append(choice.tokens, tokens...)
		}
		// A stream passes its entries on; only an object has to hold all of them until its end.
		if len(choice.logprobs) > turn.MaxLogprobs {
			return dst, turn.LogprobsTooLarge("logprobs", "max_tokens")
		}
		return dst, nil

	case c.Finish() == turn.FinishNone:
		// Tokens without a text, such as those of a header, have an event all the same.
		if tokenIDs && len(tokens) > 0 && e.open.choice == nil {
			dst = e.openDelta(dst, c, deltaEmpty, nil)
		}
		return e.closeDelta(dst, tokens), nil
	}

	// They are kept for Finish, which the machine calls once what later requests need is stored.
	if tokenIDs && !c.TurnFollows() {
		choice.tokens = append(choice.tokens, tokens...)
	}
	return e.closeDelta(dst, nil), nil
}

// Finish writes the finish event of a choice, its last event.
func (e *encoder) Finish(dst []byte, c *reply.Choice) []byte {
	choice := &e.choices[c.Index]
	dst = e.beginEvent(dst, c)
	if !choice.hasContent && c.Calls() == 0 {
		dst = append(dst, `"content":""`...)
	}
	dst = e.appendFinish(append(dst, `},`...), c)
	return e.endEvent(dst, choice.tokens)
}

// End writes the events after the choices of a stream.
func (e *encoder) End(dst []byte) []byte {
	if e.request.options.includeUsage || e.request.options.continuousUsage {
		dst = append(e.beginChunk(dst), `"choices":[],"usage":`...)
		dst = append(e.appendUsage(dst), "}\n\n"...)
	}
	return append(dst, jsontext.Done...)
}

// Error ends a stream that has failed.
func (*encoder) Error(dst []byte, err *apierror.Error) []byte {
	event := append(jsontext.Writer(dst).Event(""), err.JSON()...)
	return append(event.EndEvent(), jsontext.Done...)
}

// Object writes the chat.completion object of a request without stream.
func (e *encoder) Object(dst []byte) ([]byte, *apierror.Error) {
	dst = append(e.appendHead(dst, "chat.completion"), `"choices":[`...)
	for i := range e.choices {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = e.appendChoice(dst, e.reply.Choice(i))
	}

	dst = e.appendUsage(append(dst, `],"usage":`...))
	// All choices have one prompt, so that it stands beside them.
	if e.request.options.tokenIDs {
		dst = appendTokens(append(dst, `,"prompt_token_ids":`...), e.request.Engine().Prompt)
	}
	return append(dst, '}'), nil
}
