//go:build charts

package gateways

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"
	"github.com/tidwall/gjson"
	"sigs.k8s.io/yaml"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/envoy"
	"github.com/envoy-harmony/envoy-harmony/filter"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/header"
)

// These tests boot what a gateway makes of the objects in envoy/gateways, and serve
// requests through it: with a real Envoy, the filter, engines and a service for
// other models.

// service is a Kubernetes service of the objects, with the addresses of its
// endpoints: http://host:port or unix:///path.
type service struct {
	name      string
	port      int
	network   string // such as 10.96.2, of its addresses in the objects
	endpoints []string
}

// clusterIP is the address of the service itself in the objects.
func (s *service) clusterIP() string { return s.network + ".1" }

// podIP is the address of an endpoint in the objects.
func (s *service) podIP(endpoint int) string { return s.network + "." + strconv.Itoa(10+endpoint) }

// gateway makes the bootstraps of an Envoy from the objects of a provider: one for
// the clients' gateway and one for the loopback. values are more values of the chart.
type gateway func(t *testing.T, services []service, values string) (clients, loopback stack.Object)

// withSockets are values of the chart for a gateway with a route of WebSockets.
const withSockets = "websocket: {enabled: true}\n"

// gatewayPlane is a data plane whose Envoys are configured by a gateway.
type gatewayPlane struct {
	*stack.Dataplane
	engines  []*stack.FlakyEngine
	loopback string // URL
}

// startGateway starts two replicas of the engine vllm, the filter, a service for
// other models, and the Envoys that the gateway configures with more values of the chart.
func startGateway(t *testing.T, g gateway, values string) *gatewayPlane {
	t.Helper()
	binary, err := envoy.Find(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}

	log := stack.LogOf(t)
	p := &gatewayPlane{Dataplane: &stack.Dataplane{Upstream: &stack.Upstream{}, Logs: log}}
	for range 2 {
		p.engines = append(p.engines, stack.NewFlakyEngine(t, log))
	}

	other := httptest.NewServer(p.Upstream)
	t.Cleanup(other.Close)

	dir := stack.SocketDir(t)
	socket, sockets := filepath.Join(dir, "filter"), filepath.Join(dir, "websocket")
	services := []service{
		{"envoy-harmony-headless", 9002, "10.96.2", []string{"unix://" + socket}},
		{"vllm", 8000, "10.96.8", []string{p.engines[0].URL, p.engines[1].URL}},
		{"other-models", 8080, "10.96.9", []string{other.URL}},
	}
	if values == withSockets {
		services = append(services, service{"envoy-harmony", 9004, "10.96.3", []string{"unix://" + sockets}})
	}
	clients, loopback := g(t, services, values)

	p.loopback = bootGateway(t, binary, loopback, log.Named("loop"))
	cfg := config.Defaults()
	cfg.Engines = []config.Engine{{Kind: "vllm", URLs: []string{p.engines[0].URL, p.engines[1].URL}}}
	cfg.Loopback = strings.TrimPrefix(p.loopback, "http://")
	cfg.AllowOverride = true

	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}

	stack.NewToolServer(t).Serve(cfg)
	p.StartFilter(t, cfg, socket, log, filter.Options{})
	p.ServeSockets(t, sockets)
	p.URL = bootGateway(t, binary, clients, log.Named("envoy"))
	p.Client = stack.NewClient(t)
	return p
}

