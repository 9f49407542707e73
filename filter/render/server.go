package render

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/filter/work"
)

// ServerOptions is what a [Server] is made of.
type ServerOptions struct {
	Endpoints []api.Endpoint
	Turns     *turn.Env
	// Model returns the settings of a model by the name that a request has for it, ""
	// if it names none; nil: the model does not speak Harmony.
	Model func(name string) *turn.Model
	// MaxBodyBytes bounds a request's body, and MaxInflightBytes what all requests at
	// a time hold.
	MaxBodyBytes, MaxInflightBytes int64
	// Timeout bounds the handling of a request whose body is there.
	Timeout time.Duration
	// Observe takes what came of a request; nil: nothing does. path is the endpoint's
	// pattern, or "other".
	Observe func(path string, status int, took time.Duration)
}

// Server serves endpoints over HTTP, without Envoy. It is an [http.Handler], and keeps
// nothing between two requests.
type Server struct {
	o    ServerOptions
	held atomic.Int64 // bytes of all requests
}

// NewServer makes a server.
func NewServer(o *ServerOptions) *Server { return &Server{o: *o} }

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began, path, id := time.Now(), "other", r.Header.Get("X-Request-Id")
	room := &room{server: s}
	defer room.leave()
	e, ids := api.Match(s.o.Endpoints, r.Method, r.URL.Path)
	var o api.Outcome
	// Observe gets "other" here: paths of clients must not become labels of metrics.
	if e == nil {
		o = api.Refused(apierror.New(http.StatusNotFound, "not_found", "",
			"There is no %s %s here: docs/render.md lists the paths of the render service.", r.Method, r.URL.Path))
	} else {
		path = e.Pattern
		ctx := r.Context()
		rc := &turn.RequestContext{Env: s.o.Turns, RequestID: id, Reserve: room.take}
		o = s.outcome(ctx, e, &api.HTTPRequest{IDs: ids, Path: r.URL.Path, Query: r.URL.Query(), Context: rc}, r)
	}
	status := s.write(w, r, e, id, &o, room)
	if s.o.Observe != nil {
		s.o.Observe(path, status, time.Since(began))
	}
}

// outcome reads the body of a request, and lets its endpoint handle it.
func (s *Server) outcome(ctx context.Context, e *api.Endpoint, to *api.HTTPRequest, r *http.Request) api.Outcome {
	if r.Header.Get("Content-Encoding") != "" || !api.IsJSON(r.Header.Get("Content-Type")) {
		return api.Refused(apierror.New(http.StatusUnsupportedMediaType, "unsupported_media_type", "",
			"The body is not sent as plain JSON. Send JSON in UTF-8, without compression, "+
				"with the header content-type: application/json."))
	}

	var err *apierror.Error
	if to.Body, err = s.read(r, to.Context.Reserve); err != nil {
		return api.Refused(err)
	}
	// The bytes of the body itself were reserved while it was read.
	if err := to.Context.Reserve((madeOf - 1) * len(to.Body)); err != nil {
		return api.Refused(err)
	}

	name := modelOf(to.Body)
	if to.Context.Model = s.o.Model(name); to.Context.Model == nil {
		return api.Refused(apierror.New(http.StatusNotFound, "model_not_found", "model",
			"The model %q does not speak Harmony, as harmony_models has it. Name another one, or correct "+
				"harmony_models.", name))
	}
	// vLLM's render service needs no model in a request, and the APIs' decoders refuse one without.
	if name == "" {
		to.Body = withModel(to.Body)
	}

	// The time counts from here: how long a body may take is the HTTP server's own bound.
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	to.Context.Work = work.New(ctx, work.PerRequest)
	ctx = to.Context.Work.Context()
	o := e.Handle(ctx, to)
	// No endpoint of this package has one.
	if o.Kind == api.OutcomeRequest || o.Kind == api.OutcomeElsewhere {
		return api.Refused(apierror.New(http.StatusInternalServerError, "", "", "Internal error."))
	}
	return o
}

// anyModel is the name of the model where a request has none. It is not in prompts.
const anyModel = "gpt-oss"

// withModel returns the body of a request that names no model with one: the APIs require it.
func withModel(body []byte) []byte {
	members, isObject := bytes.CutPrefix(bytes.TrimSpace(body), []byte("{"))
	model := gjson.GetBytes(body, "model")
	switch {
	// A second member of the name would be refused as a duplicate.
	case isObject && (model.Raw == "null" || model.Raw == `""`):
		return slices.Concat(body[:model.Index], []byte(`"`+anyModel+`"`), body[model.Index+len(model.Raw):])
	case !isObject || model.Exists():
		return body
	}

	named := append(make([]byte, 0, len(body)+len(anyModel)+16), `{"model":"`+anyModel+`"`...)
	// An empty object has no member that a comma could precede.
	if !bytes.HasPrefix(bytes.TrimSpace(members), []byte("}")) {
		named = append(named, ',')
	}
	return append(named, members...)
}

