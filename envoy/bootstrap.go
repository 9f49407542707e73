// Package envoy generates the Envoy configuration for the filter, and runs an Envoy
// with it. The generated bootstrap is meant to be read and copied. It has a
// listener with the ext_proc filter, a cluster for each engine, and a comment for
// each setting that differs from Envoy's default.
package envoy

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/header"
)

// loggedMetadata are the metadata fields for the access log: all but text, which
// has the user's words.
var loggedMetadata = []string{
	"api", "model", "engine", "stream", "choices", "prompt_tokens", "max_tokens", "items", "tools",
	"outcome", "status", "finish", "input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens", "total_tokens",
	"repairs", "retries", "continuations", "tool_calls", "time_to_first_token_ms", "cost",
}

// Options are the settings of a bootstrap.
type Options struct {
	// Listen is the address of the clients' listener, host:port. Port 0 chooses a free
	// port.
	Listen string
	// ListenSDS is the path of a file, at Envoy, with the certificate of the clients'
	// listener: the SDS secret "listener", as in examples/tls/listener.yaml. Envoy takes over
	// a certificate that is renewed. Empty: clients connect without TLS.
	ListenSDS string
	// Admin is the address of Envoy's admin interface, host:port. Default: a free port
	// of 127.0.0.1.
	Admin string
	// ExtProc is the address of the filter: unix:///path or host:port.
	ExtProc string
	// ExtProcTLS is the TLS of connections to the filter. nil: there is none.
	ExtProcTLS *FilterTLS
	// Loopback is the address of the loopback listener, through which the filter makes
	// model calls: unix:///path, or host:port of an address that only this machine or
	// pod can reach, unless LoopbackTLS requires a certificate. Empty: there is no such
	// listener.
	Loopback string
	// LoopbackTLS is the TLS of the loopback listener. nil: there is none.
	LoopbackTLS *ListenerTLS
	// WebSocket is the address of the filter's listener for WebSockets: unix:///path or
	// host:port. Empty: upgrades are answered with 426.
	WebSocket string
	// PrefixHeader, SessionHeader and SelectionHeader are the request headers with
	// which the filter controls the choice of a replica. Envoy removes them from
	// clients' requests. Empty: the filter does not set the header.
	PrefixHeader, SessionHeader, SelectionHeader string
	// Balance is the load balancing policy of replicas. Default: [BalancePrefix] if
	// PrefixHeader is set, otherwise [BalanceLeastRequest].
	Balance Balance
	// Engines are the engines that serve Harmony models, at least one.
	Engines []Engine
	// Upstream is the URL of the service for requests for other models, and for the
	// open paths. Empty: the first engine that is not a gRPC service gets them. If
	// there is none, they are answered with 404.
	Upstream string
	// OpenPaths are paths of Upstream that clients may use beside those that are open by
	// default: a path, or one with /* for it and all below. With /v1/completions among
	// them, requests for Harmony models reach it too.
	OpenPaths []string
	// StreamIdleTimeout ends a stream without traffic in either direction. It must be
	// longer than the filter's own deadlines, which produce better errors. Default: 1
	// hour.
	StreamIdleTimeout time.Duration
	// RetryBufferBytes bounds the engine request that Envoy buffers for a retry.
	// Default: 8 MiB. A prompt of 131,072 token ids needs about 0.9 MB.
	RetryBufferBytes int64
	// CAFile is the CA bundle for https engines. Default: SSL_CERT_FILE, or else the
	// system's bundle.
	CAFile string
	// ModeOverride lets the filter ask for the bodies that it needs, so that other
	// paths' bodies and other models' replies do not pass through it. It needs Envoy
	// 1.40.
	ModeOverride bool
	// CORSOrigins are the origins, such as https://app.example.com, from which browsers
	// may send requests: CORS. A * stands for any part of a name or for any port; "*"
	// alone for all origins. Empty: browsers are kept out.
	CORSOrigins []string
	// TenantHeader is the request header that names the tenant of a request, for the
	// rate limits below. Authentication sets it.
	TenantHeader string
	// RateLimitService is the URL of a rate limit service, http or https, which counts
	// the tokens of each tenant: the descriptor "tenant" of the domain
	// header.MetadataNamespace. Empty: there is none.
	RateLimitService string
	// PromptTokensPerMinute limits the tokens that the prompts of each tenant's model
	// calls may have in a minute, as this Envoy alone counts them. 0: no limit.
	PromptTokensPerMinute int
	// AccessLog writes a JSON line per request to standard error, without texts of
	// requests and replies.
	AccessLog bool
	// Instance is an id that no other Envoy has: by it a probe ([InstanceHeader]) knows whether
	// this Envoy answers. With it the listeners share their ports with no other process.
	// Empty: there are no such probes, and on Linux each worker has a socket of its own,
	// which another process of the same user can join.
	Instance string
}