// bootGateway starts an Envoy and returns the URL of its listener.
func bootGateway(t *testing.T, binary string, bootstrap stack.Object, sink io.Writer) string {
	t.Helper()
	text, err := json.Marshal(bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), stack.Patience)
	defer cancel()
	proxy, err := envoy.Launch(ctx, envoy.LaunchOptions{Binary: binary, Bootstrap: text, Concurrency: 1, Log: func(line string) { fmt.Fprintln(sink, line) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proxy.Stop(context.Background()) })
	address, err := proxy.ListenAddress(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return "http://" + address
}

// renderGateway renders the objects of a provider with the Helm chart, with two
// replicas of one engine and a service for other models.
func renderGateway(t *testing.T, provider, template, more string) string {
	t.Helper()
	values := filepath.Join(t.TempDir(), "values.yaml")
	// With a load balancer, Istio's objects are those that are recorded.
	text := "image: {repository: registry.example.com/envoy-harmony, tag: 1.2.3}\n" +
		"engines: [{kind: vllm, service: {name: vllm, port: 8000}}]\n" +
		"gateway: {provider: " + provider + ", name: envoy-harmony, create: true, serviceType: LoadBalancer, upstream: {name: other-models, port: 8080}}\n" + more
	if err := os.WriteFile(values, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return string(runTool(t, nil, "helm", "template", "envoy-harmony", "../charts/envoy-harmony", "--namespace", "envoy-harmony",
		"--values", values, "--show-only", "templates/gateway/"+template+".yaml"))
}

// runTool runs a program of .bin and returns its output.
func runTool(t *testing.T, input []byte, name string, args ...string) []byte {
	t.Helper()
	path, err := filepath.Abs("../.bin/" + name)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	var failure bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(input), &failure
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s (make test-charts builds it): %v\n%s", name, err, failure.Bytes())
	}
	return out
}

// at returns the value at a path of member names and indices, nil if there is none.
func at(v any, path ...any) any {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			o, _ := v.(stack.Object)
			v = o[step]
		case int:
			a, _ := v.([]any)
			if step >= len(a) {
				return nil
			}
			v = a[step]
		}
	}
	return v
}

// elements returns the array at a path.
func elements(v any, path ...any) []any {
	a, _ := at(v, path...).([]any)
	return a
}

// walk calls visit for each object in v.
func walk(v any, visit func(stack.Object)) {
	switch v := v.(type) {
	case stack.Object:
		visit(v)
		for _, member := range v {
			walk(member, visit)
		}
	case []any:
		for _, element := range v {
			walk(element, visit)
		}
	}
}

// resolve returns the real endpoints, in Envoy's form, of an address in the
// configuration that a gateway made: all of a service for its cluster IP, else one.
func resolve(t *testing.T, services []service, ip string, port any) (endpoints []any) {
	t.Helper()
	for _, s := range services {
		for i, address := range s.endpoints {
			if strconv.Itoa(s.port) != fmt.Sprint(port) || ip != s.clusterIP() && ip != s.podIP(i) {
				continue
			}
			e := stack.Object{"pipe": stack.Object{"path": strings.TrimPrefix(address, "unix://")}}
			if u, err := url.Parse(address); err == nil && u.Scheme == "http" {
				e = stack.Object{"socketAddress": stack.Object{"address": u.Hostname(), "portValue": json.Number(u.Port())}}
			}
			endpoints = append(endpoints, stack.Object{"endpoint": stack.Object{"address": e}, "loadBalancingWeight": 1})
		}
	}
	if len(endpoints) == 0 {
		t.Fatalf("the configuration names the address %s:%v, which no service has", ip, port)
	}
	return endpoints
}

// gatewayClass returns the class that the Gateways have, and their namespace.
func gatewayClass(name, controller string) []any {
	return []any{
		stack.Object{"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": stack.Object{"name": name}, "spec": stack.Object{"controllerName": controller}},
		stack.Object{"apiVersion": "v1", "kind": "Namespace", "metadata": stack.Object{"name": "envoy-harmony"}},
	}
}

// envoyGateway translates the objects for Envoy Gateway with its own translator. The
// services have a cluster IP, which the translator puts in place of endpoints.
func envoyGateway(t *testing.T, services []service, values string) (clients, loopback stack.Object) {
	t.Helper()
	input := gatewayClass("eg", "gateway.envoyproxy.io/gatewayclass-controller")
	for _, s := range services {
		input = append(input, stack.Object{
			"apiVersion": "v1", "kind": "Service", "metadata": stack.Object{"name": s.name, "namespace": "envoy-harmony"},
			"spec": stack.Object{"clusterIP": s.clusterIP(), "ports": []any{stack.Object{"name": "main", "port": s.port, "targetPort": s.port}}},
		})
	}

	file := filepath.Join(t.TempDir(), "objects.yaml")
	if err := os.WriteFile(file, []byte(documents(t, input)+renderGateway(t, "envoyGateway", "envoy-gateway", values)), 0o600); err != nil {
		t.Fatal(err)
	}

	var result stack.Object
	if err := json.Unmarshal(runTool(t, nil, "egctl", "x", "translate", "--from", "gateway-api", "--to", "gateway-api,xds", "-o", "json", "-f", file), &result); err != nil {
		t.Fatal(err)
	}

	walk(result, func(o stack.Object) {
		if status, ok := o["status"].(string); ok && status != "True" && o["reason"] != nil {
			t.Errorf("Envoy Gateway does not accept an object: %v: %v", o["reason"], o["message"])
		}
	})

	return fromDump(t, at(result, "xds", "envoy-harmony/envoy-harmony"), services), fromDump(t, at(result, "xds", "envoy-harmony/envoy-harmony-loopback"), services)
}

