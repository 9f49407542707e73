package filter

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/envoy-harmony/envoy-harmony/filter/chat"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/diagnosis"
	"github.com/envoy-harmony/envoy-harmony/filter/loopback"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
	"github.com/envoy-harmony/envoy-harmony/filter/replay"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/telemetry"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// NewPlayer makes what replays the records of a configuration. It has the endpoints of a
// [Server], and neither sockets nor memory: what came from outside is in the records.
func NewPlayer(cfg *config.Config, o Options) (*replay.Player, error) {
	o.setDefaults()
	metrics, err := telemetry.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	sealer, err := newSealing(metrics).newSealer(cfg)
	if err != nil {
		return nil, err
	}

	empty, err := store.Open(context.Background(), "memory:", store.Options{
		ResponseTTL:   cfg.Responses.StoreTTL.Duration,
		ResponseBytes: 1 << 20,
		TextTTL:       cfg.Limits.KeptReasoningTTL.Duration,
		TextBytes:     1 << 20,
		Now:           o.Now,
	})
	if err != nil {
		return nil, fmt.Errorf("make an empty store: %w", err)
	}

	recorded := record.Store(empty)
	g := &generation{cfg: cfg, renderer: harmony.NewRenderer()}
	if n := cfg.Limits.DiagnosisBytes; n > 0 {
		// What is found comes from the records.
		g.prompts = diagnosis.NewPrompts(n)
	}
	if cfg.Loopback != "" {
		// It is not used: the API has tools where there is one.
		g.client = &loopback.Client{}
	}

	options, err := cfg.Tools.Options(os.LookupEnv)
	if err != nil {
		return nil, err
	}
	options.Log, options.Around = o.Log, record.Tools
	g.tools = tools.New(options)

	// Replays are neither logged nor counted as exchanges are.
	api := newResponses(cfg, recorded, g, sealer)
	workers := &run.Workers{Log: o.Log}
	quiet := logrus.New()
	quiet.SetLevel(logrus.PanicLevel)

	return &replay.Player{
		Endpoints: slices.Concat(
			chat.Endpoints(), chat.CompletionsEndpoints(cfg.Routing.Opens(chat.CompletionsPath)), api.Endpoints(),
			newMessages(cfg, g, sealer).Endpoints(), newRender(cfg, sealer),
		),
		Keeper: keeper(),
		Turns:  newTurnEnv(cfg, o, recorded, g),
		Run:    newRunEnv(cfg, o, telemetry.New(quiet, metrics, false), workers),
	}, nil
}
