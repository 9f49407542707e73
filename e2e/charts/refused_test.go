//go:build charts

package charts

import (
	"strings"
	"testing"
)

const (
	engine    = "engines: [{kind: vllm, service: {name: vllm, port: 8000}}]\n"
	shared    = engine + "store: {existingSecret: s}\nsealKeys: {existingSecret: k}\n"
	patched   = shared + "mode: sidecar\nsidecar: {envoy: {enabled: false}}\n"
	looped    = "gateway: {loopback: {address: 'loopback:10001'}}\n"
	fourBytes = "AAAA"
)

// TestRefused renders combinations of values that cannot work. Each is refused with a
// message that names the value and what to change.
func TestRefused(t *testing.T) {
	for _, tt := range []struct{ name, values, want string }{
		{"HTTPS of another's Gateway", engine + "gateway: {provider: istio, name: g, tls: {existingSecret: s}}", "gateway.tls.existingSecret: is for a Gateway that the chart makes"},
		{"HTTPS without gateway", engine + "gateway: {tls: {existingSecret: s}}", "gateway.tls.existingSecret: is for a Gateway that the chart makes"},
		{"type of another's Gateway", engine + "gateway: {provider: istio, name: g, serviceType: LoadBalancer}", "gateway.serviceType: LoadBalancer is for a Gateway that the chart makes"},
		{"HTTPS of no sidecar", engine + "sidecar: {envoy: {tls: {existingSecret: s}}}", "sidecar.envoy.tls.existingSecret: is for an Envoy that the chart makes"},
		{"HTTPS of another's Envoy", shared + "mode: sidecar\nsidecar: {envoy: {enabled: false, tls: {existingSecret: s}}}", "sidecar.envoy.tls.existingSecret: is for an Envoy that the chart makes"},

		{"simulated and real engines", engine + "simulate: true", "simulate: answers would come from the simulated engine or from a real one"},
		{"no engine", "engines: []", "engines: name at least one engine"},
		{"name twice", "engines: [{kind: vllm}, {kind: vllm}]", `engines[1].name: "vllm" is used twice`},
		{"sidecar's engine without address", "mode: sidecar\nengines: [{kind: vllm}]", "engines[0]: write where the engine is: service: {name, port}, or urls"},
		{"gateway's engine without address", "gateway: {provider: istio, name: g}\nengines: [{kind: vllm, urls: ['http://a']}]", "engines[0]: write where the engine is: service: {name, port}, or inferencePool: {name}"},
		{"service and urls", "mode: sidecar\nengines: [{kind: vllm, service: {name: a, port: 1}, urls: ['http://a']}]", "engines[0]: has a service and urls"},
		{"prefill without loopback", "engines: [{kind: vllm, prefill: [{service: {name: p, port: 1}}]}]", "engines[0].prefill: prefill endpoints are reached through the loopback listener"},
		{"prefill without service", looped + "engines: [{kind: vllm, prefill: [{}]}]", "engines[0].prefill[0]: write where it is"},

		{"config.engines", engine + "config: {engines: [{kind: vllm}]}", "config.engines: set engines in its place"},
		{"config.listen", engine + "config: {listen: ':1'}", "config.listen: set service.port in its place"},
		{"config.listen of a sidecar", engine + "mode: sidecar\nconfig: {listen: ':1'}", "config.listen: in mode sidecar the filter and Envoy speak over Unix sockets of the pod: leave it out; clients connect to Envoy, at sidecar.envoy.port and sidecar.service.port"},
		{"config.listen beside another's Envoy", patched + "config: {listen: ':1'}", "leave it out; clients connect to your Envoy, at its port"},
		{"config.loopback of a sidecar", engine + "mode: sidecar\nconfig: {loopback: 'a:1'}", "config.loopback: in mode sidecar the filter and Envoy speak over Unix sockets of the pod: leave it out"},
		{"config.websocket.listen of a sidecar", engine + "mode: sidecar\nconfig: {websocket: {listen: ':1'}}", "config.websocket.listen: set websocket.enabled in its place"},
		{"config.admin", engine + "config: {admin: ':1'}", "config.admin: set adminPort in its place"},
		{"config.loopback", engine + "config: {loopback: 'a:1'}", "config.loopback: set gateway.loopback in its place"},
		{"config.store_url", engine + "config: {store_url: 'redis://a'}", "config.store_url: set store.url or store.existingSecret in its place"},
		{"config.responses.seal_keys", engine + "config: {responses: {seal_keys: [a]}}", "config.responses.seal_keys: would stand in a ConfigMap"},
		{"tools without loopback", engine + "config: {tools: {servers: [{label: a, url: 'http://a'}]}}", "config.tools: tools need the loopback listener"},
		{"allowed hosts without loopback", engine + "config: {tools: {allowed_hosts: [a]}}", "config.tools: tools need the loopback listener"},
		{"background without loopback", engine + "config: {limits: {max_background: 5}}", "config.limits.max_background: background responses need the loopback listener"},
		{"kept prefixes without loopback", engine + "config: {model_defaults: {effort_updates: keep_prefix}}", "config: effort_updates: keep_prefix needs the loopback listener"},
		{"a model's kept prefix without loopback", engine + "config: {models: [{match: gpt-oss, effort_updates: keep_prefix}]}", "config: effort_updates: keep_prefix needs the loopback listener"},
		{"unknown tools without loopback", engine + "config: {unknown_tools: model}", "config.unknown_tools: model needs the loopback listener"},
		{"loopback switched off", engine + "gateway: {provider: istio, name: g, loopback: {enabled: false}}\nconfig: {limits: {max_background: 5}}", "set gateway.loopback.enabled"},

		{"memory with replicas", engine + "replicaCount: 2\nsealKeys: {existingSecret: k}", "store.url: memory: cannot serve 2 replicas"},
		{"memory with autoscaling", engine + "autoscaling: {enabled: true}\nsealKeys: {existingSecret: k}", "store.url: memory: cannot serve autoscaling"},
		{"memory with sidecars", engine + "mode: sidecar\nsidecar: {envoy: {enabled: false}}\nsealKeys: {existingSecret: k}", "store.url: memory: cannot serve sidecars"},
		{"sqlite with replicas", engine + "replicaCount: 2\nsealKeys: {existingSecret: k}\nstore: {url: 'sqlite:/a', persistence: {enabled: true}}", "store.url: sqlite: cannot serve 2 replicas"},
		{"sqlite with autoscaling", engine + "autoscaling: {enabled: true}\nsealKeys: {existingSecret: k}\nstore: {url: 'sqlite:/a', persistence: {enabled: true}}", "store.url: sqlite: cannot serve autoscaling"},
		{"sqlite without volume", engine + "store: {url: 'sqlite:/a'}", "store.url: sqlite: needs a volume"},
		{"volume without sqlite", engine + "store: {persistence: {enabled: true}}", "store.persistence: is for sqlite"},
		{"no store", engine + "store: {url: ''}", "store.url: must not be empty"},
		{"store twice", engine + "store: {url: 'redis://a', existingSecret: s}", "store: has a url and an existingSecret"},

		{"no seal keys", engine + "replicaCount: 2\nstore: {existingSecret: s}", "sealKeys: several replicas need the same keys"},
		{"seal keys twice", engine + "sealKeys: {existingSecret: k, keys: [AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=]}", "sealKeys: has keys and an existingSecret"},
		{"tool's secret twice", engine + "toolSecrets: [{env: A, value: b, existingSecret: c}]", "toolSecrets[0]: A has a value and an existingSecret"},
		{"tool's secret without value", engine + "toolSecrets: [{env: A}]", "toolSecrets[0]: A has no value"},
		{"literal header of a tool server", shared + looped + "config: {tools: {servers: [{label: a, url: 'http://a'}, {label: b, url: 'http://b', headers: {Authorization: Bearer abc}}]}}", "config.tools.servers[1].headers.Authorization: would stand in a ConfigMap; write ${NAME} there, and name its Secret in toolSecrets"},
		{"literal environment of a tool server", shared + looped + "config: {tools: {servers: [{label: a, command: [a], env: {KEY: abc}}]}}", "config.tools.servers[0].env.KEY: would stand in a ConfigMap"},
		{"key of the test twice", engine + "test: {existingSecret: k, headers: {Authorization: a}}", "test: has headers.authorization and an existingSecret"},
		{"CA of a test without HTTPS", engine + "mode: sidecar\ntest: {caConfigMap: ca}", "test.caConfigMap: is for a question over HTTPS: set test.url"},

		{"config.record.folder", engine + "config: {record: {folder: /a}}", "config.record.folder: set records.enabled in its place"},
		{"claim without records", engine + "records: {existingClaim: c}", "records.existingClaim: has no effect without a folder"},
		{"bytes of no folder", engine + "config: {record: {folder_bytes: 1}}", "config.record.folder_bytes: has no effect without a folder"},
		{"age of no folder", engine + "config: {record: {folder_age: 1h}}", "config.record.folder_age: has no effect without a folder"},
		{"files above the limit", engine + "records: {enabled: true, sizeLimit: 1Gi}\nconfig: {record: {folder_bytes: 1073741824}}", "config.record.folder_bytes: 1073741824 does not fit in records.sizeLimit 1Gi"},
		{"blocks above the limit", engine + "records: {enabled: true, sizeLimit: 1Gi}\nconfig: {record: {folder_bytes: 532676609}}", "config.record.folder_bytes: 532676609 does not fit in records.sizeLimit 1Gi"},
		{"records above the limit", engine + "records: {enabled: true, sizeLimit: 10Mi}", "config.record.folder_bytes: 4194304 does not fit in records.sizeLimit 10Mi"},
		{"claim of replicas", shared + "replicaCount: 2\nrecords: {enabled: true, existingClaim: c}", "records.existingClaim: is for one replica"},
		{"claim of sidecars", patched + "records: {enabled: true, existingClaim: c}", "records.existingClaim: is for one replica"},
		{"config.inspector.enabled", engine + "config: {inspector: {enabled: true}}", "config.inspector.enabled: set inspector.enabled in its place"},
		{"config.websocket.listen", engine + "config: {websocket: {listen: ':1'}}", "config.websocket.listen: set websocket.enabled and websocket.port in its place"},
		{"WebSockets without loopback", engine + "websocket: {enabled: true}", "websocket.enabled: responses over WebSocket need the loopback listener"},
		{"WebSockets with TLS", engine + looped + "websocket: {enabled: true}\ntls: {enabled: true, existingSecret: s}", "websocket.enabled: the listener for WebSockets has no TLS"},
		{"port of WebSockets twice", engine + looped + "websocket: {enabled: true, port: 9003}", "adminPort: two listeners of a pod would have the same port"},
		{"config.inspector.token", engine + "config: {inspector: {token: a}}", "config.inspector.token: would stand in a ConfigMap; set inspector.existingSecret"},
		{"inspector without token", engine + "inspector: {enabled: true}", "inspector.existingSecret: name a Secret with a token"},
		{"token without inspector", engine + "inspector: {existingSecret: s}", "inspector.existingSecret: has no effect without the page"},

		{"peers of no render service", engine + "render: {enabled: true, from: [{podSelector: {}}]}", "render.from: has no effect without the service and its policy"},
		{"no replicas of the render service", engine + "render: {enabled: true, replicas: 0}", "at '/render/replicas': minimum: got 0, want 1"},

		{"CA without TLS", engine + "tls: {clientCA: a}", "tls.clientCA: has no effect without TLS: set tls.enabled"},
		{"CA's ConfigMap without TLS", engine + "tls: {clientCAConfigMap: a}", "tls.clientCAConfigMap: has no effect without TLS"},
		{"certificate without TLS", engine + "tls: {existingSecret: a}", "tls.existingSecret: has no effect without TLS"},
		{"cert-manager without TLS", engine + "tls: {certManager: {enabled: true}}", "tls.certManager: has no effect without TLS"},
		{"TLS without certificate", engine + "tls: {enabled: true}", "tls: a certificate is missing"},
		{"certificate twice", engine + "tls: {enabled: true, existingSecret: a, certManager: {enabled: true, issuerRef: {name: a}}}", "tls: has an existingSecret and certManager"},
		{"no issuer", engine + "tls: {enabled: true, certManager: {enabled: true}}", "tls.certManager.issuerRef: name the issuer"},
		{"CA twice", engine + "tls: {enabled: true, existingSecret: a, clientCA: a, clientCAConfigMap: a}", "tls: has a clientCA and a clientCAConfigMap"},
		{"TLS of a sidecar", engine + "mode: sidecar\ntls: {enabled: true, existingSecret: a}", "tls: Envoy and a sidecar speak over a Unix socket"},
		{"config.loopback_tls", engine + "config: {loopback_tls: {ca_file: /c}}", "config.loopback_tls: set gateway.loopback.tls in its place"},
		{"loopback's CA without TLS", engine + "gateway: {loopback: {address: 'l:1', tls: {caConfigMap: c}}}", "gateway.loopback.tls.caConfigMap: has no effect without TLS: set gateway.loopback.tls.enabled"},
		{"loopback's certificate without TLS", engine + "gateway: {loopback: {address: 'l:1', tls: {clientSecret: c}}}", "gateway.loopback.tls.clientSecret: has no effect without TLS"},
		{"certificate of another's loopback", engine + "gateway: {loopback: {address: 'l:1', tls: {enabled: true, existingSecret: s}}}", "gateway.loopback.tls.existingSecret: the listener at gateway.loopback.address is yours"},
		{"TLS without loopback", engine + "gateway: {loopback: {tls: {enabled: true}}}", "gateway.loopback.tls: there is no loopback listener"},
		{"TLS of a sidecar's loopback", engine + "mode: sidecar\ngateway: {loopback: {tls: {enabled: true}}}", "gateway.loopback.tls: the loopback listener is a Unix socket of the pod"},

		{"least above most", shared + "autoscaling: {enabled: true, minReplicas: 5, maxReplicas: 4}", "autoscaling: minReplicas is 5 and maxReplicas 4"},
		{"nothing measured", shared + "autoscaling: {enabled: true, targetCPUUtilizationPercentage: 0}", "autoscaling: nothing is measured"},
		{"share of no CPU", shared + "autoscaling: {enabled: true}\nresources: {requests: {cpu: null}}", "autoscaling.targetCPUUtilizationPercentage: is a share of resources.requests.cpu"},
		{"autoscaling of others' pods", patched + "autoscaling: {enabled: true}", "autoscaling: with sidecar.envoy.enabled: false the pods are not the chart's"},
		{"no pod may go", shared + "replicaCount: 2\npodDisruptionBudget: {minAvailable: 2}", "podDisruptionBudget.minAvailable: is 2 of 2 replicas"},

		{"grace period", engine + "terminationGracePeriodSeconds: 60", "terminationGracePeriodSeconds: 60 is too short: drain_delay, drain_timeout and 40 s for background responses take 170 s"},
		{"provider of a sidecar", engine + "mode: sidecar\ngateway: {provider: istio, name: g}", "gateway.provider: istio is for mode deployment"},
		{"no gateway", engine + "gateway: {provider: istio}", "gateway.name: the provider istio needs the name of the clients' Gateway"},
		{"two monitors", engine + "monitoring: {serviceMonitor: {enabled: true}, podMonitor: {enabled: true}}", "monitoring: serviceMonitor and podMonitor would read every metric twice"},
		{"monitor without Service", patched + "monitoring: {serviceMonitor: {enabled: true}}", "monitoring.serviceMonitor: with sidecar.envoy.enabled: false there is no Service"},
		{"policy without gateway", engine + "networkPolicy: {enabled: true}", "networkPolicy.gatewayFrom: name the pods that may connect to the filter"},
		{"policy of others' pods", patched + "networkPolicy: {enabled: true}", "networkPolicy: with sidecar.envoy.enabled: false the pods are not the chart's"},
		{"no way to the engines", engine + "mode: sidecar\nnetworkPolicy: {enabled: true, egress: {enabled: true}}", "networkPolicy.egress.to: in mode sidecar Envoy connects to the engines"},
		{"no way to the store", shared + "networkPolicy: {enabled: true, gatewayFrom: [{podSelector: {}}], egress: {enabled: true}}", "networkPolicy.egress.to: the filter connects to its store"},

		// The schema.
		{"unknown value", engine + "replicas: 3", "additional properties 'replicas' not allowed"},
		{"unknown value below", engine + "store: {uri: a}", "at '/store': additional properties 'uri' not allowed"},
		{"unknown key of config", engine + "config: {limits: {max_tool: 3}}", "at '/config/limits': additional properties 'max_tool' not allowed"},
		{"wrong kind in config", engine + "config: {limits: {max_tools: many}}", "at '/config/limits/max_tools': got string, want integer"},
		{"unknown word in config", engine + "config: {unknown_tools: nobody}", "at '/config/unknown_tools': value must be one of 'client', 'model'"},
		{"unknown word in a list of config", engine + "config: {token_budgets: [{name: a, per: [user], tokens: 1, window: 1m}]}", "at '/config/token_budgets/0/per/0': value must be one of 'tenant', 'key', 'model'"},
		{"size without unit in config", engine + "config: {limits: {max_body_bytes: '32M'}}", "at '/config/limits/max_body_bytes': '32M' does not match pattern"},
		{"size above the limit", engine + "records: {enabled: true, sizeLimit: 1Gi}\nconfig: {record: {folder_bytes: 1GiB}}", "config.record.folder_bytes: 1073741824 does not fit in records.sizeLimit 1Gi"},
		{"number for a duration", engine + "config: {drain_timeout: 30}", "at '/config/drain_timeout': got number, want string"},
		{"duration without unit", engine + "config: {drain_timeout: '30'}", "at '/config/drain_timeout': '30' does not match pattern"},
		{"unknown provider", engine + "gateway: {provider: nginx}", "at '/gateway/provider': value must be one of 'none', 'envoyGateway'"},
		{"unknown mode", engine + "mode: daemonset", "at '/mode': value must be one of 'deployment', 'sidecar'"},
		{"unknown engine", "engines: [{kind: ollama}]", "at '/engines/0/kind': value must be one of"},
		{"port of an engine", "engines: [{kind: vllm, service: {name: a, port: 70000}}]", "at '/engines/0/service/port': maximum: got 70,000, want 65,535"},
		{"engine's service without port", "engines: [{kind: vllm, service: {name: a}}]", "at '/engines/0/service': missing property 'port'"},
		{"URL of the store", engine + "store: {url: 'mysql://a'}", "at '/store/url': 'mysql://a' does not match pattern"},
		{"size without unit", engine + "records: {enabled: true, sizeLimit: '1000'}", "at '/records/sizeLimit': '1000' does not match pattern"},
		{"token in the values", engine + "inspector: {token: a}", "at '/inspector': additional properties 'token' not allowed"},
		{"short seal key", engine + "sealKeys: {keys: [" + fourBytes + "]}", "at '/sealKeys/keys/0': 'AAAA' does not match pattern"},
		{"digest", engine + "image: {digest: latest}", "at '/image/digest': 'latest' does not match pattern"},
		{"text for a number", engine + "replicaCount: two", "at '/replicaCount': got string, want integer"},

		{"Istio's long Service", "fullnameOverride: aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeee\ngateway: {provider: istio, name: g}\n" + engine, "-loopback-istio, which has more than 63 characters"},
		{"long label", engine + "nameOverride: aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeefffffffff", "nameOverride"},
		{"no DNS name", engine + "fullnameOverride: Foo_Bar", "fullnameOverride"},
		{"Gateway without a provider", engine + "gateway: {name: g}", "gateway.name: has no effect without a provider"},
		{"class without a provider", engine + "gateway: {className: eg}", "gateway.className: has no effect without a provider"},
		{"class of another provider", engine + "gateway: {provider: istio, name: g, className: eg}", "gateway.className: eg is the GatewayClass of envoyGateway, and gateway.provider is istio: leave it out"},
		{"own Gateway without a provider", engine + "gateway: {create: true}", "gateway.create: has no effect without a provider"},
		{"gateway's CA without TLS", engine + "gateway: {provider: istio, name: g, filterCA: a}", "gateway.filterCA: has no effect without TLS"},
		{"low port of the loopback", engine + "gateway: {provider: envoyGateway, name: g, loopback: {port: 80}}", "gateway/loopback/port"},
		{"no eviction", engine + "podDisruptionBudget: {maxUnavailable: 0}", "podDisruptionBudget: allows no eviction"},
		{"all have to stay", shared + "podDisruptionBudget: {minAvailable: 100%}", "podDisruptionBudget: allows no eviction"},
		{"label of the selectors", engine + "commonLabels: {app.kubernetes.io/name: a}", "commonLabels: app.kubernetes.io/name is the chart's own label"},
		{"pod label of the selectors", engine + "podLabels: {app.kubernetes.io/component: a}", "podLabels: app.kubernetes.io/component is the chart's own label"},
		{"port used twice", engine + "adminPort: 9002", "adminPort: two listeners of a pod would have the same port"},
		{"Envoy's port used twice", engine + "mode: sidecar\nsidecar: {envoy: {port: 9003}}", "adminPort: two listeners of a pod would have the same port"},
		{"clients of a gateway's filter", engine + looped + "networkPolicy: {enabled: true, gatewayFrom: [{podSelector: {}}], clientsFrom: [{podSelector: {}}]}", "networkPolicy.clientsFrom: is for mode sidecar"},
		{"gateway of a sidecar", engine + "mode: sidecar\nnetworkPolicy: {enabled: true, gatewayFrom: [{podSelector: {}}]}", "networkPolicy: gatewayFrom and loopbackPods are for mode deployment"},
		{"egress without loopback", engine + looped + "networkPolicy: {enabled: true, gatewayFrom: [{podSelector: {}}], egress: {enabled: true}}", "networkPolicy.loopbackPods: the filter connects to the loopback listener"},
		{"egress without MCP servers", engine + "config: {tools: {servers: [{label: a, url: 'http://a'}]}}\ngateway: {provider: istio, name: g}\nnetworkPolicy: {enabled: true, egress: {enabled: true}}", "networkPolicy.egress.to: the filter connects to MCP servers"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text, stderr, err := template(t, write(t, tt.values))
			if err == nil {
				t.Fatalf("it is rendered:\n%s", text)
			}
			if !strings.Contains(stderr, tt.want) {
				t.Errorf("the error does not have %q:\n%s", tt.want, stderr)
			}
		})
	}
}

