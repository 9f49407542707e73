package api

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// Endpoint is a method and path that the filter serves.
type Endpoint struct {
	API string // label in logs and metrics: chat, responses, messages, models

	// Which requests are the endpoint's. In the path that is its pattern a segment {…}
	// matches one segment that is not empty, and a last one {…...} the rest of the path, which
	// may be empty. Header is a request header, in lower case, without which a request is not
	// the endpoint's; "": none. NoModel is that the body names no model: the path alone makes
	// the request ours.
	Method  string
	Pattern string
	Header  string
	NoModel bool

	// NoCall is that no engine gets the request, so that none says whether it serves the model.
	NoCall bool
	// Public is that the answer is the same for all tenants.
	Public bool
	// OptionsHeader is a request header whose values switch on parts of the API, such as
	// anthropic-beta; "": there is none.
	OptionsHeader string
	// IDHeader is a header of replies that has the request's id, beside x-request-id; "":
	// none.
	IDHeader string

	// Errors writes errors in place of answers as the endpoint's clients read them:
	// their HTTP status and their JSON. nil: as OpenAI's API does.
	Errors func(err *apierror.Error, requestID string) (status int, object []byte)
	// LimitHeaders writes what is left of a token budget, at a time, as the endpoint's
	// clients read it. nil: as OpenAI's API does.
	LimitHeaders func(l *apierror.TokenLimit, now time.Time) []engine.Header

	// Handle answers a request. It runs on a goroutine of its own, and may use
	// stores and take long; ctx ends when the client leaves or time is up.
	Handle func(ctx context.Context, r *HTTPRequest) Outcome
}

// Error returns the HTTP status and the JSON of an error in place of the answer to a
// request with an id. The endpoint may be nil: no endpoint serves the request.
func (e *Endpoint) Error(err *apierror.Error, requestID string) (status int, object []byte) {
	if e == nil || e.Errors == nil {
		return err.Status, err.JSON()
	}
	return e.Errors(err, requestID)
}

// Limits returns the headers that say what is left of a token budget at a time. The
// endpoint may be nil.
func (e *Endpoint) Limits(l *apierror.TokenLimit, now time.Time) []engine.Header {
	var headers []engine.Header
	if e == nil || e.LimitHeaders == nil {
		headers = []engine.Header{
			{Name: "x-ratelimit-limit-tokens", Value: strconv.FormatInt(l.Limit, 10)},
			{Name: "x-ratelimit-remaining-tokens", Value: strconv.FormatInt(l.Remaining, 10)},
			{Name: "x-ratelimit-reset-tokens", Value: l.Reset.Round(time.Millisecond).String()},
		}
	} else {
		headers = e.LimitHeaders(l, now)
	}

	// The SDKs of both would send the request again.
	if l.Never {
		headers = append(headers, engine.Header{Name: "x-should-retry", Value: "false"})
	}
	return headers
}

// HTTPRequest is what an endpoint gets of a request.
type HTTPRequest struct {
	// Path is without the query; IDs are its segments that stand where the pattern has {…}.
	Path  string
	IDs   [2]string
	Query url.Values
	// Header is what may go along with calls through the loopback listener; nil without one.
	Header http.Header
	// Options are the values of the endpoint's OptionsHeader.
	Options []string
	Body    []byte // valid until Handle returns

	Context *turn.RequestContext
	Codex   bool // Codex compatibility mode is on
}

// OutcomeKind is what an endpoint makes of a request.
type OutcomeKind uint8

// The kinds of outcomes.
const (
	// OutcomeRequest: model calls have to be made. Request has the decoded request.
	OutcomeRequest OutcomeKind = iota + 1
	// OutcomeAnswer: Answer is the JSON of a reply with status 200.
	OutcomeAnswer
	// OutcomeStream: Stream has the events of a reply, such as a stored one.
	OutcomeStream
	// OutcomeRefused: Err is the error in place of a reply.
	OutcomeRefused
	// OutcomeElsewhere: what is asked for is not stored here, as Elsewhere says. The request
	// may be the upstream's.
	OutcomeElsewhere
)