// documents writes objects as documents of YAML, each with a separator before it.
func documents(t *testing.T, list []any) string {
	t.Helper()
	var text strings.Builder
	for _, o := range list {
		document, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&text, "---\n%s", document)
	}
	return text.String()
}

// fromDump collects what Envoy Gateway serves to one Envoy, and makes a bootstrap of
// it.
func fromDump(t *testing.T, dump any, services []service) stack.Object {
	t.Helper()
	var served configuration
	for _, section := range elements(dump, "configs") {
		for _, c := range elements(section, "dynamicRouteConfigs") {
			served.Routes = append(served.Routes, untyped(at(c, "routeConfig")))
		}
		for _, c := range elements(section, "dynamicEndpointConfigs") {
			served.Endpoints = append(served.Endpoints, untyped(at(c, "endpointConfig")))
		}
		for _, c := range elements(section, "dynamicActiveClusters") {
			served.Clusters = append(served.Clusters, untyped(at(c, "cluster")))
		}
		for _, c := range elements(section, "dynamicListeners") {
			if l := untyped(at(c, "activeState", "listener")); !strings.Contains(fmt.Sprint(l["name"]), "ready") {
				served.Listeners = append(served.Listeners, l)
			}
		}
	}
	return served.bootstrap(t, services)
}

// configuration is what a control plane serves to one Envoy.
type configuration struct {
	Listeners []stack.Object `json:"listeners"`
	Routes    []stack.Object `json:"routes"`
	Clusters  []stack.Object `json:"clusters"`
	Endpoints []stack.Object `json:"endpoints"`
}

// bootstrap makes a static bootstrap of it: the one listener, with its routes in line,
// and the clusters, with their endpoints. Beside that, only addresses are changed: the
// listener gets a free port, and endpoints are resolved.
func (c *configuration) bootstrap(t *testing.T, services []service) stack.Object {
	t.Helper()
	if len(c.Listeners) != 1 {
		t.Fatalf("%d listeners", len(c.Listeners))
	}

	listener := c.Listeners[0]
	listener["name"] = "openai" // by which the launched Envoy is asked for the port
	listener["address"] = stack.Object{"socketAddress": stack.Object{"address": "127.0.0.1", "portValue": 0}}
	walk(listener, func(o stack.Object) {
		if name := at(o, "rds", "routeConfigName"); name != nil {
			i := slices.IndexFunc(c.Routes, func(r stack.Object) bool { return r["name"] == name })
			o["routeConfig"] = c.Routes[i]
			delete(o, "rds")
		}
	})

	for _, cluster := range c.Clusters {
		i := slices.IndexFunc(c.Endpoints, func(l stack.Object) bool { return l["clusterName"] == at(cluster, "edsClusterConfig", "serviceName") })
		walk(c.Endpoints[i], func(o stack.Object) {
			named := elements(o, "lbEndpoints")
			if named == nil {
				return
			}
			ends := make([]any, 0, len(named))
			for _, e := range named {
				to := at(e, "endpoint", "address", "socketAddress")
				ends = append(ends, resolve(t, services, fmt.Sprint(at(to, "address")), at(to, "portValue"))...)
			}
			o["lbEndpoints"] = ends
		})

		cluster["type"], cluster["loadAssignment"] = "STATIC", c.Endpoints[i]
		delete(cluster, "edsClusterConfig")
	}

	return stack.Object{
		"admin":           stack.Object{"address": stack.Object{"socketAddress": stack.Object{"address": "127.0.0.1", "portValue": 0}}},
		"staticResources": stack.Object{"listeners": c.Listeners, "clusters": c.Clusters},
	}
}

