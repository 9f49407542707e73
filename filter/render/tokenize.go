package render

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// tokenizer answers what is asked about texts and tokens.
type tokenizer struct {
	chat       api.Endpoint // decodes the requests with messages
	needsModel bool
}

// tokenizing is a request of [TokenizePath], as it is decoded.
type tokenizing struct {
	model     string
	prompt    jsontext.Field
	messages  jsontext.Field
	strings   bool // of the tokens are wanted
	bare      bool // the prompt ends before the message that the model writes
	continues bool // the last message
}

// tokenizeFields has the fields of a request of [TokenizePath]. With messages it has
// those of Chat Completions too. The table in docs/compatibility.md has the same rows.
var tokenizeFields = jsontext.Table[*tokenizing]{
	"model": {Read: func(t *tokenizing, v jsontext.Field) (err *apierror.Error) {
		t.model, err = v.ShortText()
		return err
	}},
	"prompt":   {Read: func(t *tokenizing, v jsontext.Field) *apierror.Error { t.prompt = v; return nil }},
	"messages": {Read: func(t *tokenizing, v jsontext.Field) *apierror.Error { t.messages = v; return nil }},
	"add_generation_prompt": {Read: func(t *tokenizing, v jsontext.Field) *apierror.Error {
		add, err := v.Switch()
		t.bare = !add
		return err
	}},
	"continue_final_message": {Read: func(t *tokenizing, v jsontext.Field) *apierror.Error {
		return v.SetSwitch(&t.continues)
	}},
	"return_token_strs": {Read: func(t *tokenizing, v jsontext.Field) *apierror.Error {
		return v.SetSwitch(&t.strings)
	}},
	"add_special_tokens": {Ignored: "Harmony has no tokens to add to a text"},
}

// tokenize answers a request of [TokenizePath]. A prompt is a user's text: what spells
// a control token in it is text.
func (k *tokenizer) tokenize(ctx context.Context, r *api.HTTPRequest) api.Outcome {
	root, err := jsontext.Parse(r.Body)
	if err != nil {
		return api.Refused(err)
	}

	var t tokenizing
	var others jsontext.Ignored
	body := jsontext.Field{Result: root}
	if err := tokenizeFields.Decode(&t, body, &others); err != nil {
		return api.Refused(err)
	}

	var tokens []harmony.Token
	switch {
	case t.model == "" && k.needsModel:
		err = apierror.Invalid("model", "The field \"model\" is missing. Name the model.")
	case t.prompt.Exists() && t.messages.Exists():
		err = apierror.Invalid("messages", "\"prompt\" and \"messages\" are two things to tokenize. Send one of them.")
	case t.messages.Exists():
		tokens, err = k.ofMessages(ctx, r, &t, body)
	default:
		tokens, err = ofPrompt(ctx, t.prompt)
	}
	if err != nil {
		return api.Refused(err)
	}

	// The answer can be many times longer than its request: there must be room before it is made.
	size, err := tokenizedBytes(ctx, tokens, t.strings)
	if err != nil {
		return api.Refused(err)
	}
	if err := r.Context.Room(size); err != nil {
		return api.Refused(err)
	}
	return api.Answered(appendTokenized(ctx, make([]byte, 0, size), tokens, r.Context.ContextLength(), t.strings))
}

// tokenizedBytes is how many bytes the answer about tokens has, or a few more.
func tokenizedBytes(ctx context.Context, tokens []harmony.Token, texts bool) (int, *apierror.Error) {
	const (
		members = 128 // names and numbers
		number  = 7   // an id and its comma
	)
	size := members + number*len(tokens)
	if !texts {
		return size, nil
	}

	// Escapes make a token longer by a factor that depends on its bytes, and some have 128 of them.
	var spelled, escaped []byte
	err := eachToken(ctx, tokens, func(_ int, token harmony.Token) {
		spelled = appendTokenString(spelled[:0], token)
		escaped = jsontext.AppendEscaped(escaped[:0], spelled)
		size += len(escaped) + len(`"",`)
	})
	return size, err
}

// tokensAtOnce is how many tokens become texts between two checks of a request's context:
// half a megabyte, which takes some milliseconds.
const tokensAtOnce = 4096

