package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// settleTime is how long a changed file must stay as it is before it is taken over: not
// every writer replaces files at once, and a part of a file can be valid YAML without the
// keys that keep tenants apart. A writer that stalls for longer in the middle of a file is
// not noticed: see [config.Config.CheckReload] for what holds even then.
const settleTime = time.Second

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
	f := &follower[fileText]{
		read:  from.fileText,
		every: func() time.Duration { return s.filter.Config().ReloadInterval.Duration },
		after: time.After,
		take:  func(file fileText) { s.reload(from, file) },
	}
	done := doneOf(func() { f.follow(ctx, from.content, now) })
	return func() {
		cancel()
		<-done
	}
}

// fileText is what a reading of the configuration file has found.
type fileText struct {
	text []byte
	err  error // the file could not be read
}

// hash is equal for readings that found the same.
func (f fileText) hash() [sha256.Size]byte {
	if f.err != nil {
		return sha256.Sum256([]byte("error: " + f.err.Error()))
	}
	return sha256.Sum256(f.text)
}

// follower decides when what is in a file, or in several that belong together, is taken over:
// once it has been the same for settleTime. It takes exactly what it has read, not what the
// file has become since.
type follower[T interface{ hash() [sha256.Size]byte }] struct {
	read func() T
	// every is the time between two looks at the file; 0: it is looked at only on request.
	every func() time.Duration
	after func(time.Duration) <-chan time.Time
	take  func(T)
}

// follow looks at the file until ctx ends. seen is what is in use.
func (f *follower[T]) follow(ctx context.Context, seen [sha256.Size]byte, now <-chan os.Signal) {
	for {
		// Asked for anew each time: the reload before may have changed the interval.
		var poll <-chan time.Time // nil: never
		if every := f.every(); every > 0 {
			poll = f.after(every)
		}
		asked := false
		select {
		case <-ctx.Done():
			return
		case <-poll:
		case <-now:
			asked = true
		}

		// Who asks wants the file to be read again even if it is the same: what it names,
		// such as a variable of the environment, is checked again.
		file := f.settled(ctx, seen, asked)
		if hash := file.hash(); ctx.Err() == nil && (asked || hash != seen) {
			seen = hash
			f.take(file)
		}
	}
}

// settled returns what is in the file as soon as that is seen, unless it was asked for, or
// has been the same for settleTime.
func (f *follower[T]) settled(ctx context.Context, seen [sha256.Size]byte, asked bool) T {
	file := f.read()
	for asked || file.hash() != seen {
		select {
		case <-f.after(settleTime):
		case <-ctx.Done():
			return file
		}
		before := file
		if file = f.read(); file.hash() == before.hash() {
			break
		}
	}
	return file
}

// errEmpty refuses a file that sets nothing. At the start it is accepted: the flags may say
// everything. A file that has become empty is one that somebody is writing, or has lost.
var errEmpty = errors.New("the file is empty: write the whole file again, or restart the process to run without one")

// setsNothing reports whether a file has only blank lines, comments and marks of YAML.
func setsNothing(text []byte) bool {
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && string(line) != "---" {
			return false
		}
	}
	return true
}

// reload takes over what was read of the file, with the same environment and flags over
// it. If anything is wrong with it, the configuration stays as it was.
func (s *service) reload(from *settings, file fileText) {
	before := s.filter.Config()
	next, err := from.reread(file)
	if err == nil {
		err = s.filter.Apply(next)
	}
	log := s.log.WithField("file", from.file)
	if err != nil {
		s.reloads.refused()
		log.WithError(err).Error("the changed configuration is refused: the one before stays in use")
		return
	}

	// The level is the process's: all other keys follow with the generation.
	if level, err := logrus.ParseLevel(next.Log.Level); err == nil { // it has been checked
		s.log.SetLevel(level)
	}
	s.reloads.succeeded(next)
	warnOf(next, s.log)

	log = log.WithField("changed", before.Changed(next))
	const done = "the configuration was reloaded: requests that begin now use it"
	if removed := before.Removed(next, from.defaults(next)); len(removed) > 0 {
		log.WithField("removed", removed).Warn(done + ". It no longer sets all that the one before did: if that was " +
			"not meant, put it back")
		return
	}
	log.Info(done)
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
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "harmony_config_reloads_total",
			Help: "Changes of the configuration file, by what became of them: ok or refused.",
		}, []string{"outcome"}),
		successful: gauge("harmony_config_last_reload_successful", "Whether the configuration file as it was read "+
			"last is in use: 1, or 0 if it was refused."),
		at: gauge("harmony_config_last_reload_success_timestamp_seconds",
			"When the configuration in use was loaded."),
		hash: gauge("harmony_config_hash", "A hash of the configuration in use, without its secrets: equal for "+
			"replicas with the same one."),
	}
	registry.MustRegister(r.outcomes, r.successful, r.at, r.hash)

	// Both are there before the first reload, so that a rate has a beginning.
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
	if hash, err := shownHash(cfg); err == nil {
		r.hash.Set(float64(hash))
	}
}

// shownHash is the hash of a configuration as the metric and "envoy-harmony check" have it, for people to compare.
func shownHash(cfg *config.Config) (uint64, error) {
	hash, err := cfg.Hash()
	// client_golang writes floats from a million on with an exponent, such as 2.40123456789012e+14. One pair of
	// configurations in a million has the same number: HarmonyConfigsDiffer can do without that one.
	return hash % 1_000_000, err
}
