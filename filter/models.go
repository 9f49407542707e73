package filter

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

// modelsPath is OpenAI's list of models. One model of it stands below.
const modelsPath = "/v1/models"

// servesModels tells whether a request is for the list or for a model of it.
// Without a loopback listener nobody can be asked: it passes.
func (s *Server) servesModels(method, path string) bool {
	return s.loopback != nil && method == http.MethodGet && (path == modelsPath || strings.HasPrefix(path, modelsPath+"/"))
}

// serveModels answers it.
func (s *Server) serveModels(ctx context.Context, x *exchange) ([]byte, *apierror.Error) {
	one, err := url.PathUnescape(strings.TrimPrefix(strings.TrimPrefix(x.path, modelsPath), "/"))
	if err != nil {
		return nil, apierror.Invalid("model", "the path %s is not percent-encoded", x.path)
	}
	all, missing, theirs := s.allModels(ctx, x)
	switch i := all.index(one); {
	case theirs:
		return nil, elsewhere(x.path)
	case one != "" && i >= 0:
		return []byte(all.models[i].raw), nil
	case one != "": // the upstream may know it all the same
		return nil, elsewhere(x.path)
	case missing && len(all.models) == 0:
		err := apierror.New(http.StatusServiceUnavailable, "models_unknown", "", "no engine tells its models at the moment: try again shortly")
		err.RetryAfter = time.Second
		return nil, err
	}
	return all.append(nil), nil
}

// elsewhere has the request passed on, for the upstream to answer.
func elsewhere(path string) *apierror.Error {
	return apierror.New(http.StatusNotFound, "model_not_found", "model", "%s is not answered here", path)
}

// allModels is what the engines, whoever takes requests for other models, and
// the configuration tell of models; missing says that somebody does not tell,
// theirs that the others' answer is for the client as it is.
func (s *Server) allModels(ctx context.Context, x *exchange) (all modelList, missing, theirs bool) {
	var asked sync.WaitGroup
	var other otherModels
	asked.Go(func() { other = s.otherModels(ctx, x) })
	lists := make([]engineModels, len(s.cfg.Engines))
	for i, e := range s.cfg.Engines {
		asked.Go(func() { lists[i] = s.engineModels(ctx, e.Name) })
	}
	asked.Wait()
	all.others, missing, theirs = other.list, other.missing, other.theirs
	all.add(all.others.Get("data"))
	for i, e := range s.cfg.Engines {
		missing = missing || lists[i].err != nil
		all.serve(lists[i].data, func(id string) bool { return s.cfg.serves(e.Name, id) })
	}
	for _, name := range s.cfg.names() {
		all.configured(name, s)
	}
	return all, missing, theirs
}

// serves tells whether requests for a model go to the engine of that name, and
// reach it by this id.
func (c *Config) serves(name, id string) bool {
	m, harmony := c.Model(id)
	return harmony && m.Engine == name && m.UpstreamModel == id
}

// names are the models that the configuration names as a whole, and that reach
// what it names them for.
func (c *Config) names() []string {
	var names []string
	add := func(name string) {
		if _, harmony := c.Model(name); harmony {
			names = append(names, name)
		}
	}
	for _, entry := range c.HarmonyModels {
		if name, ok := strings.CutPrefix(entry, "="); ok {
			add(name)
		}
	}
	for _, m := range append(slices.Clone(c.Models), c.ModelDefaults) {
		name, whole := strings.CutPrefix(m.Match, "=")
		at := cmp.Or(m.Engine, c.ModelDefaults.Engine, c.Engines[0].Name)
		if whole {
			add(name)
		} else if m.UpstreamModel != "" && c.serves(at, m.UpstreamModel) {
			add(m.UpstreamModel)
		}
	}
	return names
}
