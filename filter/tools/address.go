package tools

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// maxURLBytes bounds a server_url.
const maxURLBytes = 4 << 10

// Host is a host that requests may name, or all below a domain.
type Host struct {
	scheme string
	name   string // in lower case; with a leading dot: all below it
	port   string
}

// ParseHost reads an entry of tools.allowed_hosts: a host such as
// mcp.example.com, or *.example.com for every host below example.com, with a port
// if it is not the scheme's. Requests must use https, unless the entry begins with
// http://.
func ParseHost(entry string) (Host, error) {
	scheme, rest, ok := strings.Cut(entry, "://")
	if !ok {
		scheme, rest = "https", entry
	}
	if scheme != "http" && scheme != "https" {
		return Host{}, fmt.Errorf("%q: the scheme must be https or http", entry)
	}
	rest, below := strings.CutPrefix(rest, "*.")
	u, err := url.Parse(scheme + "://" + rest)
	if err != nil || u.Host != rest || rest == "" {
		return Host{}, fmt.Errorf("%q: write a host such as mcp.example.com, with :port if needed, or *.example.com", entry)
	}
	h, err := hostOf(u)
	if err != nil {
		return Host{}, fmt.Errorf("%q: %w", entry, err)
	}
	if below {
		if _, err := netip.ParseAddr(h.name); err == nil {
			return Host{}, fmt.Errorf("%q: nothing is below an address", entry)
		}
		h.name = "." + h.name
	}
	return h, nil
}

// hostOf reads scheme, host and port of a URL.
func hostOf(u *url.URL) (Host, error) {
	h := Host{scheme: u.Scheme, name: strings.ToLower(u.Hostname()), port: u.Port()}
	if h.port == "" {
		h.port = map[string]string{"http": "80", "https": "443"}[h.scheme]
	}
	port, err := strconv.ParseUint(h.port, 10, 16)
	if err != nil || port == 0 || strings.HasSuffix(u.Host, ":") {
		return h, errors.New("the port must be a number from 1 to 65535")
	}
	h.port = strconv.FormatUint(port, 10)
	if address, err := netip.ParseAddr(h.name); err == nil {
		if address.Zone() != "" {
			return h, errors.New("an address must not have a zone")
		}
		h.name = address.Unmap().String()
		return h, nil
	}
	for label := range strings.SplitSeq(h.name, ".") {
		if !isLabel(label) {
			return h, errors.New("the host is no host name: write letters, digits, - and dots, and names in other scripts as punycode")
		}
	}
	return h, nil
}