// untyped removes the type of a message that was packed.
func untyped(v any) stack.Object {
	o, _ := v.(stack.Object)
	delete(o, "@type")
	return o
}

// istio reads what istiod makes of the objects for Istio: testdata/istio.json, which
// the program tools/istio has printed, or istio-websocket.json with that route. What Envoy without Istio's extensions does not
// know is removed: the filters by which sidecars exchange their identities, and the
// TLS to pods with sidecars.
func istio(t *testing.T, services []service, values string) (clients, loopback stack.Object) {
	t.Helper()
	rendered := renderGateway(t, "istio", "istio", values)
	file := "testdata/istio.json"
	if values == withSockets {
		file = "testdata/istio-websocket.json"
	}

	served := servedByIstio(t, file, rendered, func(gateway string) configuration {
		return istiod(t, services, 80, rendered, gateway)
	})
	return served.Clients.bootstrap(t, services), served.Loopback.bootstrap(t, services)
}

// istioRecord is what istiod makes of objects for both Gateways.
type istioRecord struct {
	Objects  string        `json:"objects"` // SHA-256
	Clients  configuration `json:"clients"`
	Loopback configuration `json:"loopback"`
}

// servedByIstio reads what istiod makes of objects from a file. make runs istiod's code for
// a Gateway: make istio-config writes the file by it.
func servedByIstio(t *testing.T, file, objects string, serve func(gateway string) configuration) (recorded istioRecord) {
	t.Helper()
	sum := sha256.Sum256([]byte(objects))
	digest := hex.EncodeToString(sum[:])
	if os.Getenv("UPDATE_ISTIO") != "" {
		recorded = istioRecord{digest, serve("envoy-harmony"), serve("envoy-harmony-loopback")}
		text, err := json.MarshalIndent(recorded, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, append(text, '\n'), 0o644); err != nil { //nolint:gosec // a file of the repository
			t.Fatal(err)
		}
	}

	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &recorded); err != nil {
		t.Fatal(err)
	}
	if recorded.Objects != digest {
		t.Fatalf("%s is of other objects than the chart renders now: run make istio-config", file)
	}
	return recorded
}

// istiod runs istiod's code for the Envoy of a Gateway. port is that of the clients' one.
func istiod(t *testing.T, services []service, port int, rendered, name string) (c configuration) {
	t.Helper()
	const class, namespace = "istio", "envoy-harmony"
	input := gatewayClass(class, "istio.io/gateway-controller")

	// istiod makes a Service for each Gateway.
	all := append(slices.Clone(services), service{"envoy-harmony-" + class, port, "10.96.20", []string{""}}, service{"envoy-harmony-loopback-" + class, 10001, "10.96.21", []string{""}})
	address := ""
	for _, s := range all {
		port := stack.Object{"name": "http", "port": s.port, "targetPort": s.port}
		if s.port == 9002 {
			port["appProtocol"] = "grpc"
		}

		slice := stack.Object{
			"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
			"metadata": stack.Object{"name": s.name, "namespace": namespace, "labels": stack.Object{"kubernetes.io/service-name": s.name}},
			"ports":    []any{stack.Object{"name": "http", "port": s.port, "protocol": "TCP"}},
		}
		var endpoints []any
		for i := range s.endpoints {
			endpoints = append(endpoints, stack.Object{"addresses": []any{s.podIP(i)}, "conditions": stack.Object{"ready": true}})
		}
		slice["endpoints"] = endpoints

		spec := stack.Object{"clusterIP": s.clusterIP(), "ports": []any{port}}
		if gateway, ok := strings.CutSuffix(s.name, "-"+class); ok {
			spec["selector"] = stack.Object{"gateway.networking.k8s.io/gateway-name": gateway}
			if gateway == name {
				address = s.podIP(0)
			}
		}

		input = append(input, stack.Object{"apiVersion": "v1", "kind": "Service", "metadata": stack.Object{"name": s.name, "namespace": namespace}, "spec": spec}, slice)
	}

	objects := strings.TrimPrefix(documents(t, input), "---\n") + rendered
	out := runTool(t, []byte(objects), "istiod-config", "--gateway", name, "--namespace", namespace, "--address", address)
	if err := json.Unmarshal(out, &c); err != nil {
		t.Fatal(err)
	}
	c.withoutIstio(services)
	return c
}