// InstanceHeader is the header of a probe, an OPTIONS request of Chat Completions, whose
// value is the id in Options.Instance. The reply has it too, unless another Envoy answers.
const InstanceHeader = "x-envoy-harmony-instance"

// FilterTLS names the PEM files with which Envoy connects to the filter. Envoy reads
// them once, when it starts.
type FilterTLS struct {
	// CAFile has the CA certificates by which the filter's certificate is checked. The
	// certificate must be for the host of Options.ExtProc.
	CAFile string
	// CertFile and KeyFile are the certificate that Envoy presents, and its private
	// key. Empty: it presents none.
	CertFile, KeyFile string
}

// ListenerTLS names the PEM files of the loopback listener. Envoy reads them once, when
// it starts.
type ListenerTLS struct {
	// CertFile and KeyFile are the listener's certificate and its private key.
	CertFile, KeyFile string
	// ClientCAFile has the CA certificates by which the filter's certificate is
	// checked. Empty: the filter needs none.
	ClientCAFile string
}

// Balance is a load balancing policy for the replicas of an engine.
type Balance string

// The load balancing policies. With the first two, requests with the same key go to
// the same replica. If it has 1.5 times its share of the requests, they go to the
// next one in an order that depends on the key.
const (
	BalancePrefix       Balance = "prefix"        // by Options.PrefixHeader
	BalanceSession      Balance = "session"       // by Options.SessionHeader
	BalanceLeastRequest Balance = "least-request" // the less loaded of two random replicas
)

// Engine is an engine and the addresses of its replicas.
type Engine struct {
	Name string
	URLs []string // http or https, the same scheme for all
	GRPC bool     // a gRPC service, to which Envoy speaks HTTP/2
	// OneCall limits a connection to one request. It is for servers that close the
	// connection after a response without announcing it, over HTTP/1.1 only.
	OneCall bool
	// HealthPath is the path of the health check, which Envoy requests from each
	// replica and each of Prefill every 10 s. After three failed connections, or one
	// status other than 200, an endpoint gets no calls until it answers 200. It cannot
	// be used with GRPC. Empty: no health checks.
	HealthPath string
	// Prefill are the URLs of the prefill endpoints, which compute prompts for the
	// replicas. They form their own cluster. The filter selects it through the loopback
	// listener by the engine's name with [header.PrefillSuffix]. Empty: there are none.
	Prefill []string
	// PinPrefill requires each prefill call to name its endpoint in [header.Prefill].
	// Otherwise Envoy balances prefill calls like others.
	PinPrefill bool
	// EndpointPicker is the URL of an endpoint picker of the Gateway API inference
	// extension: an ext_proc service that reads each call and selects one of URLs by IP
	// address and port. If it selects none that is available, Options.Balance applies.
	// If it cannot be reached, calls are answered with 503. Empty: there is none.
	EndpointPicker string
}

