// Package envoy makes the Envoy configuration that goes with the filter and
// starts an Envoy with it. The bootstrap that it writes is meant to be read
// and copied: it is one listener with the ext_proc filter, a cluster for every
// engine, and a comment wherever a setting is not Envoy's default.
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
)

// EngineHeader is the request header by which the filter tells Envoy the
// engine: Envoy's routes match it, strip it from clients' requests and drop it
// before the engine.
const EngineHeader = "x-harmony-engine"

// PrefillHeader is the request header by which the filter names, as host:port,
// the one of an engine's prefill endpoints that takes a call. Only the loopback
// listener heeds it.
const PrefillHeader = "x-harmony-prefill"

// PrefillSuffix is what the filter adds to an engine's name for the route to its
// prefill endpoints.
const PrefillSuffix = "-prefill"

// UpstreamHeader is the header by which Envoy tells the filter, in an answer on the
// loopback listener, which of an engine's replicas has given it, and by which the
// filter names those that may take a call, as IP:port.
const UpstreamHeader = "x-harmony-upstream"

// MetadataNamespace is where the filter's dynamic metadata stands.
const MetadataNamespace = "envoy_harmony"

// loggedMetadata are the fields of the filter's metadata for an access log: all but
// text, which a user has said.
var loggedMetadata = []string{"api", "model", "engine", "stream", "choices", "prompt_tokens", "max_tokens", "items", "tools"}

// Options says what the bootstrap is for.
type Options struct {
	// Listen is host:port of the listener that clients use; port 0 takes a
	// free one.
	Listen string
	// Admin is host:port of Envoy's admin interface. Empty: a free port of
	// 127.0.0.1.
	Admin string
	// ExtProc is where the filter listens: unix:///path or host:port.
	ExtProc string
	// Loopback is where the loopback listener is, unix:///path or host:port
	// of an address that only this machine or pod can reach: the filter makes
	// model calls through it. Empty: there is none.
	Loopback string
	// PrefixHeader, SessionHeader and SelectionHeader are the filter's request
	// headers of the same names, by which an engine's replica is chosen. Only
	// the filter may set them. Empty: it sends none.
	PrefixHeader, SessionHeader, SelectionHeader string
	// Balance is how requests spread over an engine's replicas. Empty:
	// [BalancePrefix] if there is such a header, else [BalanceLeastRequest].
	Balance Balance
	// Engines are the clusters that serve Harmony models, at least one.
	Engines []Engine
	// Upstream is the URL that takes every other request. Empty: the first
	// engine that is no gRPC service takes them; where there is none, they
	// are answered 404.
	Upstream string
	// StreamIdleTimeout is how long a request may stand without a byte in
	// either direction. It must not be below the filter's own deadlines,
	// which give better errors. 0: one hour.
	StreamIdleTimeout time.Duration
	// RetryBufferBytes is the largest engine request that Envoy keeps for a
	// retry. 0: 8 MiB; a prompt of 131,072 ids is about 0.9 MB.
	RetryBufferBytes int64
	// CAFile is the bundle that https engines are checked against. Empty:
	// SSL_CERT_FILE or the system's own.
	CAFile string
	// AccessLog writes a line of JSON for each request to standard error. Nothing
	// that was said is in it.
	AccessLog bool
}

// Balance is a way to spread requests over the replicas of an engine.
type Balance string

// The ways. With the first two, requests with one key go to one replica, as long
// as it has not far more to do than the others: then to the next one in an order
// that the key gives.
const (
	BalancePrefix       Balance = "prefix"        // by Options.PrefixHeader
	BalanceSession      Balance = "session"       // by Options.SessionHeader
	BalanceLeastRequest Balance = "least-request" // to the one of two replicas, chosen at random, that has less to do
)

// Engine is one engine and the addresses of its replicas.
type Engine struct {
	Name string
	URLs []string // http or https, one scheme for all
	GRPC bool     // it is a gRPC service: Envoy speaks HTTP/2 with it
	// OneCall has Envoy make one call a connection, for a server that closes a
	// connection behind a reply without saying so. It is for HTTP/1.1 only.
	OneCall bool
	// HealthPath is the path by which Envoy asks each replica, and each of Prefill,
	// every 10 s whether it is well: one that answers other than 200, or cannot be
	// reached three times, gets no calls until it answers 200. It is not for gRPC.
	// Empty: nobody is asked.
	HealthPath string
	// Prefill are the addresses of processes that compute prompts for the
	// replicas: a cluster of its own, which the filter calls by the engine's name
	// with [PrefillSuffix] and reaches through the loopback listener. Empty: there are none.
	Prefill []string
	// PinPrefill has every such call name its endpoint, see [PrefillHeader]:
	// no other may take it. Else Envoy chooses as among the replicas.
	PinPrefill bool
	// EndpointPicker is the URL of an ext_proc service that reads each call and
	// names the replica that takes it, one of URLs by its IP address and port,
	// in the way of the Gateway API's inference extension. Where it names none
	// that is there, Options.Balance decides; where it cannot be reached, calls
	// are a 503. Empty: there is none.
	EndpointPicker string
}

