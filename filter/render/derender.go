package render

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// engineIDPrefix is what vLLM's generate endpoint puts before the id of a request.
const engineIDPrefix = "generate-tokens-"

// derenderer turns output tokens into the replies of one API.
type derenderer struct {
	kind
	create     api.Endpoint // decodes the API's requests
	needsModel bool
}

// derendering is one request, as it is decoded.
type derendering struct {
	*derenderer
	rc *turn.RequestContext

	model   string
	stream  bool
	request jsontext.Field
	ignored jsontext.Ignored

	// The output: generate_response or, if it is chunked, generate_chunk with the state of
	// the reply so far.
	generated jsontext.Field
	chunked   bool
	state     streamState

	// The prompt as the engine had it; nil: as the request has it.
	promptTokens int
	prompt       []harmony.Token
}

// derenderFields has the fields that all APIs have. The field of the API's own request
// is read apart. The table in docs/compatibility.md has the same rows.
var derenderFields = jsontext.Table[*derendering]{
	"model": {Read: func(d *derendering, v jsontext.Field) (err *apierror.Error) {
		d.model, err = v.ShortText()
		return err
	}},
	"stream": {Read: func(d *derendering, v jsontext.Field) *apierror.Error {
		return v.SetSwitch(&d.stream)
	}},
	"generate_response": {
		Read: func(d *derendering, v jsontext.Field) *apierror.Error { return d.setGenerated(v, false) },
		Keep: jsontext.KeepGuarded,
	},
	"generate_chunk": {
		Read: func(d *derendering, v jsontext.Field) *apierror.Error { return d.setGenerated(v, true) },
		Keep: jsontext.KeepGuarded,
	},
	"stream_state": {
		Read: func(d *derendering, v jsontext.Field) *apierror.Error { return d.state.read(v, d.rc.ContextLength()) },
		Keep: jsontext.KeepGuarded,
	},
	"prompt_tokens": {Read: func(d *derendering, v jsontext.Field) *apierror.Error {
		return v.SetInteger(&d.promptTokens, 0, turn.MaxRendered)
	}},
	"prompt_token_ids": {Read: func(d *derendering, v jsontext.Field) (err *apierror.Error) {
		d.prompt, err = readTokens(v, nil, turn.MaxRendered)
		return err
	}},
}

func (d *derendering) setGenerated(v jsontext.Field, chunked bool) *apierror.Error {
	if d.generated.Exists() {
		return apierror.Invalid(v.Path,
			"generate_response and generate_chunk are two ways to send tokens. Send one of them.")
	}
	d.generated, d.chunked = v, chunked
	return nil
}

// handle answers a request.
func (k *derenderer) handle(ctx context.Context, r *api.HTTPRequest) api.Outcome {
	d := &derendering{derenderer: k, rc: r.Context}
	if err := d.decode(r.Body); err != nil {
		return api.Refused(err)
	}

	switch {
	case d.chunked:
		answer, err := d.chunk(ctx)
		return api.Answered(answer, err)
	case d.stream:
		events, err := d.whole(ctx)
		if err != nil {
			return api.Refused(err)
		}
		return api.Streamed(&eventStream{events})
	}

	object, err := d.whole(ctx)
	return api.Answered(object, err)
}

// fields has the field of an API's own request.
func (k kind) fields() jsontext.Table[*derendering] {
	return jsontext.Table[*derendering]{
		k.request: {Read: func(d *derendering, v jsontext.Field) *apierror.Error {
			d.request = v
			return nil
		}},
	}
}

func (d *derendering) decode(body []byte) *apierror.Error {
	root, err := jsontext.Parse(body)
	if err != nil {
		return err
	}

	if err := derenderFields.Beside(d.kind.fields()).Decode(d, jsontext.Field{Result: root}, &d.ignored); err != nil {
		return err
	}

	field := d.kind.request
	switch {
	case d.model == "" && d.needsModel:
		return apierror.Invalid("model", "The field \"model\" is missing. Name the model, beside %s.", field)
	case !d.generated.Exists():
		return apierror.Invalid("generate_response",
			"There are no tokens. Send an answer of /inference/v1/generate as generate_response, or one event of "+
				"its stream as generate_chunk.")
	// Each chunk is answered with deltas; an object needs all of them at once.
	case d.chunked && !d.stream:
		return apierror.Invalid("stream",
			"A generate_chunk is a piece of a stream. Send stream: true, or the whole answer as generate_response.")
	case !d.request.Exists():
		return apierror.Invalid(field,
			"The field %q is missing: tools, stop strings and formats of the request decide what the tokens mean. "+
				"Send the body of the request.", field)
	case !d.request.IsObject():
		return apierror.Invalid(field, "The field %q must be an object: the body of the request.", field)
	}
	return nil
}