// An image has to be named: there is none that the chart could know.
func TestImageIsNamed(t *testing.T) {
	for set, want := range map[string]string{
		"":                                  "image: no image is published yet",
		"image.repository=a/b":              "image: no image is published yet",
		"image.tag=v1":                      "image: no image is published yet",
		"image.repository=a/b,image.tag=v1": "",
		"image.repository=a/b,image.digest=sha256:" + strings.Repeat("0", 64): "",
	} {
		_, stderr, err := run(t, tool(t, "helm"), "template", release, chart, "--values", write(t, engine), "--set", set)
		if want == "" && err != nil || want != "" && !strings.Contains(stderr, want) {
			t.Errorf("%q: %v: %s", set, err, stderr)
		}
	}
}

// The error about the simulated engine's image is for those who have named the filter's by a digest.
func TestImageOfSimulator(t *testing.T) {
	const wrong = "simulator.image: the filter's image has a digest"
	digest := "sha256:" + strings.Repeat("0", 64)
	for set, want := range map[string]bool{
		"simulate=true": false,
		"simulate=true,image.repository=a/b,image.digest=" + digest:                                       true,
		"simulate=true,image.repository=a/b,image.digest=" + digest + ",simulator.image.tag=v1":           false,
		"simulate=true,image.repository=a/b,image.digest=" + digest + ",simulator.image.digest=" + digest: false,
	} {
		_, stderr, _ := run(t, tool(t, "helm"), "template", release, chart, "--set", "mode=sidecar", "--set", set)
		if got := strings.Contains(stderr, wrong); got != want {
			t.Errorf("%q: the error is there: %v, want %v: %s", set, got, want, stderr)
		}
	}
}