// Replicas tells whether the engine may have several: a name can stand for many
// addresses.
func (e Engine) Replicas() bool {
	return slices.ContainsFunc(e.URLs, func(raw string) bool {
		u, err := url.Parse(raw)
		return len(e.URLs) > 1 || err == nil && net.ParseIP(u.Hostname()) == nil
	})
}

//go:embed bootstrap.yaml.tmpl
var bootstrapText string

var bootstrap = template.Must(template.New("bootstrap").
	Funcs(template.FuncMap{"quote": quote, "seconds": seconds}).
	Parse(bootstrapText))

// Bootstrap writes the Envoy bootstrap (v3, YAML) for o. The same options give
// the same bytes.
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

// page is what the template sees.
type page struct {
	Options
	EngineHeader      string
	PrefillHeader     string
	UpstreamHeader    string
	Pins              bool   // there are calls that name their endpoint
	Picker            string // cluster of an endpoint picker, "" if there is none
	MetadataNamespace string
	LoggedMetadata    []string
	HashHeader        string // by which replicas are chosen, "" if by none
	Listener          endpoint
	LoopbackAddress   *endpoint
	AdminAddress      endpoint
	Filter            cluster
	Clusters          []cluster // engines, then the upstream if it is one of its own
	Default           string    // cluster of requests that are not for an engine, "" if there is none
}

type cluster struct {
	Name       string
	HealthPath string
	Replicas   bool // it is an engine of which there may be several
	Pinned     bool // a call names the endpoint that takes it
	Picked     bool // an endpoint picker does
	Endpoints  []endpoint
	GRPC       bool
	OneCall    bool // a connection serves one call
	TLS        bool
	CAFile     string
}

type endpoint struct {
	Pipe string // path of a Unix socket, or:
	Host string
	Port int
}

func (o Options) page() (*page, error) {
	p := &page{Options: o, EngineHeader: EngineHeader, PrefillHeader: PrefillHeader, UpstreamHeader: UpstreamHeader, MetadataNamespace: MetadataNamespace, LoggedMetadata: loggedMetadata}
	if p.Admin == "" {
		p.Admin = "127.0.0.1:0"
	}
	if p.StreamIdleTimeout == 0 {
		p.StreamIdleTimeout = time.Hour
	}
	if p.RetryBufferBytes == 0 {
		p.RetryBufferBytes = 8 << 20
	}
	var errs []error
	parse := func(what, address string) endpoint {
		e, err := parseAddress(address)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
		return e
	}
	var err error
	if p.HashHeader, err = o.hashHeader(); err != nil {
		errs = append(errs, err)
	}
	p.Listener = parse("listen", o.Listen)
	p.AdminAddress = parse("admin", p.Admin)
	if o.Loopback != "" {
		e := parse("loopback", o.Loopback)
		p.LoopbackAddress = &e
	}
	p.Filter = cluster{Name: "envoy_harmony", Endpoints: []endpoint{parse("filter", o.ExtProc)}}
	if len(o.Engines) == 0 {
		errs = append(errs, errors.New("there is no engine"))
	}
	for _, e := range o.Engines {
		c, err := o.newCluster("engine_"+e.Name, e.URLs)
		if err != nil {
			errs = append(errs, fmt.Errorf("engine %s: %w", e.Name, err))
		}
		c.GRPC, c.OneCall, c.HealthPath, c.Replicas, c.Picked = e.GRPC, e.OneCall, e.HealthPath, e.Replicas(), e.EndpointPicker != ""
		p.Clusters = append(p.Clusters, c)
		if c.Picked {
			if c, err = o.newCluster("picker_"+e.Name, []string{e.EndpointPicker}); err != nil {
				errs = append(errs, fmt.Errorf("engine %s: endpoint picker: %w", e.Name, err))
			}
			c.GRPC, p.Picker = true, cmp.Or(p.Picker, c.Name)
			p.Clusters = append(p.Clusters, c)
		}
		if len(e.Prefill) == 0 {
			continue
		}
		if o.Loopback == "" {
			errs = append(errs, fmt.Errorf("engine %s: prefill endpoints are reached through the loopback listener: set loopback", e.Name))
		}
		side := Engine{Name: e.Name + PrefillSuffix, URLs: e.Prefill, GRPC: e.GRPC}
		if c, err = o.newCluster("engine_"+side.Name, side.URLs); err != nil {
			errs = append(errs, fmt.Errorf("engine %s: prefill: %w", e.Name, err))
		}
		c.GRPC, c.HealthPath, c.Replicas, c.Pinned = e.GRPC, e.HealthPath, side.Replicas(), e.PinPrefill
		p.Pins = p.Pins || c.Pinned
		p.Clusters, p.Engines = append(p.Clusters, c), append(slices.Clip(p.Engines), side)
	}
	if o.Upstream != "" {
		c, err := o.newCluster("upstream", []string{o.Upstream})
		if err != nil {
			errs = append(errs, fmt.Errorf("upstream: %w", err))
		}
		p.Clusters = append(p.Clusters, c)
		p.Default = c.Name
	} else if i := slices.IndexFunc(p.Clusters, func(c cluster) bool { return !c.GRPC }); i >= 0 {
		p.Default = p.Clusters[i].Name
	}
	return p, errors.Join(errs...)
}

