// Package models answers the list of models, GET /v1/models, in OpenAI's and in
// Anthropic's form, from what the engines, the upstream for other models and the
// configuration say, and keeps the context lengths that the engines report.
//
// Engines are asked through Envoy's loopback listener ([Directory.Refresh]), each
// at most every ten seconds. A [Directory] is what is known of them. The list is put
// together for each request (collect): the upstream's list, which the client's own
// credentials may change, then what the engines say of the models that they serve, then
// what only the configuration names. A form writes it as one of the two APIs does. OpenAI's
// has a card of each Harmony model for the versions of Codex that read them.
//
// The package knows neither prompts nor replies. What it reports of context lengths is
// read by package extproc, for each request.
package models

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/loopback"
)

// path is the path of the list. A model of the list stands below it.
const path = "/v1/models"

// Options are what a [Directory] is made of.
type Options struct {
	Config   *config.Config
	Dialects map[string]engine.Dialect // by engine name
	Client   *loopback.Client          // nil: engines cannot be asked
	Log      *logrus.Logger
	Now      func() time.Time
}

// Directory knows the models that can be asked for. It is safe for concurrent use.
type Directory struct {
	o        Options
	engines  map[string]*engineList // by engine name
	upstream *atomic.Bool           // the upstream's list failed last time
	fetching *sync.WaitGroup
}

// New makes a directory. Nothing is asked yet.
func New(o Options) *Directory {
	d := &Directory{upstream: &atomic.Bool{}, fetching: &sync.WaitGroup{}}
	return d.With(o)
}

// With returns a directory of another configuration. It knows what engines of the
// same name and kind have reported. Closing one of the two closes both. With d nil
// it is New.
func (d *Directory) With(o Options) *Directory {
	if d == nil {
		return New(o)
	}
	next := &Directory{o: o, engines: map[string]*engineList{}, upstream: d.upstream, fetching: d.fetching}
	for _, e := range o.Config.Engines {
		next.engines[e.Name] = &engineList{}
		if list := d.engines[e.Name]; list != nil && d.o.Dialects[e.Name].Kind() == o.Dialects[e.Name].Kind() {
			next.engines[e.Name] = list
		}
	}
	return next
}

// Close waits for the engines that are being asked.
func (d *Directory) Close() { d.fetching.Wait() }

// ContextLength is the context length of a model as configured, else as its engine
// reports it; 0 if neither is known. A name that the engine does not list has the
// length of the engine's Harmony models if they agree: engines that serve one model
// accept any name for it.
func (d *Directory) ContextLength(m *config.Model) int {
	// An endpoint without a model has no engine.
	e, known := d.engines[m.Engine]
	if m.ContextLength > 0 || !known {
		return m.ContextLength
	}
	return e.length(m.UpstreamModel, d.isHarmony)
}

// isHarmony reports whether requests for a model are the filter's.
func (d *Directory) isHarmony(id string) bool {
	_, harmony := d.o.Config.Model(id)
	return harmony
}

// Known returns the names that requests can have, as far as they are known without asking: the
// models that engines have reported, those that the configuration names, and aliases.
func (d *Directory) Known() (known []string) {
	for _, e := range d.o.Config.Engines {
		reported := d.engines[e.Name].lengths.Load()
		if reported == nil {
			continue
		}
		for _, m := range *reported {
			if serves(d.o.Config, e.Name, m.id) {
				known = append(known, m.id)
			}
		}
	}

	for _, name := range slices.Concat(names(d.o.Config), d.o.Config.AliasNames()) {
		if !slices.Contains(known, name) {
			known = append(known, name)
		}
	}
	return known
}

// Endpoints are the list and its models. Without a loopback listener there are
// none: such requests pass to the upstream.
func (d *Directory) Endpoints() []api.Endpoint {
	if d.o.Client == nil {
		return nil
	}
	var list []api.Endpoint
	for _, e := range []api.Endpoint{
		{Header: anthropicVersion, Errors: (*apierror.Error).Anthropic, Handle: d.handler(anthropicForm{d})},
		{Handle: d.handler(openAIForm{d})},
	} {
		e.API, e.Method, e.NoModel, e.Public = "models", http.MethodGet, true, true
		whole, one := e, e
		whole.Pattern, one.Pattern = path, path+"/{id...}"
		list = append(list, whole, one)
	}
	return list
}