// whole makes the whole reply: an object, or a stream's events.
func (d *derendering) whole(ctx context.Context) ([]byte, *apierror.Error) {
	// The engine's own time and id make the reply the one that a client of the filter would have had.
	created := d.rc.Now()
	if v := d.generated.Get("created"); v.Int() > 0 {
		created = time.Unix(v.Int(), 0)
	}
	id := d.generated.Get("request_id").Str
	if id == "" {
		id = d.rc.ID("")
	}

	request, err := d.prepare(ctx, id, func() time.Time { return created })
	if err != nil {
		return nil, err
	}
	chunks, err := d.chunks(request.Engine())
	if err != nil {
		return nil, err
	}
	if err := d.rc.Room(replyBytes(chunks, d.stream)); err != nil {
		return nil, err
	}

	reply := request.NewReply(api.SingleCall)
	var out []byte
	for i := range chunks {
		if reply.Done() {
			break
		}
		if out, err = reply.Push(out, &chunks[i]); err != nil {
			return nil, err
		}
	}
	return end(reply, out)
}

const (
	perChunk           = 160
	perEvent           = 512
	perByteOfObject    = 4
	perByteOfStream    = 16
	perMessageOfObject = 1 << 10
	perMessageOfStream = 4 << 10
)

// replyBytes is about how many bytes of memory the reply takes that is made of chunks: the
// texts, the events or the object that repeat them, and what is copied while they grow. A
// stream has an event for each token, and its last ones have the text again: those of
// Responses four times. A message can be four tokens, and is an item with several events.
func replyBytes(chunks []engine.Chunk, stream bool) (n int) {
	perToken, perByte, perMessage := 0, perByteOfObject, perMessageOfObject
	if stream {
		perToken, perByte, perMessage = perEvent, perByteOfStream, perMessageOfStream
	}
	for i := range chunks {
		n += perChunk
		for _, token := range chunks[i].Tokens {
			n += perToken + perByte*harmony.TokenLength(token)
			if token == harmony.TokenMessage {
				n += perMessage
			}
		}
	}
	return n
}

// end does what follows the output of the model, and ends the reply. Without a store
// and tools nothing is left to be done.
func end(reply api.Reply, out []byte) ([]byte, *apierror.Error) {
	out, step, err := reply.Step(out)
	switch {
	case err != nil:
		return nil, err
	case step.Call != nil || len(step.Jobs) > 0:
		return nil, apierror.New(http.StatusInternalServerError, "", "", "Internal error.")
	}
	return reply.End(out)
}

// prepare decodes the API's request, as one with an id that came at a time.
func (d *derendering) prepare(ctx context.Context, id string, now func() time.Time) (api.Request, *apierror.Error) {
	body, err := d.body()
	if err != nil {
		return nil, err
	}
	if err := d.rc.Room(len(body)); err != nil {
		return nil, err
	}

	// The same tokens have to give the same reply: nothing is read of a store, and ids and
	// times follow from the request.
	env := *d.rc.Env
	env.Memory, env.Now, env.NewID = nil, now, (&idSource{seed: id}).next
	rc := *d.rc
	rc.Env, rc.PromptTokens = &env, d.promptTokens
	rc.RequestID = strings.TrimPrefix(strings.TrimPrefix(id, engineIDPrefix), d.prefix)

	outcome := d.create.Handle(ctx, &api.HTTPRequest{Path: d.path, Body: body, Context: &rc})
	switch {
	case outcome.Err != nil:
		return nil, d.ofRequest(outcome.Err)
	case outcome.Request == nil || outcome.Request.Engine() == nil:
		return nil, apierror.Invalid(d.kind.request,
			"The reply to the request has steps before its model call, such as tools that are run. Only the output "+
				"of one model call can be derendered.")
	}

	if d.prompt != nil {
		outcome.Request.Engine().Prompt = d.prompt
	}
	return outcome.Request, nil
}

// ofRequest names the place of a request's field in an error.
func (d *derendering) ofRequest(err *apierror.Error) *apierror.Error {
	if err.Param == "" {
		return err
	}
	e := *err
	e.Param = d.kind.request + "." + err.Param
	return &e
}

