package filter

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/chat"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/messages"
	"github.com/envoy-harmony/envoy-harmony/filter/render"
	"github.com/envoy-harmony/envoy-harmony/filter/responses"
	"github.com/envoy-harmony/envoy-harmony/filter/seal"
	"github.com/envoy-harmony/envoy-harmony/filter/telemetry"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// newRender returns the endpoints of the render service on the filter, beside those of
// the APIs that render. A path of the tokenizer that is open is the upstream's.
func newRender(cfg *config.Config, sealer *seal.Sealer) []api.Endpoint {
	endpoints := render.Endpoints(render.Options{Stateless: newStateless(cfg, sealer), NeedsModel: true})
	return slices.DeleteFunc(endpoints, func(e api.Endpoint) bool {
		return (e.Pattern == render.TokenizePath || e.Pattern == render.DetokenizePath) && cfg.Routing.Opens(e.Pattern)
	})
}

// newStateless returns the endpoints of the APIs without a store and without tools, for
// the render service.
func newStateless(cfg *config.Config, sealer *seal.Sealer) []api.Endpoint {
	r := &responses.API{Sealer: sealer, Compactor: sealer, UsagePerTurn: cfg.Responses.UsagePerTurn}
	return slices.Concat(chat.Endpoints(), r.Endpoints(), (&messages.API{Sealer: sealer}).Endpoints())
}

// NewRenderService makes the render service of a configuration: an [http.Handler] that
// needs no Envoy, no engine and no store. observe takes what came of each request; nil:
// nothing does.
func NewRenderService(
	cfg *config.Config, o Options, observe func(path string, status int, took time.Duration),
) (*render.Server, error) {
	o.setDefaults()
	metrics, err := telemetry.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	sealer, err := newSealing(metrics).newSealer(cfg)
	if err != nil {
		return nil, err
	}

	stateless := newStateless(cfg, sealer)
	renderer := harmony.NewRenderer(harmony.WithCacheBytes(cfg.Limits.CacheBytes))
	return render.NewServer(&render.ServerOptions{
		Endpoints: slices.Concat(render.Rendering(stateless), render.Endpoints(render.Options{Stateless: stateless})),
		Turns:     newTurnEnv(cfg, o, nil, &generation{renderer: renderer}),
		Model: func(name string) *turn.Model {
			m, ok := cfg.Model(cmp.Or(name, anyModel))
			if !ok && name != "" {
				return nil
			}
			return cfg.TurnModel(&m, m.ContextLength, config.Client{})
		},
		MaxBodyBytes:     cfg.Limits.MaxBodyBytes,
		MaxInflightBytes: cfg.Limits.MaxInflightBytes,
		Timeout:          renderTimeout,
		Observe:          observe,
	}), nil
}

const (
	// anyModel is the model of a request that names none: its settings are the
	// defaults.
	anyModel = "gpt-oss"
	// renderTimeout bounds the handling of a request, as the filter does.
	renderTimeout = 15 * time.Second
)