// form is how an API writes models.
type form interface {
	// query is the query with which the upstream is asked for its list.
	query(q url.Values) url.Values
	// one is the answer to a request for one model.
	one(m model) []byte
	// list is the answer to a request for the list.
	list(l *list, q url.Values) ([]byte, *apierror.Error)
}

func (d *Directory) handler(f form) func(context.Context, *api.HTTPRequest) api.Outcome {
	return func(ctx context.Context, r *api.HTTPRequest) api.Outcome { return d.handle(ctx, r, f) }
}

func (d *Directory) handle(ctx context.Context, r *api.HTTPRequest, f form) api.Outcome {
	one, err := url.PathUnescape(r.IDs[0])
	if err != nil {
		return api.Refused(apierror.Invalid("model", "The path %s is not percent-encoded.", r.Path))
	}

	all := d.collect(ctx, r, f.query(r.Query))
	switch i := all.list.index(one); {
	case all.upstreamAnswers:
		return elsewhere()
	case one != "" && i >= 0:
		return api.Answered(f.one(all.list.models[i]), nil)
	// By a pattern, which the list does not have.
	case one != "" && d.o.Config.IsAlias(one):
		return api.Answered(f.one(model{one, d.configured(one)}), nil)
	// The upstream may have it all the same: its list can be a part, or have failed.
	case one != "":
		return elsewhere()
	case all.incomplete && len(all.list.models) == 0:
		return api.Refused(apierror.New(http.StatusServiceUnavailable, "models_unknown", "",
			"No engine returns its models at the moment. Try again shortly."))
	}

	answer, rejected := f.list(&all.list, r.Query)
	return api.Answered(answer, rejected)
}

// elsewhere passes the request on, for the upstream to answer.
func elsewhere() api.Outcome {
	return api.Elsewhere(apierror.New(http.StatusNotFound, "model_not_found", "model",
		"There is no model of this name. GET /v1/models lists the models."))
}

// collected is the list that was put together.
type collected struct {
	list            list
	incomplete      bool // some source has not answered
	upstreamAnswers bool // the upstream's answer is for the client as it is
}

// collect asks the engines and the upstream, with a query, for their models, and adds
// those of the configuration.
func (d *Directory) collect(ctx context.Context, r *api.HTTPRequest, query url.Values) collected {
	var asked sync.WaitGroup
	var upstream upstreamModels
	asked.Go(func() { upstream = d.askUpstream(ctx, r, query) })
	answers := make([]engineModels, len(d.o.Config.Engines))
	for i, e := range d.o.Config.Engines {
		asked.Go(func() { answers[i] = d.engineModels(ctx, e.Name) })
	}
	asked.Wait()

	// The order counts: what the upstream says of a model is replaced by what the engine says
	// that serves it, and neither is by what the configuration only names.
	all := collected{incomplete: upstream.failed, upstreamAnswers: upstream.answers}
	all.list.base = upstream.list
	all.list.add(upstream.list.Get("data"))
	for i, e := range d.o.Config.Engines {
		all.incomplete = all.incomplete || answers[i].err != nil
		all.list.replace(answers[i].data, func(id string) bool { return serves(d.o.Config, e.Name, id) })
	}

	for _, name := range names(d.o.Config) {
		all.list.put(name, d.configured(name), false)
	}

	// In place of the upstream's models of these names, which requests do not reach.
	for _, name := range d.o.Config.AliasNames() {
		all.list.put(name, d.configured(name), true)
	}
	return all
}

// configured is the object of a model that the configuration names.
func (d *Directory) configured(name string) string {
	m, _ := d.o.Config.Model(name)
	return string(appendModel(nil, name, "envoy-harmony", d.ContextLength(&m)))
}

// serves reports whether requests for a model go to the engine of that name, and
// reach it by this id.
func serves(c *config.Config, engineName, id string) bool {
	m, harmony := c.Model(id)
	return harmony && m.Engine == engineName && m.UpstreamModel == id
}

// names are the models that the configuration names in full, as far as requests
// for them reach the model that they are named for.
func names(c *config.Config) []string {
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
		// A part of a name is none that a client could use, but the engine's own name for the model may be.
		at := cmp.Or(m.Engine, c.ModelDefaults.Engine, c.Engines[0].Name)
		if whole {
			add(name)
		} else if m.UpstreamModel != "" && serves(c, at, m.UpstreamModel) {
			add(m.UpstreamModel)
		}
	}
	return names
}
