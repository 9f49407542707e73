package extproc

import (
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

// What keeps a request of the filter's own paths from being read in another way by
// the upstream than by the filter.

// checkBodyType rejects a body that is not sent as JSON: an upstream that reads it
// anyway would answer past the filter.
func (r *clientRequest) checkBodyType(contentType string) *apierror.Error {
	if r.bodyless || r.method != http.MethodPost || api.IsJSON(contentType) {
		return nil
	}
	return apierror.New(http.StatusUnsupportedMediaType, "unsupported_media_type", "",
		"The content type of the request is not that of JSON. Send JSON in UTF-8, with the header "+
			"content-type: application/json.")
}

// respelled reports whether a request's path is another spelling of a path of an API
// that models answer, which an upstream could read as that path. Envoy has other
// spellings only if it does not normalize paths.
func (s *Server) respelled(r *clientRequest) bool {
	plain, err := url.PathUnescape(r.path)
	if err != nil {
		return false // no upstream reads it
	}

	// As lenient as any upstream may be: some read a backslash as a slash.
	plain = path.Clean(strings.ReplaceAll(plain, `\`, "/"))
	if plain == r.path {
		return false
	}
	e, _ := api.Match(s.o.Endpoints, r.method, plain)
	return e != nil && !e.NoModel
}

// ambiguous is the error for a body of which another reader could find another model
// than the scan; nil if there is none so far.
func (s *modelScan) ambiguous() *apierror.Error {
	switch {
	// UTF-16 or UTF-32, of which the scan reads nothing, and an upstream the model.
	case s.zero:
		return apierror.Invalid("",
			"The request body has a zero byte, which JSON in UTF-8 does not. Send JSON in UTF-8.")
	// Some readers take the first member of a name, others the last.
	case s.twice:
		return apierror.Invalid("model", `The request has two fields "model". Send one.`)
	}
	return nil
}

// relay passes on a piece of a body. Where the body has named another model, the
// piece is scanned before: the upstream does not get the end of a body that names a
// second one.
func (x *exchange) relay(p []byte, end bool) {
	r := &x.request
	if r.scan.relayed {
		r.scan.feed(p)
		if err := r.scan.ambiguous(); err != nil {
			x.refuseRelayed(err)
			return
		}
	}
	x.to.requestBody(p, end)
}

// refuseRelayed ends a request of which the upstream has a part. Envoy resets the
// request to the upstream, and the client's if the reply has begun.
func (x *exchange) refuseRelayed(err *apierror.Error) {
	x.request.scan.relayed = false
	if x.upstream == upstreamSilent {
		x.SendError(err)
		return
	}
	x.phase = phaseAnswered
	x.runner.Record.Failed(err)
	status, object := x.request.endpoint.Error(err, x.request.id)
	x.to.add(immediateResponse(status, object, details(err), 0))
}