// withoutIstio removes clusters that no route and no filter uses, and extensions that
// only Istio's Envoy has.
func (c *configuration) withoutIstio(services []service) {
	unused := func(o stack.Object, member string) bool {
		return !slices.ContainsFunc(services, func(s service) bool { return strings.Contains(fmt.Sprint(o[member]), "||"+s.name+".") })
	}
	c.Clusters = slices.DeleteFunc(c.Clusters, func(o stack.Object) bool { return unused(o, "name") })
	c.Endpoints = slices.DeleteFunc(c.Endpoints, func(o stack.Object) bool { return unused(o, "clusterName") })
	for _, o := range c.Clusters {
		delete(o, "filters")
		delete(o, "transportSocketMatches")
	}
	walk(c.Listeners[0], func(o stack.Object) {
		if filters := elements(o, "httpFilters"); filters != nil {
			o["httpFilters"] = slices.DeleteFunc(filters, func(f any) bool { return strings.HasPrefix(fmt.Sprint(at(f, "name")), "istio.") })
		}
	})
}

// What istiod makes of the objects for Istio serves the APIs of the filter.
func TestIstio(t *testing.T) {
	p := startGateway(t, istio, "")
	p.checkAll(t)
}

// What Envoy Gateway makes of its objects serves the APIs of the filter.
func TestEnvoyGateway(t *testing.T) {
	p := startGateway(t, envoyGateway, "")
	for _, e := range p.engines {
		e.Named.Store(true)
	}
	p.checkAll(t)
}

// The route of WebSockets serves them, and nothing else.
func TestEnvoyGatewaySockets(t *testing.T) {
	startGateway(t, envoyGateway, withSockets).checkSockets(t)
}

func TestIstioSockets(t *testing.T) { startGateway(t, istio, withSockets).checkSockets(t) }

// checkSockets: a conversation over one connection, and a 426 for every other upgrade.
func (p *gatewayPlane) checkSockets(t *testing.T) {
	// The header would choose an engine if the gateway, or the filter, did not remove it.
	socket, resp, err := websocket.Dial(t.Context(), p.URL+"/v1/responses", &websocket.DialOptions{
		HTTPHeader: http.Header{header.Engine: {"nonsense"}, "session_id": {"s"}},
	})
	if err != nil {
		t.Fatalf("%v: %v", err, resp)
	}
	defer socket.CloseNow()
	socket.SetReadLimit(-1)

	previous := "null"
	for _, word := range []string{"one", "two"} {
		event := fmt.Sprintf(`{"type":"response.create","model":%q,"store":false,"input":"NOTHINK\nSAY %s","previous_response_id":%s}`,
			stack.SGLangModel, word, previous)
		if err := socket.Write(t.Context(), websocket.MessageText, []byte(event)); err != nil {
			t.Fatal(err)
		}
		for {
			_, text, err := socket.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			e := gjson.ParseBytes(text)
			if e.Get("type").Str == "error" {
				t.Fatalf("%s", text)
			}
			if e.Get("type").Str == "response.completed" {
				if got := e.Get("response.output.#(type==message).content.0.text").Str; got != word {
					t.Errorf("%q, want %q: %s", got, word, text)
				}
				previous = e.Get("response.id").Raw
				break
			}
		}
	}

	for _, path := range []string{"/v1/chat/completions", "/v1/messages"} {
		if resp, text := p.Handshake(t, http.MethodGet, path, ""); resp.StatusCode != http.StatusUpgradeRequired {
			t.Errorf("%s: %s: %s", path, resp.Status, text)
		}
	}
	p.checkAnswers(t)
}