// eachToken calls do with each token and its index, until ctx ends.
func eachToken(ctx context.Context, tokens []harmony.Token, do func(i int, token harmony.Token)) *apierror.Error {
	for i, token := range tokens {
		if i%tokensAtOnce == 0 && ctx.Err() != nil {
			return late(ctx.Err())
		}
		do(i, token)
	}
	return nil
}

// late is the error of a request that has ended before its work.
func late(err error) *apierror.Error {
	return apierror.New(http.StatusServiceUnavailable, "overloaded", "",
		"The text could not be tokenized in time. Try again, or shorten it.").With(err)
}

// ofPrompt encodes a text.
func ofPrompt(ctx context.Context, prompt jsontext.Field) ([]harmony.Token, *apierror.Error) {
	if !prompt.Exists() {
		return nil, apierror.Invalid("prompt", "There is nothing to tokenize. Send a text as prompt, or messages.")
	}
	text, err := prompt.Text()
	if err != nil {
		return nil, err
	}

	tokens, failure := harmony.AppendEncodeLimited(ctx, nil, text, turn.MaxRendered)
	var long *harmony.LimitError
	switch {
	case errors.As(failure, &long):
		return nil, apierror.Invalid("prompt",
			"The text has at least %d tokens, more than %d. Send it in pieces.", long.AtLeast, turn.MaxRendered)
	// The only other failure is that ctx has ended.
	case failure != nil:
		return nil, late(failure)
	}
	return tokens, nil
}