// hashHeader is the header by which replicas are chosen, "" if by none.
func (o Options) hashHeader() (string, error) {
	header := ""
	switch o.Balance {
	case "":
		return o.PrefixHeader, nil
	case BalanceLeastRequest:
		return "", nil
	case BalancePrefix:
		header = o.PrefixHeader
	case BalanceSession:
		header = o.SessionHeader
	default:
		return "", fmt.Errorf("balance: must be %s, %s or %s, not %q", BalancePrefix, BalanceSession, BalanceLeastRequest, o.Balance)
	}
	if header == "" {
		return "", fmt.Errorf("balance: %s needs the header, which is empty: name it in routing.%[1]s_header", o.Balance)
	}
	return header, nil
}

func (o Options) newCluster(name string, urls []string) (cluster, error) {
	c := cluster{Name: name}
	if len(urls) == 0 {
		return c, errors.New("has no URL; write http://host:port")
	}
	for i, raw := range urls {
		u, err := url.Parse(raw)
		if err != nil {
			return c, fmt.Errorf("%q is not a URL; write http://host:port", raw)
		}
		e, err := endpointOf(u)
		if err != nil {
			return c, fmt.Errorf("%q: %w", raw, err)
		}
		tls := u.Scheme == "https"
		if i > 0 && tls != c.TLS {
			return c, errors.New("has http and https URLs; make two engines of them")
		}
		c.TLS = tls
		c.Endpoints = append(c.Endpoints, e)
	}
	if c.TLS {
		if c.CAFile = o.CAFile; c.CAFile == "" {
			c.CAFile = systemCAFile()
		}
		if c.CAFile == "" {
			return c, errors.New("https needs a CA bundle and none was found; set SSL_CERT_FILE")
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
		return endpoint{}, errors.New("the host is missing")
	}
	if text := u.Port(); text != "" {
		var err error
		if port, err = parsePort(text); err != nil {
			return endpoint{}, err
		}
	}
	return endpoint{Host: u.Hostname(), Port: port}, nil
}

// Name is what a call names the endpoint by.
func (e endpoint) Name() string { return net.JoinHostPort(e.Host, strconv.Itoa(e.Port)) }

// parseAddress reads unix:///path or host:port.
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
	if host == "" {
		host = "0.0.0.0"
	}
	port, err := parsePort(text)
	return endpoint{Host: host, Port: port}, err
}

func parsePort(text string) (int, error) {
	port, err := strconv.Atoi(text)
	if err != nil || port < 0 || port > math.MaxUint16 {
		return 0, fmt.Errorf("%q is no port", text)
	}
	return port, nil
}

// systemCAFile is the first of the places where systems keep their bundle.
func systemCAFile() string {
	places := []string{
		os.Getenv("SSL_CERT_FILE"),
		"/etc/ssl/certs/ca-certificates.crt", // Debian, Alpine
		"/etc/pki/tls/certs/ca-bundle.crt",   // Fedora
		"/etc/ssl/cert.pem",                  // macOS, BSD
		"/etc/ssl/ca-bundle.pem",             // openSUSE
	}
	i := slices.IndexFunc(places, func(path string) bool {
		info, err := os.Stat(path)
		return err == nil && info.Mode().IsRegular()
	})
	if i < 0 {
		return ""
	}
	return places[i]
}

// quote writes s as a YAML string that nothing in it can leave: JSON's form is
// one.
func quote(s string) (string, error) {
	b, err := json.Marshal(s)
	return string(b), err
}

// seconds writes a duration the way protobuf's JSON does.
func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s"
}