// checkAll checks what every gateway must do.
func (p *gatewayPlane) checkAll(t *testing.T) {
	p.checkAnswers(t)
	p.checkBackground(t)
	p.checkTools(t)
	p.checkOtherModels(t)
	p.checkModels(t)
	p.checkHeaders(t)
	t.Run("WebSockets", p.CheckWebSockets)
	p.checkLoopback(t)
	p.checkAffinity(t)
	p.checkRetries(t)
	p.checkFilterDown(t)
}

// checkAnswers: a chat is answered, whole and as a stream.
func (p *gatewayPlane) checkAnswers(t *testing.T) {
	t.Run("answers", func(t *testing.T) {
		want := "hello from the engine"
		q := stack.UserMessage(stack.SGLangModel, "THINK Hm.\nSAY "+want)
		if got := stack.Streamed(t, p.Openai(), q); !answers(got, want, "Hm.") {
			t.Errorf("streamed: %+v", got)
		}
		if got := stack.NonStreamed(t, p.Openai(), q); !answers(got, want, "Hm.") {
			t.Errorf("not streamed: %+v", got)
		}
		long := strings.Repeat("text ", 100_000)
		if got := stack.NonStreamed(t, p.Openai(), stack.UserMessage(stack.SGLangModel, long+"\nNOTHINK\nSAY "+want)); !answers(got, want, "") {
			t.Errorf("a long prompt: %+v", got)
		}
	})
}

// answers reports whether a reply has one choice with a text and reasoning.
func answers(r stack.ChatReply, content, reasoning string) bool {
	return len(r.Choices) == 1 && r.Choices[0].Content == content && r.Choices[0].Reasoning == reasoning
}

// checkBackground: a response is made without a client, which takes the loopback.
func (p *gatewayPlane) checkBackground(t *testing.T) {
	t.Run("background", func(t *testing.T) {
		c := p.Openai()
		if r := stack.AwaitBackground(t, c, stack.BeginBackground(t, c, stack.SGLangModel, "SAY later").ID); r.Status != "completed" || r.OutputText() != "later" {
			t.Errorf("response %s", r.RawJSON())
		}
	})
}

// checkTools: the filter runs a tool between two model calls.
func (p *gatewayPlane) checkTools(t *testing.T) {
	t.Run("tools", func(t *testing.T) {
		for _, stream := range []bool{false, true} {
			c := &stack.ResponsesClient{Dataplane: p.Dataplane, Stream: stream}
			r := c.Create(t, "completed", map[string]any{"input": "NOTHINK\nCALL docs.search {\"q\":\"one\"}", "tools": stack.JSONArray(stack.DocsTool)})
			if got := stack.LastText(r); got != "RESULT: found one" {
				t.Errorf("answer %q in %s", got, r)
			}
		}
	})
}

// checkOtherModels: a request for another model passes through, with its reply.
func (p *gatewayPlane) checkOtherModels(t *testing.T) {
	t.Run("other models", func(t *testing.T) {
		for _, size := range []int{100, 3 << 20} {
			sent, back := otherModelChat(size), noise(size)
			p.Upstream.Handle(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil || !bytes.Equal(body, sent) {
					t.Errorf("%d bytes arrived, sent %d: %v", len(body), len(sent), err)
				}
				for _, name := range []string{header.Engine, header.Upstream, header.Prefill, header.Destination, header.Override} {
					if v := r.Header.Get(name); v != "" {
						t.Errorf("%s: %s arrived", name, v)
					}
				}
				w.Header().Set("Content-Type", "x/y")
				_, _ = w.Write(back)
			})

			resp := p.Do(t, http.MethodPost, "/v1/chat/completions", "application/json", bytes.NewReader(sent),
				header.Engine, "vllm", header.Upstream, "10.0.0.1:80", header.Prefill, "a", header.Destination, "b", header.Override, "off")
			if got, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK || !bytes.Equal(got, back) {
				t.Errorf("%s, %d bytes came back, sent %d: %v", resp.Status, len(got), len(back), err)
			}
		}
	})
}