// ofMessages renders a chat's prompt.
func (k *tokenizer) ofMessages(
	ctx context.Context, r *api.HTTPRequest, t *tokenizing, body jsontext.Field,
) ([]harmony.Token, *apierror.Error) {
	// The model's name is not in the prompt.
	chat := jsontext.AppendString([]byte(`{"model":`), cmp.Or(t.model, anyModel))
	err := body.Fields(func(key string, v jsontext.Field) *apierror.Error {
		switch key {
		case "model", "prompt", "return_token_strs", "add_special_tokens", "stream", "stream_options":
			return nil
		// With a message that is continued it is an error of its own, which Chat Completions
		// finds; else it is done below.
		case "add_generation_prompt":
			if !t.continues {
				return nil
			}
		}
		chat = jsontext.AppendString(append(chat, ','), key)
		chat = append(append(chat, ':'), v.Raw...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	// It is a second copy of the request, of which the service has reserved the first.
	if err := r.Context.Room(len(chat)); err != nil {
		return nil, err
	}

	// Nothing is kept of a prompt that no model gets, and it may be longer than the context.
	rc := *r.Context
	env := *rc.Env
	env.Memory = nil
	rc.Env, rc.Unbounded = &env, true
	outcome := k.chat.Handle(ctx, &api.HTTPRequest{Path: k.chat.Pattern, Body: append(chat, '}'), Context: &rc})
	if outcome.Err != nil {
		return nil, outcome.Err
	}

	tokens := outcome.Request.Engine().Prompt
	if t.bare && !t.continues {
		// The prompt ends with the start of the assistant's message, which is what was not to be added.
		for i, token := range slices.Backward(tokens) {
			if token == harmony.TokenStart {
				return tokens[:i], nil
			}
		}
	}
	return tokens, nil
}

// appendTokenized appends the answer: {"count","max_model_len","tokens","token_strs"}.
func appendTokenized(
	ctx context.Context, dst []byte, tokens []harmony.Token, length int, texts bool,
) ([]byte, *apierror.Error) {
	dst = strconv.AppendInt(append(dst, `{"count":`...), int64(len(tokens)), 10)
	dst = strconv.AppendInt(append(dst, `,"max_model_len":`...), int64(length), 10)
	dst = appendNumbers(append(dst, `,"tokens":`...), tokens)
	// vLLM's answer has the member in any case.
	if dst = append(dst, `,"token_strs":`...); !texts {
		return append(dst, "null}"...), nil
	}

	dst = append(dst, '[')
	var spelled []byte
	err := eachToken(ctx, tokens, func(i int, token harmony.Token) {
		if i > 0 {
			dst = append(dst, ',')
		}
		spelled = appendTokenString(spelled[:0], token)
		dst = append(jsontext.AppendEscaped(append(dst, '"'), spelled), '"')
	})
	if err != nil {
		return nil, err
	}
	return append(dst, "]}"...), nil
}

// detokenizing is a request of [DetokenizePath], as it is decoded.
type detokenizing struct {
	model  string
	tokens []harmony.Token
	given  bool
}

// detokenizeFields has the fields of a request of [DetokenizePath]. The table in
// docs/compatibility.md has the same rows.
var detokenizeFields = jsontext.Table[*detokenizing]{
	"model": {Read: func(d *detokenizing, v jsontext.Field) (err *apierror.Error) {
		d.model, err = v.ShortText()
		return err
	}},
	"tokens": {Read: func(d *detokenizing, v jsontext.Field) (err *apierror.Error) {
		d.given = true
		d.tokens, err = readTokens(v, nil, turn.MaxRendered)
		return err
	}},
}

// detokenize answers a request of [DetokenizePath]: {"prompt"}. Control tokens are
// spelled, and bytes that are no character are U+FFFD.
func (k *tokenizer) detokenize(ctx context.Context, r *api.HTTPRequest) api.Outcome {
	root, err := jsontext.Parse(r.Body)
	if err != nil {
		return api.Refused(err)
	}

	var d detokenizing
	var others jsontext.Ignored
	if err := detokenizeFields.Decode(&d, jsontext.Field{Result: root}, &others); err != nil {
		return api.Refused(err)
	}

	switch {
	case d.model == "" && k.needsModel:
		return api.Refused(apierror.Invalid("model", "The field \"model\" is missing. Name the model."))
	case !d.given:
		return api.Refused(apierror.Invalid("tokens",
			"The field \"tokens\" is missing. Send a list of token ids."))
	}
	return api.Answered(newText(ctx, r.Context, d.tokens))
}

// maxText is the longest text that is made of tokens, in bytes: four times what texts have
// for as many tokens as a request may send. Some tokens stand for 128 bytes.
const maxText = 16 << 20

// newText makes the answer with the text of tokens, once there is room for it. The text is
// made twice, the first time only to be measured: escaped, it can be much longer than the
// request.
func newText(ctx context.Context, rc *turn.RequestContext, tokens []harmony.Token) ([]byte, *apierror.Error) {
	bytes := 0
	for _, token := range tokens {
		bytes += harmony.TokenLength(token)
	}
	// Checked by the lengths of the tokens, before any text is made.
	if bytes > maxText {
		return nil, apierror.New(http.StatusRequestEntityTooLarge, "request_too_large", "tokens",
			"The text of the tokens has %d bytes, more than %d. Send the tokens in pieces.", bytes, maxText)
	}

	const head, tail = `{"prompt":"`, `"}`
	size := len(head) + len(tail)
	if err := eachText(ctx, tokens, func(escaped []byte) { size += len(escaped) }); err != nil {
		return nil, err
	}
	if err := rc.Room(size); err != nil {
		return nil, err
	}

	answer := append(make([]byte, 0, size), head...)
	if err := eachText(ctx, tokens, func(escaped []byte) { answer = append(answer, escaped...) }); err != nil {
		return nil, err
	}
	return append(answer, tail...), nil
}

// eachText calls take with the text of tokens, piece by piece, as the content of a JSON
// string, until ctx ends. A piece is valid only during the call.
func eachText(ctx context.Context, tokens []harmony.Token, take func(escaped []byte)) *apierror.Error {
	var decoder harmony.Decoder
	var text, escaped []byte
	err := eachToken(ctx, tokens, func(_ int, token harmony.Token) {
		text, _ = decoder.Append(text[:0], token) // readTokens has checked the ids
		escaped = jsontext.AppendEscaped(escaped[:0], text)
		take(escaped)
	})
	if err != nil {
		return err
	}

	// The last token may end within a character.
	take(jsontext.AppendEscaped(escaped[:0], decoder.Flush(text[:0])))
	return nil
}
