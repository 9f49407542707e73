package extproc

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/sirupsen/logrus"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/header"
)

// Requests for models that harmony_models does not have. By default they are the upstream's. But
// an engine that takes any name for its model answers them as well, without Harmony: so they leave
// a trace in the log and in the reply.

const (
	// maxOthers is how many names of other models are logged: clients can make up any number.
	maxOthers = 64
	// maxLoggedName is how many bytes of a name are in the log, and in the error for a client.
	maxLoggedName = 128
	// maxKnown is how many known models an error names.
	maxKnown = 20
)

// otherModels are the names of other models that were logged. It is safe for concurrent use.
type otherModels struct {
	mu    sync.Mutex
	names map[string]struct{}
}

// warn logs the first request with a name.
func (o *otherModels) warn(log *logrus.Logger, cfg *config.Config, name string) {
	name = cutName(name)
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, known := o.names[name]; known || len(o.names) > maxOthers {
		return
	}

	if o.names == nil {
		o.names = map[string]struct{}{}
	}
	o.names[name] = struct{}{}
	if len(o.names) > maxOthers {
		log.Warnf("More than %d models were named that harmony_models does not have: the next ones are not logged",
			maxOthers)
		return
	}

	log.WithField("model", name).Warnf(
		"A request names the model %q, which harmony_models does not have: it was passed on without Harmony. "+
			"If an engine serves gpt-oss under this name, %s. If nothing else is served here, set unknown_models: "+
			"reject",
		name, addModel(cfg, name))
}

// addModel says how a name becomes one of harmony_models.
func addModel(cfg *config.Config, name string) string {
	if name == "" { // which no entry can be
		return `have clients send its name, or set aliases: [{name: "*", model: NAME}]`
	}
	entries := append(slices.Clone(cfg.HarmonyModels), "="+name)
	for i := range entries {
		entries[i] = fmt.Sprintf("%q", entries[i])
	}
	return "set harmony_models: [" + strings.Join(entries, ", ") + "]"
}

// cutName cuts the name of a model that a client has chosen.
func cutName(name string) string {
	if len(name) <= maxLoggedName {
		return name
	}
	return strings.ToValidUTF8(name[:maxLoggedName], "") + "…"
}

// pass is the verdict on a request that is not the filter's: it passes, or is refused where nobody
// else has its model.
func (c *collector) pass() verdict {
	r, cfg := &c.request, c.s.o.Config
	if r.other {
		if cfg.UnknownModels == config.UnknownReject {
			return refused(cmp.Or(c.s.checkTenant(r), c.s.unknownModel(r.scan.model)))
		}
		c.s.others.warn(c.s.telemetry.Log, cfg, r.scan.model)
	}
	return verdict{kind: verdictPass}
}

// passedMark is what the reply to a request that was passed on says of it; nil: nothing.
func (x *exchange) passedMark() *mutation {
	if !x.request.other || !slices.Contains(x.s.o.Config.ReplyHeaders, header.Passed) {
		return nil
	}
	var m mutation
	m.set(engine.Header{Name: header.Passed, Value: header.PassedModel})
	return &m
}

// unknownModel is the error of a request for a model that nobody serves here.
func (s *Server) unknownModel(name string) *apierror.Error {
	return apierror.New(http.StatusNotFound, codeModelNotFound, "model",
		"There is no model %q here. %s", cutName(name), s.knownModels())
}

// codeModelNotFound is the code of errors of models that are not served.
const codeModelNotFound = "model_not_found"

// knownModels says which models there are, as far as it is known.
func (s *Server) knownModels() string {
	known := s.o.Models.Known()
	if len(known) == 0 {
		return fmt.Sprintf("Names of models have one of these: %s.", strings.Join(s.o.Config.HarmonyModels, ", "))
	}
	more := ""
	if n := len(known) - maxKnown; n > 0 {
		known, more = known[:maxKnown], fmt.Sprintf(" and %d more, which GET /v1/models lists", n)
	}
	return fmt.Sprintf("Known models: %s%s.", strings.Join(known, ", "), more)
}

// withKnownModels returns an error for the client with the names of models that there are, if it
// is that of an engine which does not have the request's.
func (x *exchange) withKnownModels(err *apierror.Error) *apierror.Error {
	asked := x.runner.Run() != nil || x.request.endpoint != nil && x.request.endpoint.NoCall
	if err.Code != codeModelNotFound || !asked {
		return err
	}
	named := *err
	named.Message = fmt.Sprintf("The engine does not serve the model %q. %s", cutName(x.request.scan.model),
		x.s.knownModels())
	return &named
}
