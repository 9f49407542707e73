package main

import (
	"context"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// walls is a configuration file with what keeps clients apart.
const walls = `# What keeps clients apart.
engines: [{kind: vllm}]
loopback: 127.0.0.1:1
reload_interval: 10ms
tenant_header: x-tenant
token_budgets:
- {name: day, per: [tenant], tokens: 100000, window: 24h}
- {name: all, tokens: 1000000, window: 24h}
tools:
  allowed_hosts: [mcp.example.com]
record: {percent: 1, tenants: [acme]}
limits: {max_tools: 7, cache_bytes: 1234567}
`

// writer is a file as somebody writes it, on a clock of its own: each text from its time on.
type writer struct {
	now    time.Duration
	from   []time.Duration
	texts  []string
	until  time.Duration // when the looking ends
	cancel func()
}

func (w *writer) read() fileText {
	at := 0
	for i, from := range w.from {
		if w.now >= from {
			at = i
		}
	}
	return fileText{text: []byte(w.texts[at])}
}

// after is time.After: the clock goes on to the end of each wait at once.
func (w *writer) after(d time.Duration) <-chan time.Time {
	if w.now += d; w.now >= w.until {
		w.cancel()
		return nil
	}
	fired := make(chan time.Time, 1)
	fired <- time.Time{}
	return fired
}

// taken follows the file, and returns the texts that are taken over.
func (w *writer) taken(t *testing.T, every time.Duration, now <-chan os.Signal) (texts []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w.cancel = cancel
	f := follower[fileText]{
		read: w.read, after: w.after, every: func() time.Duration { return every },
		take: func(file fileText) {
			if texts = append(texts, string(file.text)); every == 0 { // nothing else ends it
				cancel()
			}
		},
	}
	f.follow(ctx, fileText{text: []byte(w.texts[0])}.hash(), now)
	return texts
}

// Whatever part of a file is there at first: what is taken over is the whole of it, once, if
// it is complete within the second.
func TestHalfWrittenFileIsNotTakenOver(t *testing.T) {
	t.Parallel()
	after := strings.Replace(walls, "max_tools: 7", "max_tools: 8", 1)
	for n := range len(after) {
		for _, every := range []time.Duration{10 * time.Millisecond, 300 * time.Millisecond, 5 * time.Second} {
			for _, pause := range []time.Duration{20 * time.Millisecond, 999 * time.Millisecond} {
				begun := 4800 * time.Millisecond // before a look of every interval
				w := &writer{
					from: []time.Duration{0, begun, begun + pause/2, begun + pause}, texts: []string{walls, "", after[:n], after},
					until: 30 * time.Second,
				}
				if got := w.taken(t, every, nil); !slices.Equal(got, []string{after}) {
					t.Fatalf("%d bytes for %s, a look every %s: taken over are %q", n, pause, every, got)
				}
			}
		}
	}
}

// A signal asks for the file, but not for the half of it.
func TestSignalWaitsForTheWholeFile(t *testing.T) {
	t.Parallel()
	now := make(chan os.Signal, 1)
	now <- syscall.SIGHUP
	w := &writer{from: []time.Duration{0, 0, 900 * time.Millisecond}, texts: []string{"", "engines: [", walls}, until: 10 * time.Second}
	if got := w.taken(t, 0, now); !slices.Equal(got, []string{walls}) {
		t.Errorf("taken over are %q", got)
	}
}

// A writer that stalls in the middle of a file cannot be told from one that is ready. No
// part of a file removes the tenants, and what else is gone is named.
func TestNoPartOfAFileRemovesTenants(t *testing.T) {
	t.Parallel()
	const memory = 512 << 20 // defaults follow from it
	s := newSettings(program{}, "serve", "")
	s.file, s.memory.limit = "config.yaml", memory
	whole, err := s.reread(fileText{text: []byte(walls)})
	if err != nil {
		t.Fatal(err)
	}
	valid := 0
	for n := range len(walls) {
		part, err := s.reread(fileText{text: []byte(walls[:n])})
		if err != nil || whole.CheckReload(part, false) != nil {
			continue
		}
		valid++
		if part.TenantHeader == "" {
			t.Errorf("%d bytes remove the tenants:\n%s", n, walls[:n])
		}
		removed := whole.Removed(part, s.defaults(part))
		for key, gone := range map[string]bool{
			"token_budgets":       len(part.TokenBudgets) < len(whole.TokenBudgets),
			"tools.allowed_hosts": len(part.Tools.AllowedHosts) < len(whole.Tools.AllowedHosts),
			"record.tenants":      len(part.Record.Tenants) < len(whole.Record.Tenants),
			"limits.max_tools":    part.Limits.MaxTools == config.Defaults().Limits.MaxTools,
			"limits.cache_bytes":  part.Limits.CacheBytes == config.DefaultsIn(memory).Limits.CacheBytes,
		} {
			if slices.Contains(removed, key) != gone {
				t.Errorf("%d bytes: %s is removed: %t; named are %q", n, key, gone, removed)
			}
		}
	}
	if valid < 5 {
		t.Errorf("only %d parts are valid: this shows nothing", valid)
	}
}

func TestSetsNothing(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"": true, "\n \t\n": true, "# a\n  # b": true, "---\n# a\n": true, "a: 1": false, "# a\na: 1\n": false, "-": false,
	} {
		if got := setsNothing([]byte(text)); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
}