// Replicas reports whether the engine may have several replicas. A host name can
// resolve to several addresses.
func (e Engine) Replicas() bool {
	return slices.ContainsFunc(e.URLs, func(raw string) bool {
		u, err := url.Parse(raw)
		return len(e.URLs) > 1 || err == nil && net.ParseIP(u.Hostname()) == nil
	})
}

//go:embed bootstrap.yaml.tmpl
var bootstrapText string

var bootstrap = template.Must(template.New("bootstrap").
	Funcs(template.FuncMap{"quote": quote, "seconds": seconds, "origin": originMatcher, "allowed": allowedOrigin}).
	Parse(bootstrapText))

// Bootstrap returns the Envoy bootstrap (v3, YAML) for o. Equal options return
// equal bytes. The error names each invalid option.
func Bootstrap(o Options) ([]byte, error) {
	page, err := o.page()
	if err != nil {
		return nil, fmt.Errorf("envoy bootstrap: %w", err)
	}
	var b bytes.Buffer
	if err := bootstrap.Execute(&b, page); err != nil {
		return nil, fmt.Errorf("envoy bootstrap: %w", err)
	}
	return b.Bytes(), nil
}

// page is the data of the template. It is large because the template has one name for
// each of its places, and computes nothing.
type page struct {
	Options

	// Names of headers and of metadata, from package header.
	EngineHeader       string
	PrefillHeader      string
	UpstreamHeader     string
	PromptTokensHeader string
	// by which the filter sees that the pacing route exists
	PacingMetadata string
	// of a request that Envoy has given a body
	FilledHeader string
	// value of EngineHeader that selects the pacing route
	PacingRoute string
	// of a probe and its reply
	InstanceHeader string
	// request headers that no client may set
	Internal []string
	// response headers that scripts of other origins can read
	ExposedHeaders    string
	MetadataNamespace string
	UsageNamespace    string
	LoggedMetadata    []string

	// Addresses.
	Listener         endpoint
	LoopbackAddress  *endpoint
	WebSocketAddress *endpoint
	AdminAddress     endpoint

	// Clusters: the engines, and the upstream if it is not an engine.
	Filter   cluster
	Clusters []cluster
	// cluster of requests that are not for an engine; "" if there is none
	Default string
	// cluster of an endpoint picker; "" if there is none
	Picker string
	// some prefill calls name their endpoint
	Pins bool
	// header that selects a replica; "" if none does
	HashHeader string
	// RateLimitService or PromptTokensPerMinute is set
	LimitsTokens bool

	// Routes: matches of those on which the filter is enabled, a part of a match that
	// excludes changes, and matches of the upstream's other routes.
	Filtered  []string
	ReadsOnly string
	Open      []string
}

// cluster is a cluster of Envoy.
type cluster struct {
	Name      string
	Endpoints []endpoint

	// How an endpoint is chosen: an engine may have several replicas, a call names its
	// endpoint, or an endpoint picker selects it.
	Replicas   bool
	Pinned     bool
	Picked     bool
	HealthPath string

	// How Envoy connects. OneCall: a connection serves one request.
	GRPC    bool
	OneCall bool
	TLS     bool
	CAFile  string
}

// endpoint is an address.
type endpoint struct {
	Pipe string // path of a Unix socket; otherwise Host and Port are set
	Host string
	Port int
}

// page computes the data of the template. It collects all errors, so that a user sees
// every wrong option at once.
func (o Options) page() (*page, error) {
	p := o.newPage()

	var errs []error
	var err error
	if p.HashHeader, err = o.hashHeader(); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, p.setAddresses()...)
	errs = append(errs, checkOrigins(o.CORSOrigins),
		o.checkFilterTLS(p.Filter.Endpoints[0]), o.checkLoopbackTLS(p.LoopbackAddress))

	if len(o.Engines) == 0 {
		errs = append(errs, errors.New("there is no engine: configure at least one"))
	}
	for _, e := range o.Engines {
		for _, err := range p.addEngine(e) {
			errs = append(errs, fmt.Errorf("engine %s: %w", e.Name, err))
		}
	}
	if err := p.addRateLimit(); err != nil {
		errs = append(errs, fmt.Errorf("rate limit: %w", err))
	}

	// The upstream comes last: without one, the first of the clusters above stands for it.
	if err := p.setDefault(); err != nil {
		errs = append(errs, fmt.Errorf("upstream: %w", err))
	}
	return p, errors.Join(errs...)
}

