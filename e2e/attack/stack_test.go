//go:build attack

package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// stack is what is attacked: Envoy, the filter and the simulated engine, each a
// process.
type target struct {
	*stack.Dataplane
	program *stack.Program
	flags   []string // of the filter
	group   *cgroup  // in which it runs; nil: none
}

// stackConfig is the configuration of a stack: keys of the configuration file with
// their values, and the engines.
type stackConfig struct {
	keys     map[string]any
	engines  []string // flags; empty: the simulated engine
	envoy    []string // flags of envoy-config
	edit     func([]byte) []byte
	behavior string // of the simulated engine
	memory   int64  // limit of the filter's cgroup; 0: none
}

func (c *stackConfig) set(key string, value any) { c.keys[key] = value }

// startStack starts a stack with tenants until the test ends.
func startStack(t *testing.T, change func(*testing.T, *stackConfig)) *target {
	t.Helper()
	log := &stack.LogFile{}
	c := &stackConfig{keys: map[string]any{"tenant_header": "x-tenant"}}
	if change != nil {
		change(t, c)
	}
	simFlags := []string{"--records", "40"}
	if c.behavior != "" {
		simFlags = append(simFlags, "--behavior", c.behavior)
	}
	sim, _ := stack.StartSimAs(t, log, simFlags...)
	flags := make([]string, 0, 8)
	if level, set := c.keys["log.level"]; set {
		flags = append(flags, "--log-level", level.(string)) //nolint:forcetypeassert // a level is a string
	}
	flags = append(flags, "--config", c.write(t), "--set", "loopback=unix://"+filepath.Join(stack.SocketDir(t), "loopback"))
	if len(c.engines) == 0 {
		c.engines = []string{"vllm=" + sim}
	}
	for _, e := range c.engines {
		flags = append(flags, "--engine", strings.ReplaceAll(e, "SIM", sim))
	}
	s := &target{flags: flags}
	s.program, s.group = serveWithin(t, log, c.memory, flags...)
	bootstrap := s.program.Bootstrap(t, c.envoy...)
	if c.edit != nil {
		bootstrap = c.edit(bootstrap)
	}
	s.Dataplane = s.program.Envoy(t, bootstrap)
	s.Sim = sim
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the logs are in %s", keepLog(log))
		}
	})
	return s
}

// write writes the configuration file. A key is a path with dots.
func (c *stackConfig) write(t *testing.T) string {
	t.Helper()
	tree := map[string]any{}
	for key, value := range c.keys {
		section, name, nested := strings.Cut(key, ".")
		if !nested {
			tree[key] = value
			continue
		}
		if tree[section] == nil {
			tree[section] = map[string]any{}
		}
		tree[section].(map[string]any)[name] = value //nolint:forcetypeassert // made above
	}
	text, err := yaml.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// keepLog writes a log to a file that stays.
func keepLog(log *stack.LogFile) string {
	f, err := os.CreateTemp("", "attack-*.log")
	if err != nil {
		return err.Error()
	}
	_, _ = f.WriteString(log.String())
	_ = f.Close()
	return f.Name()
}

// dead returns which process of the stack has ended; "" if none has.
func (s *target) dead() string {
	if s.memory("VmRSS") == 0 {
		return "the filter"
	}
	ctx, cancel := context.WithTimeout(context.Background(), stack.Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Admin+"/ready", http.NoBody)
	if err != nil {
		return err.Error()
	}
	req.Close = true
	resp, err := s.Client.Do(req)
	if err != nil {
		return "Envoy"
	}
	_ = resp.Body.Close()
	return ""
}

// memory returns a figure of the filter's memory in bytes: VmRSS, or VmHWM, its peak
// since the last [stack.resetPeak]. 0: the process has ended.
func (s *target) memory(name string) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.program.Process.Pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == name+":" {
			kib, _ := strconv.ParseInt(fields[1], 10, 64)
			return kib << 10
		}
	}
	return 0
}

// resetPeak resets the peak of the filter's memory (Linux).
func (s *target) resetPeak() {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", s.program.Process.Pid), []byte("5"), 0o600) // without it the peak is that of the process
}

// cpu returns the CPU time of the filter.
func (s *target) cpu() (sum time.Duration) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", s.program.Process.Pid))
	for _, task := range tasks {
		text, err := os.ReadFile(task)
		if err != nil {
			continue // the thread has ended
		}
		ns, _, _ := strings.Cut(string(text), " ")
		n, _ := strconv.ParseInt(ns, 10, 64)
		sum += time.Duration(n)
	}
	return sum
}

// jsonText returns a text as JSON.
func jsonText(text string) string {
	b, _ := json.Marshal(text) // always marshals
	return string(b)
}