// modelOf returns the name of the model in a body: its own, or that of the request in it.
func modelOf(body []byte) string {
	if name := gjson.GetBytes(body, "model"); name.Type == gjson.String {
		return name.Str
	}
	for _, k := range kinds {
		if name := gjson.GetBytes(body, k.request+".model"); name.Type == gjson.String {
			return name.Str
		}
	}
	return ""
}

// madeOf is how many bytes a body takes while it is decoded, for each of its own; see the
// constant of package extproc.
const madeOf = 4

// firstRead is the room for a body of unknown length, in bytes.
const firstRead = 4 << 10

// read reads a body.
func (s *Server) read(r *http.Request, reserve func(bytes int) *apierror.Error) ([]byte, *apierror.Error) {
	tooLarge := apierror.New(http.StatusRequestEntityTooLarge, "request_too_large", "",
		"The request body has more than %d bytes. Shorten it, or raise limits.max_body_bytes.", s.o.MaxBodyBytes)
	// A length that is too large is refused before any of the body is read; -1: the client names none.
	if r.ContentLength > s.o.MaxBodyBytes {
		return nil, tooLarge
	}

	var body []byte
	limited := http.MaxBytesReader(nil, r.Body, s.o.MaxBodyBytes)
	grow := func(n int) *apierror.Error {
		if err := reserve(n); err != nil {
			return err
		}
		body = slices.Grow(body, n)
		return nil
	}
	// There is a byte more, so that the end is seen without growing.
	if err := grow(int(max(r.ContentLength+1, firstRead))); err != nil {
		return nil, err
	}

	for {
		// Doubling, so that a body of unknown length takes few steps, each of them reserved.
		if len(body) == cap(body) {
			if err := grow(len(body)); err != nil {
				return nil, err
			}
		}

		n, err := limited.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		var limit *http.MaxBytesError
		switch {
		case errors.Is(err, io.EOF):
			return body, nil
		case errors.As(err, &limit):
			return nil, tooLarge
		case err != nil:
			return nil, apierror.Invalid("",
				"The request body ended early. Send it again.").With(fmt.Errorf("read the body: %w", err))
		}
	}
}

// write writes an outcome, and returns its HTTP status.
func (s *Server) write(
	w http.ResponseWriter, r *http.Request, e *api.Endpoint, id string, o *api.Outcome, room *room,
) int {
	status, kind, body := http.StatusOK, "application/json", o.Answer
	// All events are there already: only Envoy's clients get replies while they are made.
	if o.Kind == api.OutcomeStream {
		kind = "text/event-stream"
		for end := false; !end && o.Err == nil; {
			var piece []byte
			piece, end, o.Err = o.Stream.Next(r.Context(), room.take)
			body = append(body, piece...)
		}
	}

	if o.Err != nil {
		kind = "application/json"
		status, body = e.Error(o.Err, id)
		// The header has whole seconds, and 0 would ask for a retry at once.
		if after := o.Err.RetryAfter; after > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(max(after, time.Second)/time.Second)))
		}
	}

	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
	return status
}

// room is what one request holds of the server's bytes.
type room struct {
	server *Server
	bytes  atomic.Int64
}

// take takes n bytes more.
func (r *room) take(n int) *apierror.Error {
	r.bytes.Add(int64(n))
	if r.server.held.Add(int64(n)) <= r.server.o.MaxInflightBytes {
		return nil
	}
	return apierror.New(http.StatusServiceUnavailable, "overloaded", "",
		"The requests at a time hold more than limits.max_inflight_bytes. Send the request again.")
}

// leave returns what the request has taken.
func (r *room) leave() { r.server.held.Add(-r.bytes.Load()) }

// Fields are the described fields of the requests of each endpoint, by its name.
// docs/compatibility.md has them, and records keep of each what its row says.
func Fields() jsontext.Objects {
	derender := derenderFields
	for _, k := range kinds {
		derender = derender.Beside(k.fields())
	}
	return jsontext.Objects{
		"derender":   derender.Describe(),
		"tokenize":   tokenizeFields.Describe(),
		"detokenize": detokenizeFields.Describe(),
	}
}