// newPage returns a page with what cannot be wrong: names, defaults, routes.
func (o Options) newPage() *page {
	p := &page{
		Options: o,

		EngineHeader:       header.Engine,
		PrefillHeader:      header.Prefill,
		UpstreamHeader:     header.Upstream,
		PromptTokensHeader: header.PromptTokens,
		PacingMetadata:     header.Pacing,
		FilledHeader:       header.Filled,
		PacingRoute:        header.PacingRoute,
		InstanceHeader:     InstanceHeader,
		Internal:           header.Internal(),
		ExposedHeaders:     exposedHeaders(),
		MetadataNamespace:  header.MetadataNamespace,
		UsageNamespace:     header.TokenUsageNamespace,
		LoggedMetadata:     loggedMetadata,

		LimitsTokens: o.RateLimitService != "" || o.PromptTokensPerMinute != 0,
		ReadsOnly:    readsOnly,
	}
	p.Filtered, p.Open = o.routes()

	p.Admin = cmp.Or(p.Admin, "127.0.0.1:0")
	p.StreamIdleTimeout = cmp.Or(p.StreamIdleTimeout, time.Hour)
	p.RetryBufferBytes = cmp.Or(p.RetryBufferBytes, 8<<20)
	return p
}

// setAddresses sets the listeners' addresses and the filter's.
func (p *page) setAddresses() (errs []error) {
	parse := func(what, address string) endpoint {
		e, err := parseAddress(address)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
		return e
	}

	p.Listener = parse("listen", p.Listen)
	p.AdminAddress = parse("admin", p.Admin)
	if p.Loopback != "" {
		e := parse("loopback", p.Loopback)
		p.LoopbackAddress = &e
	}
	if p.WebSocket != "" {
		e := parse("websocket", p.WebSocket)
		p.WebSocketAddress = &e
		// The service counts what the filter reports of a request to Envoy, which has only one
		// request for all responses of a connection.
		if p.RateLimitService != "" {
			errs = append(errs, errors.New("websocket: a rate limit service does not see the tokens of WebSocket "+
				"responses: leave websocket.listen or the service out, and bound tenants by token_budgets"))
		}
	}
	p.Filter = cluster{Name: "envoy_harmony", Endpoints: []endpoint{parse("filter", p.ExtProc)}}
	return errs
}

// setDefault sets the cluster of requests that are not for an engine.
func (p *page) setDefault() error {
	if p.Upstream != "" {
		c, err := p.newCluster("upstream", []string{p.Upstream})
		p.Clusters = append(p.Clusters, c)
		p.Default = c.Name
		return err
	}

	// A gRPC service of an engine has no paths of OpenAI's API.
	if i := slices.IndexFunc(p.Clusters, func(c cluster) bool { return !c.GRPC }); i >= 0 {
		p.Default = p.Clusters[i].Name
	}
	return nil
}

// checkFilterTLS checks the TLS of connections to the filter.
func (o Options) checkFilterTLS(filter endpoint) error {
	t := o.ExtProcTLS
	switch {
	case t == nil:
		return nil
	case filter.Pipe != "":
		return errors.New("filter: TLS needs an address host:port, because the certificate is for a host")
	case t.CAFile == "":
		return errors.New("filter: TLS needs a CA file")
	case (t.CertFile == "") != (t.KeyFile == ""):
		return errors.New("filter: a certificate and its key are set together")
	}
	return nil
}

