package turn

import (
	"net/http"
	"strconv"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// AppendRendered appends what the model would get, as a JSON object: the answer of
// the render endpoints. object is the object's type, model the model's name in
// it, and ignored the fields of the request that have no effect.
//
//	{"object":…,"request_id":…,"model":…,"token_count":…,"context_length":…,"token_ids":[…],"text":…,
//	 "sampling_params":{…},"reasoning_ended":true,"stream":…,"cache_salt":…,"priority":…,
//	 "stop":[…],"ignored":[…]}
//
// The object is also a request for vLLM's /inference/v1/generate: the names
// request_id, model, token_ids, sampling_params, reasoning_ended, stream, cache_salt
// and priority, and those in sampling_params, are vLLM's. reasoning_ended lets the
// engine's grammar apply from the first token on. text is the prompt with control tokens
// spelled out; a user's text that spells one looks the same there, but differs in token_ids.
// cache_salt and priority are absent if the request has none. stop is the strings
// at which the filter itself ends the answer.
func (t *Turn) AppendRendered(dst []byte, object, model string, ignored []string) ([]byte, *apierror.Error) {
	request := t.Engine
	text, err := harmony.AppendDecode(nil, request.Prompt)
	if err != nil {
		return nil, apierror.New(http.StatusInternalServerError, "", "", "Internal error.").With(err)
	}

	w := jsontext.Writer(dst).Open().Text("object", object)
	w = w.Text("request_id", renderedID(request.ID)).Text("model", model)
	w = w.Int("token_count", int64(len(request.Prompt))).Int("context_length", int64(t.rc.ContextLength()))
	w = w.Key("token_ids").OpenList()
	for _, id := range request.Prompt {
		w = strconv.AppendUint(w.Element(), uint64(id), 10)
	}
	w = w.CloseList()

	// The text is as long as the prompt: it is escaped where it is written, and not before.
	w = append(w.Key("text"), '"')
	w = append(jsontext.Writer(jsontext.AppendEscaped(w, text)), '"')

	w = request.AppendSampling(w.Key("sampling_params"))
	w = w.Bool("reasoning_ended", true).Bool("stream", !request.Whole)
	if request.CacheSalt != "" {
		w = w.Text("cache_salt", request.CacheSalt)
	}
	if request.Priority != nil {
		w = w.Int("priority", int64(*request.Priority))
	}
	w = appendStrings(w.Key("stop"), t.plan.Stops())
	w = appendStrings(w.Key("ignored"), ignored)
	return w.Close(), nil
}

// renderedID is the id with which a client makes the call itself, once. The id of the reply begins
// as those of the API do, so that the end of it is what differs.
func renderedID(id engine.CallID) string { return id.Request + "-" + id.Unique }

func appendStrings(w jsontext.Writer, list []string) jsontext.Writer {
	w = w.OpenList()
	for _, text := range list {
		w = jsontext.AppendString(w.Element(), text)
	}
	return w.CloseList()
}
