package extproc

import (
	"net/http"
	"slices"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

// The paths below those of the filter are closed: what has no endpoint there would
// reach the upstream without a tenant, limits and a log.

// closed returns the error for a request without an endpoint to a path of the filter,
// or to one below, and the endpoint whose clients read it. No error: it passes. A
// browser's preflight request always does.
func (s *Server) closed(r *clientRequest) (*api.Endpoint, *apierror.Error) {
	family, methods := s.around(r.path)
	cfg := s.o.Config

	// An upstream with the same API has paths that the filter does not know, for requests that
	// say whose they are.
	switch {
	case family == nil || r.method == http.MethodOptions || cfg.Routing.Opens(r.path):
		return nil, nil
	case cfg.Responses.RelayUnknown || len(cfg.Rollout) > 0:
		// The upstream has the same API.
		return family, s.checkTenant(r)
	case len(methods) == 0:
		return family, apierror.New(http.StatusNotFound, "", "", "There is no such path. Check the URL.")
	}

	err := apierror.New(http.StatusMethodNotAllowed, "", "",
		"The path has no method %s. Send %s.", r.method, strings.Join(methods, " or "))
	if err.Allow = methods; slices.Contains(methods, http.MethodGet) {
		err.Allow = append(err.Allow, http.MethodHead)
	}
	return family, err
}

// around returns the first endpoint whose path is a path, or has it below, and the
// methods of those that match it except for the method.
func (s *Server) around(path string) (family *api.Endpoint, methods []string) {
	for i := range s.o.Endpoints {
		e := &s.o.Endpoints[i]
		base, _, _ := strings.Cut(e.Pattern, "/{")
		if family == nil && (path == base || strings.HasPrefix(path, base+"/")) {
			family = e
		}
		if e.Matches(path) && !slices.Contains(methods, e.Method) {
			methods = append(methods, e.Method)
		}
	}
	return family, methods
}