// checkLoopbackTLS checks the TLS of the loopback listener.
func (o Options) checkLoopbackTLS(loopback *endpoint) error {
	t := o.LoopbackTLS
	switch {
	case t == nil:
		return nil
	case loopback == nil || loopback.Pipe != "":
		return errors.New("loopback: TLS needs an address host:port")
	case t.CertFile == "" || t.KeyFile == "":
		return errors.New("loopback: TLS needs a certificate and its key")
	}
	return nil
}

// addEngine adds the clusters of an engine: its replicas, its endpoint picker and its
// prefill endpoints.
func (p *page) addEngine(e Engine) (errs []error) {
	c, err := p.newCluster("engine_"+e.Name, e.URLs)
	if err != nil {
		errs = append(errs, err)
	}
	c.GRPC, c.OneCall, c.HealthPath, c.Replicas = e.GRPC, e.OneCall, e.HealthPath, e.Replicas()
	c.Picked = e.EndpointPicker != ""
	p.Clusters = append(p.Clusters, c)

	if c.Picked {
		if c, err = p.newCluster("picker_"+e.Name, []string{e.EndpointPicker}); err != nil {
			errs = append(errs, fmt.Errorf("endpoint picker: %w", err))
		}
		// The filter chain has one filter for pickers. The routes of the other engines override its cluster.
		c.GRPC, p.Picker = true, cmp.Or(p.Picker, c.Name)
		p.Clusters = append(p.Clusters, c)
	}

	if len(e.Prefill) == 0 {
		return errs
	}
	// The clients' listener has no route to prefill endpoints.
	if p.Loopback == "" {
		errs = append(errs, errors.New("prefill endpoints are reached through the loopback listener: set loopback"))
	}
	prefill := Engine{Name: e.Name + header.PrefillSuffix, URLs: e.Prefill, GRPC: e.GRPC}
	if c, err = p.newCluster("engine_"+prefill.Name, prefill.URLs); err != nil {
		errs = append(errs, fmt.Errorf("prefill: %w", err))
	}
	c.GRPC, c.HealthPath, c.Replicas, c.Pinned = e.GRPC, e.HealthPath, prefill.Replicas(), e.PinPrefill
	p.Pins = p.Pins || c.Pinned
	p.Clusters = append(p.Clusters, c)
	// The routes are made of Engines, which is the caller's: clipped, it is copied.
	p.Engines = append(slices.Clip(p.Engines), prefill)
	return errs
}

// addRateLimit adds the cluster of the rate limit service.
func (p *page) addRateLimit() error {
	if !p.LimitsTokens {
		return nil
	}
	if n := p.PromptTokensPerMinute; n < 0 || n > math.MaxUint32 {
		return fmt.Errorf("the prompt tokens per minute must be from 0 to %d, not %d", math.MaxUint32, n)
	}
	if p.TenantHeader == "" {
		return errors.New("it needs a header that names the tenant: set tenant_header")
	}
	if p.RateLimitService == "" {
		return nil
	}
	c, err := p.newCluster("rate_limit", []string{p.RateLimitService})
	c.GRPC = true
	p.Clusters = append(p.Clusters, c)
	return err
}

// hashHeader returns the header that selects a replica, "" if none does.
func (o Options) hashHeader() (string, error) {
	name := ""
	switch o.Balance {
	case "":
		return o.PrefixHeader, nil
	case BalanceLeastRequest:
		return "", nil
	case BalancePrefix:
		name = o.PrefixHeader
	case BalanceSession:
		name = o.SessionHeader
	default:
		return "", fmt.Errorf(
			"balance: must be %s, %s or %s, not %q", BalancePrefix, BalanceSession, BalanceLeastRequest, o.Balance)
	}
	if name == "" {
		return "", fmt.Errorf("balance: %s needs the name of a header: set routing.%[1]s_header", o.Balance)
	}
	return name, nil
}

