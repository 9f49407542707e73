package main

import (
	"context"
	"crypto/sha256"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// settleTime is how long a changed file must stay as it is before it is read: not
// every writer replaces files at once.
const settleTime = 100 * time.Millisecond

// followFile takes over changes of the configuration file until ctx ends or stop is
// called: as often as the configuration's reload_interval says, and whenever now
// receives. The content of a file counts, not its time or its inode, so that the
// symbolic links of a ConfigMap are followed. stop waits for the reload that is
// under way.
func (s *service) followFile(ctx context.Context, from *settings, now <-chan os.Signal) (stop func()) {
	if from.file == "" {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.follow(ctx, from, now)
	}()
	return func() {
		cancel()
		<-ended
	}
}

func (s *service) follow(ctx context.Context, from *settings, now <-chan os.Signal) {
	seen := from.content
	for {
		var poll <-chan time.Time // nil: never
		if every := s.filter.Config().ReloadInterval.Duration; every > 0 {
			poll = time.After(every)
		}
		select {
		case <-ctx.Done():
			return
		case <-poll:
			if content := settled(ctx, from.file, seen); content != seen && ctx.Err() == nil {
				seen = content
				s.reload(from)
			}
		case <-now:
			seen = settled(ctx, from.file, contentOf(from.file))
			s.reload(from)
		}
	}
}

// settled returns the hash of a file's content, once it is seen or has not changed
// for a while.
func settled(ctx context.Context, file string, seen [sha256.Size]byte) [sha256.Size]byte {
	content := contentOf(file)
	for content != seen && ctx.Err() == nil {
		select {
		case <-time.After(settleTime):
		case <-ctx.Done():
		}
		before := content
		if content = contentOf(file); content == before {
			break
		}
	}
	return content
}

// contentOf is a hash of a file's content, or of why it cannot be read.
func contentOf(file string) [sha256.Size]byte {
	text, err := os.ReadFile(file)
	if err != nil {
		text = []byte("error: " + err.Error())
	}
	return sha256.Sum256(text)
}

// reload takes over the file as it is now, with the same environment and flags over
// it. If anything is wrong with it, the configuration stays as it was.
func (s *service) reload(from *settings) {
	before := s.filter.Config()
	next, err := from.read()
	if err == nil {
		err = s.filter.Apply(next)
	}
	log := s.log.WithField("file", from.file)
	if err != nil {
		s.reloads.refused()
		log.WithError(err).Error("the changed configuration is refused: the one before stays in use")
		return
	}
	if level, err := logrus.ParseLevel(next.Log.Level); err == nil { // it has been checked
		s.log.SetLevel(level)
	}
	s.reloads.succeeded(next)
	log.WithField("changed", before.Changed(next)).Info("the configuration was reloaded: requests that begin now use it")
}

// reloads are the metrics of the configuration. docs/operations.md lists them.
type reloads struct {
	outcomes   *prometheus.CounterVec // outcome
	successful prometheus.Gauge
	at         prometheus.Gauge
	hash       prometheus.Gauge
}

// newReloads registers the metrics of a configuration that has been loaded now.
func newReloads(registry prometheus.Registerer, cfg *config.Config) *reloads {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	r := &reloads{
		outcomes:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "harmony_config_reloads_total", Help: "Changes of the configuration file, by what became of them: ok or refused."}, []string{"outcome"}),
		successful: gauge("harmony_config_last_reload_successful", "Whether the configuration file as it was read last is in use: 1, or 0 if it was refused."),
		at:         gauge("harmony_config_last_reload_success_timestamp_seconds", "When the configuration in use was loaded."),
		hash:       gauge("harmony_config_hash", "A hash of the configuration in use, without its secrets: equal for replicas with the same one."),
	}
	registry.MustRegister(r.outcomes, r.successful, r.at, r.hash)
	for _, outcome := range []string{"ok", "refused"} {
		r.outcomes.WithLabelValues(outcome)
	}
	r.use(cfg)
	return r
}

func (r *reloads) succeeded(cfg *config.Config) {
	r.outcomes.WithLabelValues("ok").Inc()
	r.use(cfg)
}

func (r *reloads) refused() {
	r.outcomes.WithLabelValues("refused").Inc()
	r.successful.Set(0)
}

// use notes the configuration in use.
func (r *reloads) use(cfg *config.Config) {
	r.successful.Set(1)
	r.at.SetToCurrentTime()
	if hash, err := cfg.Hash(); err == nil {
		r.hash.Set(float64(hash))
	}
}
