//go:build charts

package charts

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// notes are what "helm install" prints, without the ends of lines.
func notes(t *testing.T, values string) string {
	t.Helper()
	out, stderr, err := helm(t, write(t, values), "install", release, chart, "--dry-run=client", "--namespace", "models")
	if err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	_, text, _ := strings.Cut(string(out), "\nNOTES:\n")
	return strings.Join(strings.Fields(text), " ")
}

// The notes name what is open, and not what is not.
func TestNotesOfWhatIsOpen(t *testing.T) {
	const (
		open      = "WHAT IS OPEN:"
		tenants   = "NO TENANTS: config.tenant_header is not set"
		plain     = "NO TLS:"
		everyPod  = "every pod of the cluster can use the engines"
		public    = "every client that reaches its address uses the engines"
		loopback  = "The loopback Gateway harmony-envoy-harmony-loopback, port 10001"
		filter    = "Every pod that reaches port 9002 of the filter"
		believes  = "The filter believes the header x-tenant"
		perTenant = "NO QUOTA PER TENANT: config.token_budgets[1] (day)"
		perKey    = "config.token_budgets[0] (minute) is per key"
		service   = "The render service, port 8001, has no authentication"
		forgotten = "QUOTAS END WITH A POD: the store is memory:"
		counted   = "when the filter restarts, and each replica counts for itself. Set another store.url"
	)
	all := []string{
		tenants, plain, everyPod, public, loopback, filter, believes, perTenant, perKey, service, forgotten, counted,
	}

	const (
		gateway = engine + "gateway: {provider: envoyGateway, name: public, create: true"
		budgets = "token_budgets: [{name: minute, per: [key], tokens: 1, window: 1m}, {name: day, per: [tenant], tokens: 1, window: 24h}]"
		tenant  = "tenant_header: x-tenant"
		policy  = "networkPolicy: {enabled: true, clientsFrom: [{podSelector: {}}]}\n"
	)
	for values, want := range map[string][]string{
		engine + "mode: sidecar\n": {everyPod, plain, tenants},
		engine + "mode: sidecar\nsidecar: {service: {type: LoadBalancer}, envoy: {tls: {existingSecret: s}}}\n":        {public, tenants},
		engine + "mode: sidecar\nsidecar: {service: {type: NodePort}}\n" + policy:                                      {public, plain, tenants},
		engine + "mode: sidecar\n" + policy + "config: {" + tenant + "}":                                               {plain, believes},
		engine + "mode: sidecar\nsidecar: {envoy: {tls: {existingSecret: s}}}\n" + policy + "config: {" + tenant + "}": {believes},

		gateway + "}\nnetworkPolicy: {enabled: true}":                                                                          {everyPod, plain, tenants},
		gateway + ", serviceType: LoadBalancer, tls: {existingSecret: s}}\nnetworkPolicy: {enabled: true}":                     {public, tenants},
		gateway + "}\nconfig: {" + tenant + ", " + budgets + "}":                                                               {everyPod, plain, loopback, filter, believes, perKey, forgotten},
		gateway + "}\nnetworkPolicy: {enabled: true}\nconfig: {" + budgets + "}":                                               {everyPod, plain, tenants, perTenant, perKey, forgotten},
		gateway + "}\nnetworkPolicy: {enabled: true}\nconfig: {" + tenant + "}\nrender: {enabled: true}":                       {everyPod, plain, believes, service},
		engine + "gateway: {provider: istio, name: theirs}\nnetworkPolicy: {enabled: true}":                                    {tenants},
		engine + "tls: {enabled: true, existingSecret: s, clientCA: c}\nconfig: {" + tenant + "}":                              {believes},
		patched + "config: {token_budgets: [{name: a, tokens: 1, window: 1m}, {name: day, tenant: a, tokens: 2, window: 1h}]}": {tenants, perTenant},

		gateway + "}\nnetworkPolicy: {enabled: true}\nconfig: {token_budgets: [{name: a, tokens: 1, window: 1m}]}\nstore: {url: 'sqlite:/a', persistence: {enabled: true}}": {everyPod, plain, tenants},
		gateway + "}\nnetworkPolicy: {enabled: true}\nconfig: {token_budgets: [{name: a, tokens: 1, window: 1m}], responses: {store_bytes: 0}, limits: {kept_reasoning_bytes: 0}}\n" +
			"replicaCount: 2\nsealKeys: {existingSecret: k}": {everyPod, plain, tenants, forgotten, counted},
	} {
		text := notes(t, values)
		_, text, _ = strings.Cut(text, open)
		var got []string
		for _, sentence := range all {
			if strings.Contains(text, sentence) {
				got = append(got, sentence)
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s:\n%s", values, diff)
		}
	}

	if text := notes(t, engine+"gateway: {provider: istio, name: theirs}"); !strings.Contains(text, "The Gateway theirs is yours: without a policy of yours") {
		t.Errorf("the notes do not say whose authentication it is:\n%s", text)
	}
}

// What the chart makes has an address of the cluster, unless the values ask for another.
func TestNothingIsPublicByDefault(t *testing.T) {
	types := func(f gatewayFile, more string) (types []any) {
		for _, o := range objects(t, render(t, oneEngine+f.ownGateway(more))) {
			for _, path := range []string{
				"spec.provider.kubernetes.envoyService.type", "spec.kube.service.type", "spec.service.spec.type",
			} {
				if found := at(o, path); found != nil {
					types = append(types, found)
				}
			}
			annotations, _ := at(o, "metadata.annotations").(object)
			if found := annotations["networking.istio.io/service-type"]; found != nil {
				types = append(types, found)
			}
		}
		return types
	}

	for _, f := range gatewayFiles {
		loopback := []any{"ClusterIP"}
		if f.name == "agentgateway" { // it has none
			loopback = nil
		}
		if diff := cmp.Diff(append([]any{"ClusterIP"}, loopback...), types(f, "")); diff != "" {
			t.Errorf("%s: types of Services:\n%s", f.name, diff)
		}

		chosen := append([]any{"LoadBalancer"}, loopback...)
		if f.name == "istio" { // its default has no annotation
			chosen = loopback
		}
		if diff := cmp.Diff(chosen, types(f, ", serviceType: LoadBalancer")); diff != "" {
			t.Errorf("%s: types of Services, as chosen:\n%s", f.name, diff)
		}
	}

	for _, o := range objects(t, render(t, engine+"mode: sidecar\nrender: {enabled: true}\n")) {
		if kind := at(o, "spec.type"); o["kind"] == "Service" && kind != nil && kind != "ClusterIP" {
			t.Errorf("%s is of type %v", at(o, "metadata.name"), kind)
		}
	}
}

// The listener of a Gateway that the chart makes has TLS, and another port, if a Secret is named.
func TestGatewayHTTPS(t *testing.T) {
	f := gatewayFiles[0]
	listener := func(more string) any {
		all := objects(t, render(t, oneEngine+f.ownGateway(more)))
		if more != "" && slices.ContainsFunc(all, func(o object) bool { return o["kind"] == "Pod" }) {
			t.Error("helm test asks by a name that no certificate has")
		}
		return at(find(t, all, "Gateway", "envoy-harmony"), "spec.listeners").([]any)[0]
	}

	routes := object{"namespaces": object{"from": "Same"}}
	if diff := cmp.Diff(any(object{"name": "http", "protocol": "HTTP", "port": 80.0, "allowedRoutes": routes}), listener("")); diff != "" {
		t.Error(diff)
	}

	secret := object{"group": "", "kind": "Secret", "name": "clients"}
	want := object{
		"name": "https", "protocol": "HTTPS", "port": 443.0, "allowedRoutes": routes,
		"tls": object{"mode": "Terminate", "certificateRefs": []any{secret}},
	}
	if diff := cmp.Diff(any(want), listener(", tls: {existingSecret: clients}")); diff != "" {
		t.Error(diff)
	}
	want["port"] = 8443.0
	if diff := cmp.Diff(any(want), listener(", tls: {existingSecret: clients}, listenerPort: 8443")); diff != "" {
		t.Error(diff)
	}
}

// The question that proves the installation has the scheme and the port of the clients' listener, where the values say
// what they are.
func TestNotesOfListener(t *testing.T) {
	const istio, eg = "gateway: {provider: istio, name: g", "gateway: {provider: envoyGateway, name: g"
	const guess = "helm test -n models harmony --logs It asks http://g-istio.models.svc.cluster.local:80/v1. If your Gateway has only HTTPS"
	for values, want := range map[string]string{
		istio + ", create: true, tls: {existingSecret: s}}":                               "ask --url https://NAME-IN-THE-CERTIFICATE/v1 --model gpt-oss-120b \"Say that it works.\" Until test.url is set, with that name, helm test asks nothing, and succeeds.",
		istio + ", create: true, tls: {existingSecret: s}, listenerPort: 8443}":           "ask --url https://NAME-IN-THE-CERTIFICATE:8443/v1",
		istio + ", create: true, tls: {existingSecret: s}, hostnames: [api.example.com]}": "ask --url https://api.example.com/v1",
		istio + ", create: true, listenerPort: 443}\ntest: {enabled: false}":              "ask --url http://YOUR-GATEWAY:443/v1",
		istio + "}":                    guess,
		istio + ", listenerPort: 443}": "ask --url https://NAME-IN-THE-CERTIFICATE/v1",
		eg + "}":                       "--env OPENAI_API_KEY=KEY -- \\ ask --url URL-OF-YOUR-GATEWAY/v1 --model gpt-oss-120b \"Say that it works.\" Until test.url is set, helm test asks nothing, and succeeds. For a key it needs test.existingSecret",
		"mode: deployment":             "ask --url URL-OF-YOUR-GATEWAY/v1 --model gpt-oss-120b \"Say that it works.\" Until test.url is set, helm test asks nothing",
		eg + ", listenerPort: 443}":    "ask --url https://NAME-IN-THE-CERTIFICATE/v1",
		eg + ", listenerPort: 8080}":   "ask --url http://YOUR-GATEWAY:8080/v1",
		istio + "}\ntest: {url: 'https://a.example/v1'}": "helm test -n models harmony --logs 3.",
	} {
		if text := notes(t, engine+values); !strings.Contains(text, want) {
			t.Errorf("%s: the notes do not have %q:\n%s", values, want, text)
		}
	}

	const directly = "mode: sidecar\ntest: {enabled: false}\nconfig: {tenant_header: x-tenant}\n"
	if text := notes(t, engine+directly); !strings.Contains(text, "--model gpt-oss-120b --header x-tenant=TENANT \"Say") {
		t.Errorf("the question has no tenant:\n%s", text)
	}

	for _, o := range objects(t, render(t, engine+istio+", listenerPort: 443}")) {
		if o["kind"] == "Pod" {
			t.Error("helm test asks by a name that no certificate has")
		}
	}
}

// The notes say what the question of helm test lacks, where tenants are demanded: its answer would be a 401.
func TestNotesOfTenant(t *testing.T) {
	const (
		sidecar = engine + "config: {tenant_header: x-tenant}\nmode: sidecar\n"
		gateway = engine + "config: {tenant_header: x-tenant}\ngateway: {provider: istio, name: g}\n"

		header      = "The question needs a tenant: set test.headers.x-tenant."
		credentials = "The question needs a tenant: set test.existingSecret, an API key of which your gateway makes x-tenant, or test.headers."
	)
	for values, want := range map[string]string{
		sidecar:                               header,
		sidecar + "test: {existingSecret: s}": header,
		sidecar + "test: {headers: {authorization: a}}":               header,
		sidecar + "test: {headers: {X-Tenant: acme}}":                 "",
		sidecar + "test: {url: 'http://front/v1'}":                    credentials,
		sidecar + "test: {url: 'http://front/v1', existingSecret: s}": "",
		gateway: credentials,
		gateway + "test: {headers: {authorization: a}}": "",
		gateway + "test: {existingSecret: s}":           "",
		engine + "mode: sidecar\n":                      "",
	} {
		text := notes(t, values)
		if want != "" && !strings.Contains(text, want) {
			t.Errorf("%s: the notes do not have %q:\n%s", values, want, text)
		}
		if want == "" && strings.Contains(text, "The question needs a tenant") {
			t.Errorf("%s: the question has its tenant:\n%s", values, text)
		}
	}
}

// Envoy's bootstrap in mode sidecar names the file that names the certificate, all of
// which Envoy's container has.
func TestSidecarHTTPS(t *testing.T) {
	all := objects(t, render(t, engine+"mode: sidecar\nsidecar: {envoy: {tls: {existingSecret: clients}}}\n"))
	port := at(find(t, all, "Service", "harmony-envoy-harmony"), "spec.ports").([]any)[0]
	if diff := cmp.Diff(any(object{"name": "https", "port": 443.0, "targetPort": "http", "appProtocol": "https"}), port); diff != "" {
		t.Error(diff)
	}

	pod := at(find(t, all, "Deployment", "harmony-envoy-harmony"), "spec.template.spec").(object)
	containers := pod["initContainers"].([]any)
	bootstrap, envoy := containers[0].(object), containers[1].(object)
	file := mountPath(envoy, "envoy-harmony-config").(string) + "/clients-tls.yaml"
	if args := bootstrap["args"].([]any); !slices.Contains(args, any("--listen-sds="+file)) {
		t.Errorf("the arguments do not name %s: %v", file, args)
	}

	folder := mountPath(envoy, "envoy-harmony-clients").(string)
	if diff := cmp.Diff(object{"name": "envoy-harmony-clients", "secret": object{"secretName": "clients"}}, volumeAt(object{
		"containers": []any{envoy}, "volumes": pod["volumes"],
	}, folder)); diff != "" {
		t.Error(diff)
	}

	var sds object
	text := find(t, all, "ConfigMap", "harmony-envoy-harmony")["data"].(object)["clients-tls.yaml"].(string)
	if err := yaml.UnmarshalStrict([]byte(text), &sds); err != nil {
		t.Fatal(err)
	}
	certificate := sds["resources"].([]any)[0].(object)["tls_certificate"].(object)
	want := object{
		"certificate_chain": object{"filename": folder + "/tls.crt"}, "private_key": object{"filename": folder + "/tls.key"},
		"watched_directory": object{"path": folder},
	}
	if diff := cmp.Diff(want, certificate); diff != "" {
		t.Error(diff)
	}
}