// body returns the API's request with the model and the form of the reply that are
// asked for.
func (d *derendering) body() ([]byte, *apierror.Error) {
	body := strconv.AppendBool([]byte(`{"stream":`), d.stream)
	if d.model != "" {
		body = jsontext.AppendString(append(body, `,"model":`...), d.model)
	}
	// The usage is in the last event then, and merged decides whether the answer has it.
	if d.chunked && d.merge {
		body = append(body, `,"stream_options":{"include_usage":true}`...)
	}

	err := d.request.Fields(func(key string, v jsontext.Field) *apierror.Error {
		switch {
		case key == "stream",
			key == "model" && d.model != "",
			key == "stream_options" && (d.chunked && d.merge || !d.stream):
			return nil
		}
		body = jsontext.AppendString(append(body, ','), key)
		body = append(append(body, ':'), v.Raw...)
		return nil
	})
	return append(body, '}'), err
}

// chunks reads the generated tokens, as the call req would have them. They are valid
// as long as the derendering.
func (d *derendering) chunks(req *engine.Request) ([]engine.Chunk, *apierror.Error) {
	path := d.generated.Path
	choices := d.generated.Get("choices")
	if !d.generated.IsObject() || !choices.IsArray() {
		return nil, apierror.Invalid(path+".choices",
			"The field %q must be an array: that of an answer of /inference/v1/generate.", path+".choices")
	}

	// The object has exactly n choices; a chunk has the one that its state belongs to.
	if n := count(choices); !d.chunked && n != max(req.N, 1) {
		return nil, apierror.Invalid(path+".choices",
			"There are %d choices for a request with n: %d. Send each choice once.", n, max(req.N, 1))
	}
	// The last chunk of a stream may have none.
	if !d.chunked {
		i := 0
		for choice := range jsontext.List(choices) {
			if ids := choice.Get("token_ids"); ids.IsArray() && jsontext.Empty(ids) {
				return nil, apierror.Invalid(path+".choices["+strconv.Itoa(i)+"].token_ids",
					"A choice has no tokens: an output ends with one at least.")
			}
			i++
		}
	}

	// The decoder of vLLM's stream reads it, as one event on one line.
	event := jsontext.AppendCompact([]byte("data: "), d.generated.Raw)
	dialect, _ := engine.ByKind("vllm-generate")
	chunks, err := dialect.NewDecoder(req).Feed(append(event, "\n\n"...), nil)
	if err != nil {
		_, why, _ := strings.Cut(err.Message, "cannot be read: ")
		return nil, apierror.Invalid(path,
			"The field %q is not an answer of /inference/v1/generate in tokens, with an index, token_ids and a "+
				"finish_reason in each choice. %s", path, why)
	}

	for i := range chunks {
		if chunks[i].Finish == engine.FinishAbort {
			return nil, apierror.Invalid(path+".choices",
				"The engine has aborted a choice: there is no reply to it. Generate it again.")
		}
		if n := len(chunks[i].Tokens) + len(d.state.tokens); n > d.rc.ContextLength() {
			return nil, apierror.Invalid(path+".choices",
				"A choice has %d tokens, more than the model's context of %d.", n, d.rc.ContextLength())
		}
	}
	return chunks, nil
}

// count returns how many elements an array has. A client can send millions.
func count(array gjson.Result) (n int) {
	for range jsontext.List(array) {
		n++
	}
	return n
}

// readTokens appends token ids to dst, which is to have at most most of them.
func readTokens(v jsontext.Field, dst []harmony.Token, most int) ([]harmony.Token, *apierror.Error) {
	err := v.Elements(func(_ int, id jsontext.Field) *apierror.Error {
		if len(dst) == most {
			return apierror.Invalid(v.Path, "The field %q has more than %d tokens.", v.Path, most)
		}
		n, err := id.Integer(0, int64(harmony.LastToken))
		dst = append(dst, harmony.Token(n))
		return err
	})
	return dst, err
}

// eventStream is a stream whose events are there already. It is an [api.Follower].
type eventStream struct{ events []byte }

// Next returns the whole stream.
func (s *eventStream) Next(
	_ context.Context, reserve func(bytes int) *apierror.Error,
) (sse []byte, end bool, err *apierror.Error) {
	if err := reserve(len(s.events)); err != nil {
		return nil, false, err
	}
	return s.events, true, nil
}

// Fail returns nothing: the stream ends where it is broken off.
func (s *eventStream) Fail(*apierror.Error) []byte { return nil }