// Values that look wrong and are not.
func TestNotRefused(t *testing.T) {
	for name, values := range map[string]string{
		"header of a tool's Secret": shared + looped + "toolSecrets: [{env: A, existingSecret: s, key: k}]\nconfig: {tools: {servers: [{label: a, url: 'http://a', headers: {Authorization: 'Bearer ${A}'}}]}}",
		"nothing is stored":         engine + "replicaCount: 2\nsealKeys: {existingSecret: k}\nconfig: {responses: {store_bytes: 0}, limits: {kept_reasoning_bytes: 0}}",
		"sqlite on another volume":  engine + "store: {url: 'sqlite:/data/a'}\nextraVolumes: [{name: d, hostPath: {path: /d}}]\nextraVolumeMounts: [{name: d, mountPath: /data}]",
		"least in per cent":         shared + "replicaCount: 2\npodDisruptionBudget: {minAvailable: 50%}",
		"longer grace period":       engine + "terminationGracePeriodSeconds: 170",
		"one sidecar in memory":     engine + "mode: sidecar",
		"sizes with units":          engine + "records: {enabled: true, sizeLimit: 1Gi}\nconfig: {record: {folder_bytes: 500MiB, max_record_bytes: 4 MiB}, limits: {max_body_bytes: 32MiB, max_inflight_bytes: 1GiB}}",
		"words of config":           engine + looped + "config: {unknown_tools: model, log: {level: warn}, model_defaults: {effort: ''}}",
		"files that just fit":       engine + "records: {enabled: true, sizeLimit: 1Gi}\nconfig: {record: {folder_bytes: 532676608}}",
		"a claim of any size":       engine + "records: {enabled: true, existingClaim: c, sizeLimit: 1Mi}\nconfig: {record: {folder_bytes: 1099511627776}}",
		"a folder of each replica":  shared + "replicaCount: 2\nrecords: {enabled: true}",
	} {
		if _, stderr, err := template(t, write(t, values)); err != nil {
			t.Errorf("%s: %v: %s", name, err, stderr)
		}
	}
}
