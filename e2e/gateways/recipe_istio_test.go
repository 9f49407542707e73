//go:build charts

package gateways

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/envoy-harmony/envoy-harmony/e2e/recipe"
	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/envoy"
)

// There is no cluster: these programs collect the objects that the page's commands make,
// and print the filter's log.
const (
	recipeKubectl = `#!/bin/bash
case "$*" in
"create namespace"*) ;;
"apply -f -") (echo ---; cat) >> objects.yaml ;;
*" logs "*) cat filter.log ;;
esac
`
	recipeHelm = `#!/bin/bash
arguments=(template)
for argument in "${@:2}"; do
	[ "$argument" = --wait ] || arguments+=("$argument")
done
%[1]s "${arguments[@]}" --show-only templates/gateway/istio.yaml >> objects.yaml
%[1]s "${arguments[@]}" --show-only templates/configmap.yaml > configmap.yaml
`
)

// The recipe for Istio, from keys to a bill: the commands of the page make objects, of
// which istiod's code makes a configuration (testdata/istio-recipe.json).
func TestRecipeIstio(t *testing.T) {
	log := stack.LogOf(t)
	sim := stack.StartSim(t, log)
	folder := recipeFolder(t, nil, "docs/gateways/recipes/istio.yaml", "docs/gateways/recipes/values.yaml",
		"docs/gateways/recipes/token.sh", "docs/gateways/recipes/bill.jq")

	helm, err := filepath.Abs("../.bin/helm")
	if err != nil {
		t.Fatal(err)
	}
	charts, err := filepath.Abs("../charts")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(charts, filepath.Join(folder, "charts")); err != nil {
		t.Fatal(err)
	}
	programs := filepath.Join(folder, "programs")
	writeProgram(t, filepath.Join(programs, "kubectl"), recipeKubectl)
	writeProgram(t, filepath.Join(programs, "helm"), fmt.Sprintf(recipeHelm, helm))

	shell := recipe.NewShell(t, folder, "PATH="+programs+":"+os.Getenv("PATH"), "CURL_HOME="+folder, "IMAGE=envoy-harmony", "TAG=test")
	sections := recipe.Read(t, recipesPage)
	shell.Run(sections["Certificate and keys"]...)
	shell.Run(sections["Istio"]...)

	// The commands of the page ask the port of the forwarding.
	public := strings.TrimSpace(shell.Do("docs/gateways/recipes/token.sh public"))
	address := bootRecipe(t, folder, public, sim, log)
	t.Cleanup(func() { shell.LogOnFailure("filter.log") })
	writeProgram(t, filepath.Join(folder, ".curlrc"), fmt.Sprintf("connect-to = \"localhost:8443:%s\"\n", address))
	shell.CheckTenants(sections, "403")

	// A token without a tenant has none, and a client cannot name one.
	shell.Run(recipe.Step{
		Commands: `ask "$(docs/gateways/recipes/token.sh '')" -H 'x-tenant: acme' -o answer.json -w '%{http_code}'`, Output: "403",
	})
}

// bootRecipe starts the filter with the configuration of the chart, and the Envoys with
// that of istiod. It returns the address of the clients' Envoy.
func bootRecipe(t *testing.T, folder, public, sim string, log *stack.LogFile) string {
	t.Helper()
	binary, err := envoy.Find(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(stack.SocketDir(t), "filter")
	services := []service{
		{"envoy-harmony-headless", 9002, "10.96.2", []string{"unix://" + socket}},
		{"vllm", 8000, "10.96.8", []string{sim}},
	}

	// The key and the certificate are those of this run: the record has neither.
	objects := recipeFile(t, folder, "objects.yaml")
	named := strings.ReplaceAll(objects, public, "PUBLIC_KEY")
	served := servedByIstio(t, "testdata/istio-recipe.json", named, func(gateway string) configuration {
		c := istiod(t, services, 443, recipeSecret(t, folder)+objects, gateway)
		setKeys(c.Listeners[0], "PUBLIC_KEY")
		return c
	})

	loopback := bootGateway(t, binary, served.Loopback.bootstrap(t, services), log.Named("loop"))
	startRecipeFilter(t, folder, socket, strings.TrimPrefix(loopback, "http://"), sim)

	listener := served.Clients.Listeners[0]
	setKeys(listener, public)
	walk(listener, func(o stack.Object) {
		// istiod serves the certificate by its name.
		if _, ok := o["tlsCertificateSdsSecretConfigs"]; ok {
			delete(o, "tlsCertificateSdsSecretConfigs")
			o["tlsCertificates"] = []any{stack.Object{
				"certificateChain": stack.Object{"filename": filepath.Join(folder, "tls.crt")},
				"privateKey":       stack.Object{"filename": filepath.Join(folder, "tls.key")},
			}}
		}
	})
	clients := served.Clients.bootstrap(t, services)
	return strings.TrimPrefix(bootGateway(t, binary, clients, log.Named("envoy")), "http://")
}

// setKeys sets the public keys by which Envoy checks tokens.
func setKeys(v any, keys string) {
	walk(v, func(o stack.Object) {
		if inline, ok := o["localJwks"].(stack.Object); ok {
			inline["inlineString"] = keys
		}
	})
}

// startRecipeFilter runs the program with the configuration of the chart's ConfigMap. Its
// log is filter.log.
func startRecipeFilter(t *testing.T, folder, socket, loopback, sim string) {
	t.Helper()
	var o struct{ Data map[string]string }
	if err := yaml.Unmarshal([]byte(recipeFile(t, folder, "configmap.yaml")), &o); err != nil {
		t.Fatal(err)
	}
	places := strings.NewReplacer("envoy-harmony-loopback-istio.envoy-harmony.svc.cluster.local:10001", loopback,
		"http://vllm.envoy-harmony.svc.cluster.local:8000", sim, "listen: :9002", "listen: unix://"+socket, "admin: :9003", "admin: 127.0.0.1:0")
	config := filepath.Join(folder, "config.yaml")
	writeProgram(t, config, places.Replace(o.Data["config.yaml"]))

	program, err := stack.BuildProgram()
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(folder, "filter.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.CommandContext(t.Context(), program, "serve", "--config", config)
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // the end of the test kills it
}

// recipeSecret is the certificate's Secret, which istiod demands.
func recipeSecret(t *testing.T, folder string) string {
	t.Helper()
	o := stack.Object{
		"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
		"metadata": stack.Object{"name": "certificate", "namespace": "envoy-harmony"},
		"data":     stack.Object{"tls.crt": []byte(recipeFile(t, folder, "tls.crt")), "tls.key": []byte(recipeFile(t, folder, "tls.key"))},
	}
	return documents(t, []any{o})
}

func recipeFile(t *testing.T, folder, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
