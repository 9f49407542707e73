package engine

import (
	"cmp"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

// maxRetryAfter is the longest retry-after that is forwarded, in seconds.
const maxRetryAfter = 24 * 60 * 60

// failure is an error reported by an engine, or by Envoy on its behalf.
type failure struct {
	status     int
	message    string // the message of a JSON body, else ""
	text       string // the beginning of any other body, such as that of Envoy or a proxy
	kind       string // the error object's type
	param      string // the engine's name of the parameter at fault
	reason     string // what is wrong with it, where the engine says so apart from other text
	retryAfter time.Duration
}

// httpErrors implements ReadError. The dialects of HTTP servers embed it.
type httpErrors struct{}

func (httpErrors) ReadError(status int, header func(string) string, body []byte) *apierror.Error {
	return readError(status, header, body)
}

// readError decodes a reply that is not a 200: {"error":{…}}, {"error":"…"},
// {"message":…}, {"detail":…}, or plain text from Envoy or a proxy.
func readError(status int, header func(string) string, body []byte) *apierror.Error {
	f := readFailure(body)
	f.status = status
	f.retryAfter = retryAfter(header)
	return translate(f)
}

// retryAfter returns the value of the retry-after header, or 0 if there is no
// valid one.
func retryAfter(header func(string) string) time.Duration {
	// Seconds only: a date, which HTTP allows too, counts as none.
	seconds, err := strconv.Atoi(strings.TrimSpace(header("retry-after")))
	if err != nil || seconds < 0 {
		return 0
	}
	return time.Duration(min(seconds, maxRetryAfter)) * time.Second
}

// eventError decodes an event {"error":{…,"code":500}}.
func eventError(event []byte) *apierror.Error {
	// The status of the reply was 200: the object's code is all that says what kind of error it is.
	f := readFailure(event)
	if f.status < 400 || f.status > 599 {
		f.status = http.StatusInternalServerError
	}
	return translate(f)
}

func readFailure(body []byte) failure {
	if !gjson.ValidBytes(body) {
		return failure{text: strings.TrimSpace(string(body[:min(len(body), 400)]))}
	}

	// vLLM and llama.cpp have {"error":{…}}, SGLang has the members alone.
	root := gjson.ParseBytes(body)
	object := root
	if e := root.Get("error"); e.IsObject() {
		object = e
	}
	f := failure{
		status: int(object.Get("code").Int()),
		kind:   object.Get("type").String(),
		param:  object.Get("param").String(),
	}
	// The last is FastAPI's form for errors of its own, as of a path that it does not have.
	for _, message := range []gjson.Result{object.Get("message"), root.Get("error"), root.Get("detail")} {
		if message.Type == gjson.String {
			f.message = message.Str
			return f
		}
	}

	// FastAPI: {"detail":[{"loc":["body","temperature"],"msg":"…"}]}
	if first := root.Get("detail.0"); first.IsObject() {
		// SGLang has the parameters in an object of the body.
		param := first.Get("loc.1")
		if inner := first.Get("loc.2"); inner.Exists() && param.Str == "sampling_params" {
			param = inner
		}
		f.param = param.String()
		f.message = first.Get("msg").String()
		f.reason = f.message
	}
	return f
}

// translate turns an engine's error into the error for the client. The meaning
// of the status is kept. The text is the filter's own: of the engine's text,
// only messages about a sampling parameter are used, because others may contain
// a prompt, token ids or details of the network.
//
//	400, 422   400, with the parameter at fault; too long: context_length_exceeded
//	401, 403   502: the credentials are the filter's, not the client's
//	404        404 if a model is unknown, else 502: the filter chose the path
//	408, 504   504
//	413        413
//	429, 503   the same, with the engine's retry-after, or 1
//	others     502, so that a 500 is always an error of the filter itself
func translate(f failure) *apierror.Error {
	err := clientError(f)
	// Without a word of the engine the error has its own, for the statuses that need one.
	if f.retryAfter > 0 {
		err.RetryAfter = f.retryAfter
	}
	return err.With(f.cause())
}

// NotServed is the error of a request for a model that the engine does not serve.
func NotServed() *apierror.Error {
	return apierror.New(http.StatusNotFound, "model_not_found", "model", "The engine does not serve this model.")
}

func clientError(f failure) *apierror.Error {
	switch f.status {
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge:
		// While it compiles a grammar SGLang aborts with this status, whatever has ended the request.
		if f.message == "Aborted by AbortReq." {
			return aborted()
		}
		return invalidRequest(f)

	// The client's credentials are Envoy's business. What the engine rejects is the filter's or
	// Envoy's, which the client cannot change.
	case http.StatusUnauthorized, http.StatusForbidden:
		return badGateway("The engine rejected the filter's credentials. The engine's operator has to configure them.")

	case http.StatusNotFound:
		// vLLM has a 404 for a model that it does not serve, and for a path.
		if f.param == "model" || strings.Contains(strings.ToLower(f.message), "model") {
			return NotServed()
		}
		return badGateway(
			"The engine does not know the requested path. The engine's operator has to check its kind and route.")

	case http.StatusRequestTimeout, http.StatusGatewayTimeout:
		return apierror.New(http.StatusGatewayTimeout, "", "", "The engine did not answer in time. Try again later.")
	case http.StatusTooManyRequests:
		return tooMany(f)
	case http.StatusServiceUnavailable:
		return apierror.New(http.StatusServiceUnavailable, "", "",
			"No engine is available at the moment. Try again later.")
	}

	// TensorRT-LLM's executor checks the length, and all that it refuses is INTERNAL.
	if f.status == http.StatusInternalServerError && tooLongForTRTLLM.MatchString(f.message) {
		return contextLengthExceeded(f.message)
	}
	return badGateway("The engine failed to answer this request.")
}

// tooMany is a rate limit: of the engine, or of Envoy in front of it, whose
// configuration names that of tokens.
func tooMany(f failure) *apierror.Error {
	err := apierror.New(http.StatusTooManyRequests, "rate_limit_exceeded", "",
		"The engine is at capacity. Try again later.")
	if f.kind == apierror.TypeTokens {
		err.Type, err.Message = f.kind, "Rate limit reached on tokens per minute. Try again later."
	}
	return err
}

func badGateway(message string) *apierror.Error {
	return apierror.New(http.StatusBadGateway, "", "", "%s", message)
}

func invalidRequest(f failure) *apierror.Error {
	// Clients shorten a conversation that is too long, and do not send it again as it is: this
	// comes before any other reading. llama.cpp says it by the type, others by their words.
	if f.kind == "exceed_context_size_error" || tooLong.MatchString(f.message) ||
		tooLongForTRTLLM.MatchString(f.message) {
		return contextLengthExceeded(f.message)
	}
	if f.status == http.StatusRequestEntityTooLarge {
		return apierror.New(f.status, "", "", "The request is too large for the engine. Shorten the conversation.")
	}

	if reason := f.grammarFault(); reason != "" {
		return apierror.Invalid("", "The engine does not take the grammar of the output: %s.", reason)
	}
	if unavailableMinimum.MatchString(f.message) {
		return apierror.Invalid("min_tokens",
			"The engine keeps no minimum, because it runs with --skip-tokenizer-init. Leave min_tokens out.")
	}

	// Only what is about a sampling parameter is passed on: other text may repeat the prompt.
	param, reason := f.fault()
	if param == "" {
		return apierror.Invalid("", "The engine refused the request.")
	}
	if reason == "" {
		return apierror.Invalid(param, "The engine refused %s.", param)
	}
	return apierror.Invalid(param, "The engine refused %s: %s", param, reason)
}

// Patterns of the engines' messages about a request that exceeds the context,
// and of the numbers in them.
var (
	tooLong = regexp.MustCompile(
		`(?i)(context|model|allowed|sequence)[ _]len(gth)?\b.*(exceed|too large|contains|requested|allow)|` +
			`(longer than|exceeds?)\b.*\b(context|model|allowed|sequence)('s context)?[ _]len(gth)?\b|` +
			`maximum context length|greater than max_model_len|` +
			// vLLM's limit shortened to the room behind the prompt. The filter asks for 1 at least.
			`^max_tokens must be at least 1, got (?:0|-\d+)\.`)
	tooLongForTRTLLM = regexp.MustCompile(
		`should not exceed max_(num_tokens|seq_len)|default_max_tokens.*must be greater than 0`)
	limitNumber = regexp.MustCompile(
		`(?i)(?:context|model|allowed|sequence)[ _](?:len(?:gth)?|size)\D{0,12}?(\d+)|` +
			`max_(?:num_tokens|seq_len) \((\d+)\)`)
	promptNumber = regexp.MustCompile(
		`(?i)(?:contains|has|input(?: length)?|prompt|request) \(?(?:at least )?(?:length )?(\d+)|` +
			`(\d+) (?:tokens from|in) the (?:input )?messages|prompt[ _]len(?:gth)?\W{1,3}(\d+)`)
	totalNumber = regexp.MustCompile(`(?i)requested (?:a total of )?(\d+) tokens`)
)

// contextLengthExceeded is the error of a conversation that is too long, in the words
// in which the filter itself says it (package turn): clients decide by them. Numbers
// are those of the engine's message, as far as it has them.
func contextLengthExceeded(message string) *apierror.Error {
	const end = "(context_length_exceeded: prompt is too long)"
	limit, prompt := number(limitNumber, message), number(promptNumber, message)
	total := number(totalNumber, message)
	// Some messages have the prompt's tokens, others only those of prompt and output together.
	tokens, maximum := atoi(cmp.Or(prompt, total)), atoi(limit)

	text := "Your messages are longer than the model's maximum context length. " +
		"Please reduce the length of the messages."
	switch {
	case maximum == 0:
	case tokens > maximum:
		text = fmt.Sprintf("This model's maximum context length is %d tokens. However, your messages resulted in "+
			"%d tokens. Please reduce the length of the messages.", maximum, tokens)
	case tokens > 0: // the output does not fit
		text = fmt.Sprintf("This model's maximum context length is %d tokens. However, your messages resulted in "+
			"%d tokens, and the output has no room for as many as the request asks for. "+
			"Please reduce the length of the messages or of the completion.", maximum, tokens)
	default:
		text = fmt.Sprintf("This model's maximum context length is %d tokens. However, your messages and the "+
			"completion resulted in more. Please reduce the length of the messages or of the completion.", maximum)
	}

	err := apierror.New(http.StatusBadRequest, "context_length_exceeded", "messages", "%s %s", text, end)
	if maximum > 0 && tokens > maximum {
		err.Overflow = &apierror.Overflow{Tokens: tokens, Max: maximum}
	}
	return err
}

// atoi is the value of decimal digits, 0 without any.
func atoi(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

func number(pattern *regexp.Regexp, s string) string {
	for _, group := range append(pattern.FindStringSubmatch(s), "")[1:] {
		// A longer number is no count of tokens, and would not fit everywhere.
		if group != "" && len(group) < 10 {
			return group
		}
	}
	return ""
}

// openAIName maps the parameters of the engines' requests to OpenAI's.
var openAIName = map[string]string{
	"temperature":        "temperature",
	"top_p":              "top_p",
	"top_k":              "top_k",
	"min_p":              "min_p",
	"frequency_penalty":  "frequency_penalty",
	"presence_penalty":   "presence_penalty",
	"repetition_penalty": "repetition_penalty",
	"n":                  "n",
	"max_tokens":         "max_tokens",
	"max_new_tokens":     "max_tokens",
	"min_tokens":         "min_tokens",
	"min_new_tokens":     "min_tokens",
	"seed":               "seed",
	"sampling_seed":      "seed",
	"priority":           "priority",
	"cache_salt":         "cache_salt",
	"logit_bias":         "logit_bias",
	"logprobs":           "top_logprobs",
	"top_logprobs_num":   "top_logprobs",
	"stop_token_ids":     "stop_token_ids",
}

// hasTokenIDs contains the parameters whose error messages contain token ids.
var hasTokenIDs = map[string]bool{"logit_bias": true, "stop_token_ids": true}

var (
	// A line of pydantic's report as vLLM writes it.
	pydantic = regexp.MustCompile(`'loc': 'body\.(?:sampling_params\.)?([a-z_]+)[^']*', 'msg': '([^']*)'`)
	// The same as SGLang writes it, with locations as tuples.
	pydanticTuple = regexp.MustCompile(`'loc': \('body', (?:'sampling_params', )?'([a-z_]+)'[^)]*\), 'msg': '([^']*)'`)
	// A message about a range: "top_p must be in (0, 1], got 2.0."
	ranged = regexp.MustCompile(`^([a-z_]+) must [a-zA-Z0-9 _.,=\[\]()<>-]{1,100}$`)
	suffix = regexp.MustCompile(` \(parameter=([a-z_]+)(, value=[^)]*)?\)$`)
)

var (
	// SGLang's words for a grammar that its parser refuses, with the time and the parser's source:
	//
	//	Failed to compile structural_tag grammar: [15:31:44] /project/cpp/grammar_parser.cc:820: …
	refusedGrammar = regexp.MustCompile(`Failed to compile [a-z_]+ grammar: (?:\[[0-9:]+\] )?(?:\S+:\d+: )?(.+)`)
	// vLLM's words for any grammar that it does not take.
	invalidGrammar = regexp.MustCompile(`^Invalid (?:structured_outputs [a-z_]+|grammar) specification\b`)
	// What could be a path of the engine's machine.
	serverPath = regexp.MustCompile(`(?:/[A-Za-z0-9_.-]+){2,}`)
	// SGLang's words for a limit that it keeps with a tokenizer only.
	unavailableMinimum = regexp.MustCompile(`^min_new_tokens=\d+ is unavailable when skip_tokenizer_init`)
)

// grammarFault returns why the engine does not compile the request's grammar; "" if that is not
// the error. The parser speaks of the grammar, which is the client's, and of no prompt.
func (f failure) grammarFault() string {
	if strings.Contains(f.message, "Grammar-based generation") {
		return "it runs with --grammar-backend none, or with --skip-tokenizer-init"
	}
	if invalidGrammar.MatchString(f.message) {
		return doesNotCompile
	}
	m := refusedGrammar.FindStringSubmatch(f.message)
	if m == nil {
		return ""
	}
	reason := serverPath.ReplaceAllString(m[1], "…")
	reason = strings.TrimRight(strings.ToValidUTF8(reason[:min(len(reason), maxReason)], ""), " .:\r")
	return cmp.Or(reason, doesNotCompile)
}

const doesNotCompile = "it does not compile"

// fault returns the OpenAI name of the parameter at fault and the reason. The
// reason is the engine's text, or "" if that text may contain anything else.
func (f failure) fault() (param, reason string) {
	// Before the other forms: a report quotes the value at fault, which must not be shown.
	for _, report := range []*regexp.Regexp{pydantic, pydanticTuple} {
		found := report.FindAllStringSubmatch(f.message, 2)
		// vLLM's generate API says first that the object is no instance of its class.
		if len(found) > 1 && found[0][1] == "sampling_params" {
			found = found[1:]
		}
		if len(found) > 0 {
			return parameterFault(found[0][1], found[0][2])
		}
	}

	// vLLM ends some messages with the parameter and its value.
	message := suffix.ReplaceAllString(f.message, "")
	if m := ranged.FindStringSubmatch(message); m != nil {
		return parameterFault(m[1], message)
	}
	field, _, _ := strings.Cut(strings.TrimPrefix(f.param, "body."), ".")
	if m := suffix.FindStringSubmatch(f.message); field == "" && m != nil {
		field = m[1]
	}
	return parameterFault(field, f.reason)
}

// maxReason is the longest reason that is shown, in bytes.
const maxReason = 300

func parameterFault(field, message string) (param, reason string) {
	param = openAIName[field]
	if param == "" || hasTokenIDs[param] || len(message) > maxReason {
		return param, ""
	}
	return param, message
}