// checkModels: the list has the models of the engine and those of the service for
// other models.
func (p *gatewayPlane) checkModels(t *testing.T) {
	t.Run("models", func(t *testing.T) {
		p.Upstream.Handle(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"object":"list","data":[{"id":%q,"object":"model","created":1,"owned_by":"x"}]}`, stack.OtherModel)
		})
		c := p.Openai()
		page, err := c.Models.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		names := make([]string, 0, len(page.Data))
		for _, m := range page.Data {
			names = append(names, m.ID)
		}
		for _, want := range []string{stack.OtherModel, stack.SGLangModel} {
			if !slices.Contains(names, want) {
				t.Errorf("%s is not in %s", want, names)
			}
		}
	})
}

// checkHeaders: a header with an underscore, as Codex sends it, is accepted, and no
// client sees which replica answered.
func (p *gatewayPlane) checkHeaders(t *testing.T) {
	t.Run("headers", func(t *testing.T) {
		resp, text := p.Chat(t, stack.SGLangModel, "SAY hello", "", "session_id", "s-1", "x-request-id", "my-own-id")
		if resp.StatusCode != http.StatusOK || !strings.Contains(text, "hello") {
			t.Errorf("%s: %s", resp.Status, text)
		}
		if v := resp.Header.Get(header.Upstream); v != "" {
			t.Errorf("the client sees %s: %s", header.Upstream, v)
		}
		p.RequestLine(t, "my-own-id")
	})
}

// checkLoopback: the loopback has no routes but those to engines, and no filter.
func (p *gatewayPlane) checkLoopback(t *testing.T) {
	t.Run("loopback", func(t *testing.T) {
		for _, path := range []string{"/v1/chat/completions", "/v1/completions", "/"} {
			resp, err := p.Client.Post(p.loopback+path, "application/json", strings.NewReader(`{"model":"gpt-oss-20b"}`))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusNotFound {
				t.Errorf("%s: %s", path, resp.Status)
			}
		}
	})
}

// checkAffinity: a conversation stays at its replica.
func (p *gatewayPlane) checkAffinity(t *testing.T) {
	t.Run("affinity", func(t *testing.T) {
		for n := range 8 {
			talk := stack.NewConversation(fmt.Sprintf("Conversation %d.", n))
			before := [2]int32{p.engines[0].Calls.Load(), p.engines[1].Calls.Load()}
			for range 3 {
				if status, reply, err := talk.Ask(p.Dataplane, "SAY on", ""); err != nil || status != http.StatusOK {
					t.Fatalf("%d: %s, %v", status, reply, err)
				}
			}
			if p.engines[0].Calls.Load() != before[0] && p.engines[1].Calls.Load() != before[1] {
				t.Errorf("conversation %d changed its replica", n)
			}
		}
		if p.engines[0].Calls.Load() == 0 || p.engines[1].Calls.Load() == 0 {
			t.Error("one replica takes all conversations")
		}
	})
}

// checkRetries: a call that fails at one replica is made at the other.
func (p *gatewayPlane) checkRetries(t *testing.T) {
	t.Run("retries", func(t *testing.T) {
		const conversations = 20
		before := p.engines[0].Calls.Load()
		p.engines[1].SetFailure(stack.EngineFailures["always an error event"])
		var all sync.WaitGroup
		for n := range conversations {
			all.Go(func() {
				status, text, err := p.TryChat(fmt.Sprintf("Conversation %d.\nSAY on", n), "")
				if err != nil || status != http.StatusOK || !strings.Contains(text, `"finish_reason":"stop"`) {
					t.Errorf("conversation %d: status %d: %s, %v", n, status, text, err)
				}
			})
		}
		all.Wait()
		healthy, failing := p.engines[0].Calls.Load()-before, p.engines[1].Calls.Load()
		if healthy != conversations || failing == 0 || failing > conversations {
			t.Errorf("%d calls of %d conversations at the healthy replica, %d at the other", healthy, conversations, failing)
		}
	})
}

// checkFilterDown: without the filter, no request reaches an engine.
func (p *gatewayPlane) checkFilterDown(t *testing.T) {
	t.Run("without the filter", func(t *testing.T) {
		p.Filter.Stop()
		p.Upstream.Handle(func(http.ResponseWriter, *http.Request) { t.Error("a request has passed the filter") })
		resp, text := p.Chat(t, stack.SGLangModel, "SAY hello", "")
		if resp.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("%s: %s", resp.Status, text)
		}
	})
}