// Outcome is what an endpoint makes of a request: its kind, with the data of that kind. The
// functions of this file make outcomes.
type Outcome struct {
	Kind      OutcomeKind
	Request   Request
	Answer    []byte
	Stream    Follower
	Err       *apierror.Error
	Elsewhere *apierror.Error
}

// Decoded is the outcome of a request that needs model calls.
func Decoded(r Request) Outcome { return Outcome{Kind: OutcomeRequest, Request: r} }

// Answered is the outcome of a request whose answer is JSON; or, if err is not nil, an error.
func Answered(object []byte, err *apierror.Error) Outcome {
	if err != nil {
		return Refused(err)
	}
	return Outcome{Kind: OutcomeAnswer, Answer: object}
}

// Streamed is the outcome of a request whose answer is a stream that is there already.
func Streamed(f Follower) Outcome { return Outcome{Kind: OutcomeStream, Stream: f} }

// Refused is the outcome of a request that cannot be answered.
func Refused(err *apierror.Error) Outcome { return Outcome{Kind: OutcomeRefused, Err: err} }

// Elsewhere is the outcome of a request for what is not stored here.
func Elsewhere(err *apierror.Error) Outcome {
	return Outcome{Kind: OutcomeElsewhere, Elsewhere: err}
}

// Match returns the first endpoint of a method and a path without its query, and
// the ids in the path; nil if there is none. Endpoints that need a header are left
// out.
func Match(endpoints []Endpoint, method, path string) (e *Endpoint, ids [2]string) {
	return MatchWith(endpoints, method, path, func(string) bool { return false })
}

// MatchWith is Match for a request that has the headers for which has returns true.
// A HEAD is answered as a GET; Envoy leaves the body out.
func MatchWith(endpoints []Endpoint, method, path string, has func(header string) bool) (e *Endpoint, ids [2]string) {
	if method == http.MethodHead {
		method = http.MethodGet
	}

	for i := range endpoints {
		if endpoints[i].Method != method || endpoints[i].Header != "" && !has(endpoints[i].Header) {
			continue
		}
		if ids, ok := match(endpoints[i].Pattern, path); ok {
			return &endpoints[i], ids
		}
	}
	return nil, ids
}

// QueryOf returns the parameters of a query, as the endpoint of a request gets them. The error
// says that not all of it can be read. A HEAD has no stream, because nobody follows one by
// its headers.
func QueryOf(method, query string) (values url.Values, err error) {
	if query != "" { // most have none, and take nothing
		values, err = url.ParseQuery(query)
	}
	if method == http.MethodHead {
		values.Del("stream")
	}

	return values, err
}

// OptionsOf returns the values of the endpoint's OptionsHeader. value returns all values of a
// request header, joined with commas as HTTP joins them. The endpoint may be nil.
func (e *Endpoint) OptionsOf(value func(name string) string) (options []string) {
	if e == nil || e.OptionsHeader == "" {
		return nil
	}
	for option := range strings.SplitSeq(value(e.OptionsHeader), ",") {
		if option = strings.TrimSpace(option); option != "" {
			options = append(options, option)
		}
	}
	return options
}

// Matches reports whether the endpoint has a path, whatever the method and the headers.
func (e *Endpoint) Matches(path string) bool {
	_, ok := match(e.Pattern, path)
	return ok
}

// match returns the segments of a path that stand where the pattern has {…}.
func match(pattern, path string) (ids [2]string, ok bool) {
	n := 0

	for more := true; more; {
		var want, got string
		var another bool
		want, pattern, more = strings.Cut(pattern, "/")
		// The rest of a path may have slashes of its own, and may be empty.
		if strings.HasSuffix(want, "...}") {
			ids[n] = path
			return ids, true
		}

		got, path, another = strings.Cut(path, "/")
		switch {
		// One of the two has segments left, and the other none.
		case another != more:
			return ids, false
		case strings.HasPrefix(want, "{"):
			if got == "" {
				return ids, false
			}
			ids[n] = got
			n++
		case got != want:
			return ids, false
		}
	}
	return ids, true
}
