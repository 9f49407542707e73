//go:build cluster

package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/e2e/recipe"
)

// The recipe for Envoy Gateway, from keys to a bill: the commands of the page, in a
// folder that has the project's files. The engine is all that they do not make.
func TestRecipe(t *testing.T) {
	installGateway(t)
	run(t, "kubectl", "create", "namespace", "envoy-harmony")
	t.Cleanup(func() {
		run(t, "helm", "uninstall", "envoy-harmony", "--namespace", "envoy-harmony", "--wait")
		run(t, "kubectl", "delete", "namespace", "envoy-harmony", "--wait=false")
	})
	applyIn(t, "envoy-harmony", engines)

	folder, project := t.TempDir(), filepath.Join(os.Getenv("CLUSTER_CHART"), "../..")
	for _, name := range []string{"docs", "charts"} {
		if err := os.Symlink(filepath.Join(project, name), filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}

	shell := recipe.NewShell(t, folder, "IMAGE=localhost/envoy-harmony", "TAG=test")
	sections := recipe.Read(t, filepath.Join(project, "docs/gateways/recipes.md"))
	shell.Run(sections["Certificate and keys"]...)
	shell.Run(sections["Envoy Gateway"]...)
	shell.CheckTenants(sections, "401")

	shell.Run(recipe.Step{
		Commands: `kubectl -n envoy-gateway-system get service envoy-harmony-envoy-harmony -o jsonpath='{.spec.type} {.spec.ports[*].port}'`,
		Output:   "ClusterIP 443",
	})
	awaitOutput(t, shell, "the access log has the tenant and its tokens", `kubectl -n envoy-gateway-system logs -c envoy --tail -1 \
		--selector gateway.envoyproxy.io/owning-gateway-name=envoy-harmony,gateway.envoyproxy.io/owning-gateway-namespace=envoy-harmony |
		jq -Rr 'fromjson? | select(.tenant == "trial" and .status == 200) | "\(.model) \(.output_tokens > 0) \(.cost > 0)"' | sort -u`,
		"gpt-oss-120b true true")

	// The page's values ask with the key and the CA that its commands make.
	shell.Do("helm test --namespace envoy-harmony envoy-harmony --logs")

	// Who may come is decided before the filter, which answers trial with a 429.
	shell.Do(`kubectl -n envoy-harmony patch securitypolicy envoy-harmony --type merge --patch '{"spec": {"authorization": ` +
		`{"defaultAction": "Deny", "rules": [{"action": "Allow", "principal": {"headers": [{"name": "x-tenant", "values": ["acme"]}]}}]}}}'`)
	awaitOutput(t, shell, "trial is refused", `ask "$TRIAL" -o answer.json -w '%{http_code}'`, "403")
	awaitOutput(t, shell, "acme is not", `ask "$ACME" -o answer.json -w '%{http_code}'`, "200")
}

// awaitOutput waits until commands print a text.
func awaitOutput(t *testing.T, shell *recipe.Shell, what, commands, want string) {
	t.Helper()
	await(t, what, func() error {
		if got := strings.TrimSpace(shell.Do(commands)); got != want {
			return fmt.Errorf("%q, want %q", got, want)
		}
		return nil
	})
}
