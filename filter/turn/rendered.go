package turn

import (
	"net/http"
	"strconv"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// AppendRendered appends what the model would get, as a JSON object: the answer of
// the render endpoints. object is the object's type, model the model's name in
// it, and ignored the fields of the request that have no effect.
//
//	{"object":…,"request_id":…,"model":…,"token_count":…,"context_length":…,"token_ids":[…],"text":…,
//	 "sampling_params":{…},"reasoning_ended":true,"stream":…,"cache_salt":…,"priority":…,"stop":[…],"ignored":[…]}
//
// The object is also a request for vLLM's /inference/v1/generate: the names
// request_id, model, token_ids, sampling_params, reasoning_ended, stream, cache_salt
// and priority, and those in sampling_params, are vLLM's. reasoning_ended lets the
// engine's grammar apply from the first token on. text is the prompt with control tokens spelled out;
// a user's text that spells one looks the same there, but differs in token_ids.
// cache_salt and priority are absent if the request has none. stop is the strings
// at which the filter itself ends the answer.
func (t *Turn) AppendRendered(dst []byte, object, model string, ignored []string) ([]byte, *apierror.Error) {
	r := t.Engine
	text, err := harmony.AppendDecode(nil, r.Prompt)
	if err != nil {
		return nil, apierror.New(http.StatusInternalServerError, "", "", "Internal error.").With(err)
	}
	dst = jsontext.AppendString(append(dst, `{"object":`...), object)
	dst = jsontext.AppendString(append(dst, `,"request_id":`...), r.ID)
	dst = jsontext.AppendString(append(dst, `,"model":`...), model)
	dst = strconv.AppendInt(append(dst, `,"token_count":`...), int64(len(r.Prompt)), 10)
	dst = strconv.AppendInt(append(dst, `,"context_length":`...), int64(t.rc.ContextLength()), 10)
	dst = append(dst, `,"token_ids":[`...)
	for i, id := range r.Prompt {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(id), 10)
	}
	dst = jsontext.AppendEscaped(append(dst, `],"text":"`...), text)
	dst = r.AppendSampling(append(dst, `","sampling_params":`...))
	dst = strconv.AppendBool(append(dst, `,"reasoning_ended":true,"stream":`...), !r.Whole)
	if r.CacheSalt != "" {
		dst = jsontext.AppendString(append(dst, `,"cache_salt":`...), r.CacheSalt)
	}
	if r.Priority != nil {
		dst = strconv.AppendInt(append(dst, `,"priority":`...), int64(*r.Priority), 10)
	}
	dst = appendStrings(append(dst, `,"stop":`...), t.stops.texts)
	dst = appendStrings(append(dst, `,"ignored":`...), ignored)
	return append(dst, '}'), nil
}

func appendStrings(dst []byte, list []string) []byte {
	dst = append(dst, '[')
	for i, s := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = jsontext.AppendString(dst, s)
	}
	return append(dst, ']')
}
