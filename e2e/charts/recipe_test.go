//go:build charts

package charts

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/e2e/recipe"
)

var (
	recipeSettings = regexp.MustCompile(`--set (gateway\S+)`)
	recipeForward  = regexp.MustCompile(`kubectl -n (\S+) port-forward service/(\S+) \d+:443`)
	recipeNames    = regexp.MustCompile(`DNS:([^,\s]+)`)
)

// helm test of the recipes asks with what their commands make: the key, the CA, and a certificate for the name of the
// gateway's Service.
func TestRecipeQuestion(t *testing.T) {
	const page = "../../docs/gateways/recipes"
	sections := recipe.Read(t, page+".md")
	certificate := strings.ReplaceAll(sections["Certificate and keys"][0].Commands, "\\\n", "")
	alternatives := recipeNames.FindAllStringSubmatch(certificate, -1)
	names := make([]string, 0, len(alternatives))
	for _, name := range alternatives {
		names = append(names, name[1])
	}

	for _, gateway := range []string{"Envoy Gateway", "Istio"} {
		var commands strings.Builder
		for _, step := range sections[gateway] {
			commands.WriteString(step.Commands)
		}
		args := []string{"--set", "image.tag=v1"}
		if set := recipeSettings.FindStringSubmatch(commands.String()); set != nil {
			args = append(args, "--set", set[1])
		}
		text, stderr, err := template(t, page+"/values.yaml", args...)
		if err != nil {
			t.Fatalf("%s: %v: %s", gateway, err, stderr)
		}
		spec := at(find(t, objects(t, text), "Pod", "harmony-envoy-harmony-test"), "spec").(object)
		container := spec["containers"].([]any)[0].(object)

		// What the pod refers to.
		ca := at(volumeAt(spec, mountPath(container, "envoy-harmony-test-ca").(string)), "configMap.name").(string)
		var secret, key string
		for _, v := range container["env"].([]any) {
			if ref, ok := at(v.(object), "valueFrom.secretKeyRef").(object); ok {
				secret, key = ref["name"].(string), ref["key"].(string)
			}
		}
		for _, made := range []string{
			"create configmap " + ca + " --from-file=ca.crt=tls.crt\n",
			"create secret generic " + secret + " --from-literal=" + key + "=$ACME",
		} {
			if !strings.Contains(commands.String(), "kubectl -n envoy-harmony "+made) {
				t.Errorf("%s: the commands do not have %q:\n%s", gateway, made, &commands)
			}
		}

		// Whom it asks.
		service := recipeForward.FindStringSubmatch(commands.String())
		if service == nil {
			t.Fatalf("%s: no command names the Service:\n%s", gateway, &commands)
		}
		i := slices.IndexFunc(container["args"].([]any), func(arg any) bool { return strings.HasPrefix(arg.(string), "--url=") })
		asked, err := url.Parse(strings.TrimPrefix(container["args"].([]any)[i].(string), "--url="))
		if err != nil {
			t.Fatal(err)
		}
		if want := service[2] + "." + service[1]; asked.Scheme != "https" || asked.Path != "/v1" || asked.Host != want {
			t.Errorf("%s: it asks %s, the Service is %s", gateway, asked, want)
		}
		if !slices.Contains(names, asked.Hostname()) {
			t.Errorf("%s: the certificate is for %q, not for %s", gateway, names, asked.Hostname())
		}
	}
}