func (o Options) newCluster(name string, urls []string) (cluster, error) {
	c := cluster{Name: name}
	if len(urls) == 0 {
		return c, errors.New("it has no URL: write http://host:port")
	}
	for i, raw := range urls {
		u, err := url.Parse(raw)
		if err != nil {
			return c, fmt.Errorf("%q is not a URL: write http://host:port", raw)
		}

		e, err := endpointOf(u)
		if err != nil {
			return c, fmt.Errorf("%q: %w", raw, err)
		}

		// A cluster has one transport socket for all of its endpoints.
		tls := u.Scheme == "https"
		if i > 0 && tls != c.TLS {
			return c, errors.New("it has http and https URLs: configure two engines")
		}
		c.TLS = tls
		c.Endpoints = append(c.Endpoints, e)
	}

	if c.TLS {
		// Envoy has no default: without a bundle it accepts any certificate.
		if c.CAFile = o.CAFile; c.CAFile == "" {
			c.CAFile = systemCAFile()
		}
		if c.CAFile == "" {
			return c, errors.New("https needs a CA bundle, and none was found: set SSL_CERT_FILE")
		}
	}
	return c, nil
}

func endpointOf(u *url.URL) (endpoint, error) {
	ports := map[string]int{"http": 80, "https": 443}
	port, ok := ports[u.Scheme]
	if !ok {
		return endpoint{}, errors.New("the scheme must be http or https")
	}
	if u.Hostname() == "" {
		return endpoint{}, errors.New("the host is missing: write http://host:port")
	}
	if text := u.Port(); text != "" {
		var err error
		if port, err = parsePort(text); err != nil {
			return endpoint{}, err
		}
	}
	return endpoint{Host: u.Hostname(), Port: port}, nil
}

// IsIP reports whether the host is an IP address.
func (e endpoint) IsIP() bool { return net.ParseIP(e.Host) != nil }

// Name returns the name of the endpoint in header.Prefill.
func (e endpoint) Name() string { return net.JoinHostPort(e.Host, strconv.Itoa(e.Port)) }

// parseAddress parses unix:///path or host:port.
func parseAddress(address string) (endpoint, error) {
	if path, ok := strings.CutPrefix(address, "unix://"); ok {
		if !strings.HasPrefix(path, "/") {
			return endpoint{}, fmt.Errorf("%q: write an absolute path, unix:///path", address)
		}
		return endpoint{Pipe: path}, nil
	}
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return endpoint{}, fmt.Errorf("%q: write host:port", address)
	}
	// Envoy takes an address only; Go listens everywhere at :port.
	if host == "" {
		host = "0.0.0.0"
	}
	port, err := parsePort(text)
	return endpoint{Host: host, Port: port}, err
}

func parsePort(text string) (int, error) {
	port, err := strconv.Atoi(text)
	if err != nil || port < 0 || port > math.MaxUint16 {
		return 0, fmt.Errorf("%q is not a port: write a number from 0 to 65535", text)
	}
	return port, nil
}

// systemCAFile returns the first CA bundle at a common path, "" if there is none.
func systemCAFile() string {
	places := []string{
		os.Getenv("SSL_CERT_FILE"),
		"/etc/ssl/certs/ca-certificates.crt", // Debian, Alpine
		"/etc/pki/tls/certs/ca-bundle.crt",   // Fedora
		"/etc/ssl/cert.pem",                  // macOS, BSD
		"/etc/ssl/ca-bundle.pem",             // openSUSE
	}
	// Envoy does not start with a file that it cannot read.
	i := slices.IndexFunc(places, func(path string) bool {
		info, err := os.Stat(path)
		return err == nil && info.Mode().IsRegular()
	})
	if i < 0 {
		return ""
	}
	return places[i]
}

// quote returns s as a JSON string, which is also a YAML string.
func quote(s string) (string, error) {
	b, err := json.Marshal(s)
	return string(b), err
}

// seconds formats a duration as the JSON format of protobuf does.
func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s"
}