func isLabel(label string) bool {
	if label == "" || len(label) > 63 {
		return false
	}
	for _, c := range []byte(label) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// covers tells whether h is of's entry.
func (h Host) covers(of Host) bool {
	if h.scheme != of.scheme || h.port != of.port {
		return false
	}
	if strings.HasPrefix(h.name, ".") {
		return strings.HasSuffix(of.name, h.name) && len(of.name) > len(h.name)
	}
	return h.name == of.name
}

// Allow tells whether a request may name this server_url. Its error says what the
// client or the operator has to change, and does not repeat the URL.
func (c *Client) Allow(rawURL string) error {
	u, err := url.Parse(rawURL)
	if err != nil || u.Host == "" || u.Opaque != "" || len(rawURL) > maxURLBytes {
		return errors.New("the server_url is no URL: write it as https://host/path")
	}
	if u.Scheme != "https" && u.Scheme != "http" {
		return errors.New("the server_url must begin with https://")
	}
	if u.User != nil {
		return errors.New("the server_url must not have a user or a password: send them in authorization or headers")
	}
	if u.Fragment != "" {
		return errors.New("the server_url must not have a fragment")
	}
	h, err := hostOf(u)
	if err != nil {
		return fmt.Errorf("the server_url is not valid: %w", err)
	}
	other := false // the host is allowed with another scheme
	for _, allowed := range c.o.AllowedHosts {
		if allowed.covers(h) {
			return nil
		}
		allowed.scheme, allowed.port = h.scheme, h.port
		other = other || allowed.covers(h)
	}
	if other {
		return fmt.Errorf("MCP servers at %s may only be reached with the scheme and the port that tools.allowed_hosts has for them", h.name)
	}
	return fmt.Errorf("MCP servers at %s are not allowed: the operator can add the host to tools.allowed_hosts", h.name)
}

// origin is the scheme, host and port of a URL, in one spelling.
func origin(u *url.URL) string {
	h, _ := hostOf(u)
	return h.scheme + "://" + net.JoinHostPort(h.name, h.port)
}

// refused are networks that requests must not reach: not public, or a way round
// to such. What netip.Addr itself knows is not repeated here.
var refused = func() (list []netip.Prefix) {
	for _, prefix := range []string{
		"0.0.0.0/8",         // this network
		"100.64.0.0/10",     // carrier-grade NAT, and metadata of Alibaba Cloud
		"168.63.129.16/32",  // metadata of Azure
		"192.0.0.0/24",      // protocol assignments, and metadata of Oracle Cloud
		"192.0.2.0/24",      // documentation
		"192.31.196.0/24",   // AS112: whoever is near answers
		"192.88.99.0/24",    // 6to4 relays
		"192.175.48.0/24",   // AS112
		"198.18.0.0/15",     // benchmarks
		"198.51.100.0/24",   // documentation
		"203.0.113.0/24",    // documentation
		"240.0.0.0/4",       // reserved, broadcast
		"::/96",             // IPv4-compatible
		"::ffff:0:0:0/96",   // IPv4-translated
		"64:ff9b:1::/48",    // NAT64 of a site's own
		"100::/64",          // discard
		"2001::/23",         // protocol assignments: Teredo, ORCHID and others
		"2001:db8::/32",     // documentation
		"2002::/16",         // 6to4
		"2620:4f:8000::/48", // AS112
		"3fff::/20",         // documentation
		"5f00::/16",         // segment routing
		"fec0::/10",         // site-local
	} {
		list = append(list, netip.MustParsePrefix(prefix))
	}
	return list
}()

// nat64 holds the addresses that stand for IPv4 ones.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// public tells whether an address is one of the public internet.
func public(a netip.Addr) bool {
	if !a.IsGlobalUnicast() || a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() {
		return false
	}
	for _, p := range refused {
		if p.Contains(a) {
			return false
		}
	}
	return true
}

// reachable tells whether requests may reach an address. An address that only
// stands for another, IPv4-mapped or NAT64, is judged as that one.
func (c *Client) reachable(a netip.Addr) bool {
	a = a.WithZone("").Unmap()
	if nat64.Contains(a) {
		b := a.As16()
		return c.reachable(netip.AddrFrom4([4]byte(b[12:])))
	}
	for _, p := range c.o.AllowedNetworks {
		if p.Contains(a) {
			return true
		}
	}
	return public(a)
}

// addressError is the refusal to connect to an address.
type addressError struct{ address string }

func (e *addressError) Error() string {
	return fmt.Sprintf("the address %s is not public and not in tools.allowed_networks", e.address)
}

// control refuses connections. It sees the address that is really connected to,
// whatever the resolver said before.
func (c *Client) control(_ context.Context, network, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || !strings.HasPrefix(network, "tcp") || !c.reachable(at.Addr()) {
		return &addressError{address}
	}
	return nil
}

const (
	dialTimeout      = 10 * time.Second
	handshakeTimeout = 10 * time.Second
	connIdleTimeout  = 90 * time.Second
	maxHeaderBytes   = 64 << 10
)

// newTransport makes connections; proxies of the environment are not asked.
// guarded ones reach only what requests may reach.
func (c *Client) newTransport(guarded bool) *http.Transport {
	d := &net.Dialer{Timeout: dialTimeout, Resolver: c.o.Resolver}
	if guarded {
		d.ControlContext = c.control
	}
	t := &http.Transport{
		Proxy:                  nil,
		DialContext:            d.DialContext,
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    handshakeTimeout,
		IdleConnTimeout:        connIdleTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
	if c.o.TLS != nil {
		t.TLSClientConfig = c.o.TLS.Clone()
	}
	return t
}
