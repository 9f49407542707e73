package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// target is a make target whose runs are recorded. Its sentence is that of "make help".
type target struct {
	name string

	// narrowing are the variables that select a part of the target, with their values for the whole.
	narrowing map[string]string
	// variables are others that change what it does. They stand in the command of the record.
	variables []string

	// probes are the programs that are asked for their versions after the run.
	probes []string
}

// The targets, in the order of the page.
var targets = []target{
	{name: "test", narrowing: map[string]string{"PKG": "./..."}, probes: []string{"Envoy"}},
	{name: "race", narrowing: map[string]string{"PKG": "./..."}, probes: []string{"Envoy"}},
	{name: "test-envoys", narrowing: map[string]string{"RUN": ""}},
	{name: "test-stores", probes: []string{"Envoy"}},
	{name: "test-upgrade", variables: []string{"FROM"}, probes: []string{"Envoy"}},
	{name: "test-clients", narrowing: map[string]string{"CLIENTS": ".*"}, probes: []string{"Envoy"}},
	{name: "smoke-clients", probes: []string{"Envoy"}},
	{name: "test-engines", narrowing: map[string]string{"ENGINES": ""}, probes: []string{"Envoy"}},
	{name: "test-charts", probes: []string{"Envoy", "Prometheus"}},
	{name: "test-charts-quick"},
	{name: "test-cluster", probes: []string{"Envoy"}},
	{name: "test-image", probes: []string{"Docker", "Podman", "Buildah"}},
	{name: "test-dist"},
	{name: "test-inspector", probes: []string{"Envoy", "Chromium"}},
	{
		name: "attack", narrowing: map[string]string{"ATTACK": ""}, variables: []string{"ATTACK_HEAVY"},
		probes: []string{"Envoy"},
	},
	{name: "replay", probes: []string{"Envoy"}},
	{name: "soak", variables: []string{"SOAKTIME", "STORE"}, probes: []string{"Envoy"}},
	{name: "fuzz-quick"},
	{name: "differential"},
}

func findTarget(name string) *target {
	for i := range targets {
		if targets[i].name == name {
			return &targets[i]
		}
	}
	return nil
}

// command returns what a user types for this run.
func (t *target) command(getenv func(string) string) string {
	typed := "make " + t.name
	for _, name := range t.variables {
		if value := getenv(name); value != "" {
			// The address of a store may have a password.
			if name == "STORE" {
				value, _, _ = strings.Cut(value, ":")
				value += ":…"
			}
			typed += " " + name + "=" + value
		}
	}
	return typed
}

// testsOf returns the tests and sections of the target that stand for one component each.
func (t *target) testsOf(all []Component) map[string]bool {
	tests := map[string]bool{}
	for _, c := range all {
		for _, check := range c.Checks {
			if check.Target == t.name && check.Test != "" {
				tests[check.Test] = true
			}
		}
	}
	return tests
}

// programs are the commands that print the versions of programs, and where the versions stand in what they print.
var programs = map[string]struct {
	command []string
	version *regexp.Regexp
}{
	"Prometheus": {[]string{"prometheus", "--version"}, regexp.MustCompile(`version (\d[\w.]*)`)},
	"Chromium":   {[]string{"chromium", "--version"}, regexp.MustCompile(`Chromium (\d[\d.]*)`)},
	"Docker":     {[]string{"docker", "--version"}, regexp.MustCompile(`version (\d[\w.]*)`)},
	"Podman":     {[]string{"podman", "--version"}, regexp.MustCompile(`version (\d[\w.]*)`)},
	"Buildah":    {[]string{"buildah", "--version"}, regexp.MustCompile(`version (\d[\w.]*)`)},
	"Envoy":      {nil, regexp.MustCompile(`/(\d+\.\d+\.\d+[^/]*)/`)},
}

// versionLines are lines of a run that say the version of a server that it has started.
var versionLines = map[string]*regexp.Regexp{
	"Redis":      regexp.MustCompile(`^Starting Redis server v=(\S+) on port`),
	"PostgreSQL": regexp.MustCompile(`^Starting postgres \(PostgreSQL\) (\S+)`),
}

// probe returns the versions of the programs that took part in a run.
func (t *target) probe(ctx context.Context, root string, lines *reader) map[string]string {
	found := lines.versions
	for _, name := range t.probes {
		p := programs[name]
		if name == "Envoy" {
			p.command = []string{envoyOf(root), "--version"}
		}

		// What is not installed had no part in the run.
		out, err := exec.CommandContext(ctx, p.command[0], p.command[1:]...).CombinedOutput()
		if err != nil {
			continue
		}
		if m := p.version.FindSubmatch(out); m != nil {
			found[name] = string(m[1])
		}
	}
	return found
}

// envoyOf returns the Envoy of the tests.
func envoyOf(root string) string {
	if bin := os.Getenv("ENVOY_BIN"); bin != "" {
		return bin
	}
	own := filepath.Join(root, ".bin", "envoy")
	if _, err := os.Stat(own); err == nil {
		return own
	}
	return "envoy"
}
