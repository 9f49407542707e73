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

// maxURLBytes bounds the length of a server_url.
const maxURLBytes = 4 << 10

// Host is an entry of tools.allowed_hosts: one host, or all subdomains of a domain,
// with a scheme and a port.
type Host struct {
	scheme string
	// Lower case; a leading dot stands for all subdomains.
	name string
	port string
}

// ParseHost parses an entry of tools.allowed_hosts: a host such as mcp.example.com,
// or *.example.com for all subdomains of example.com. A port is needed only if it
// is not the scheme's default. Requests must use https unless the entry begins with
// http://. The error quotes the entry and states the expected form.
func ParseHost(entry string) (Host, error) {
	scheme, rest, ok := strings.Cut(entry, "://")
	if !ok {
		scheme, rest = "https", entry
	}

	if scheme != "http" && scheme != "https" {
		return Host{}, fmt.Errorf("%q: the scheme must be https or http", entry)
	}

	// Of what is parsed as a URL nothing may be left but the host: a path or a user would be ignored
	// in silence.
	rest, below := strings.CutPrefix(rest, "*.")
	u, err := url.Parse(scheme + "://" + rest)
	if err != nil || u.Host != rest || rest == "" {
		return Host{}, fmt.Errorf(
			"%q: write a host such as mcp.example.com, with :port if it is not the default, or *.example.com", entry)
	}

	host, err := hostOf(u)
	if err != nil {
		return Host{}, fmt.Errorf("%q: %w", entry, err)
	}

	// An address that ends like another one is not below it.
	if below {
		if _, err := netip.ParseAddr(host.name); err == nil {
			return Host{}, fmt.Errorf("%q: an IP address has no subdomains: leave out the wildcard", entry)
		}
		host.name = "." + host.name
	}
	return host, nil
}

// hostOf returns the scheme, host and port of a URL.
func hostOf(u *url.URL) (Host, error) {
	host := Host{scheme: u.Scheme, name: strings.ToLower(u.Hostname()), port: u.Port()}
	if host.port == "" {
		host.port = map[string]string{"http": "80", "https": "443"}[host.scheme]
	}

	port, err := strconv.ParseUint(host.port, 10, 16)
	if err != nil || port == 0 || strings.HasSuffix(u.Host, ":") {
		return host, errors.New("the port must be a number from 1 to 65535")
	}
	// One spelling: 0443 is 443, and entries are compared as texts.
	host.port = strconv.FormatUint(port, 10)

	if address, err := netip.ParseAddr(host.name); err == nil {
		if address.Zone() != "" {
			return host, errors.New("an IPv6 address must not have a zone")
		}
		// IPv4 in IPv6 is the same host.
		host.name = address.Unmap().String()
		return host, nil
	}

	for label := range strings.SplitSeq(host.name, ".") {
		if !isLabel(label) {
			return host, errors.New(
				"the host is not a valid host name: use letters, digits, - and dots, and punycode for other scripts")
		}
	}
	return host, nil
}

// isLabel reports whether label is a label of a host name, in lower case.
// Underscores are accepted because internal names have them.
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

// matches reports whether the entry h allows the requested scheme, host and port.
func (h Host) matches(requested Host) bool {
	if h.scheme != requested.scheme || h.port != requested.port {
		return false
	}
	// The leading dot is compared too, so that notexample.com is not below example.com.
	if strings.HasPrefix(h.name, ".") {
		return strings.HasSuffix(requested.name, h.name) && len(requested.name) > len(h.name)
	}
	return h.name == requested.name
}

// Allow returns nil if a request may use this server_url. The error states what the
// client or the operator has to change, and does not contain the URL.
func (c *Client) Allow(rawURL string) error {
	parsed, err := url.Parse(rawURL)
	if err != nil || parsed.Host == "" || parsed.Opaque != "" || len(rawURL) > maxURLBytes {
		return errors.New("the server_url is not a valid URL: write it as https://host/path")
	}

	if parsed.Scheme != "https" && parsed.Scheme != "http" {
		return errors.New("the server_url must begin with https://")
	}

	if parsed.User != nil {
		return errors.New("the server_url must not contain a user or a password: send them in authorization or headers")
	}
	if parsed.Fragment != "" {
		return errors.New("the server_url must not contain a fragment")
	}

	host, err := hostOf(parsed)
	if err != nil {
		return fmt.Errorf("the server_url is not valid: %w", err)
	}

	// The host is allowed, but with another scheme or port: the operator may have meant this one.
	otherOrigin := false
	for _, allowed := range c.o.AllowedHosts {
		if allowed.matches(host) {
			return nil
		}
		allowed.scheme, allowed.port = host.scheme, host.port
		otherOrigin = otherOrigin || allowed.matches(host)
	}
	if otherOrigin {
		return fmt.Errorf(
			"MCP servers at %s may only be used with the scheme and the port of their entry in tools.allowed_hosts",
			host.name)
	}
	return fmt.Errorf("MCP servers at %s are not allowed: the operator can add the host to tools.allowed_hosts",
		host.name)
}

// origin returns the scheme, host and port of a URL in canonical form.
func origin(u *url.URL) string {
	h, _ := hostOf(u)
	return h.scheme + "://" + net.JoinHostPort(h.name, h.port)
}

// blockedNetworks are networks that requests must not reach: they are not public,
// or they lead to addresses that are not public. Ranges that netip.Addr itself
// classifies are left out.
var blockedNetworks = func() (list []netip.Prefix) {
	for _, prefix := range []string{
		"0.0.0.0/8",         // this network
		"100.64.0.0/10",     // carrier-grade NAT; Alibaba Cloud metadata
		"168.63.129.16/32",  // Azure metadata
		"192.0.0.0/24",      // protocol assignments; Oracle Cloud metadata
		"192.0.2.0/24",      // documentation
		"192.31.196.0/24",   // AS112 (anycast)
		"192.88.99.0/24",    // 6to4 relays
		"192.175.48.0/24",   // AS112 (anycast)
		"198.18.0.0/15",     // benchmarks
		"198.51.100.0/24",   // documentation
		"203.0.113.0/24",    // documentation
		"240.0.0.0/4",       // reserved, broadcast
		"::/96",             // IPv4-compatible
		"::ffff:0:0:0/96",   // IPv4-translated
		"64:ff9b:1::/48",    // local-use NAT64
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

// nat64 is the prefix of addresses that embed an IPv4 address (RFC 6052).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// public reports whether an address is publicly routable.
func public(a netip.Addr) bool {
	if !a.IsGlobalUnicast() || a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() {
		return false
	}
	for _, p := range blockedNetworks {
		if p.Contains(a) {
			return false
		}
	}
	return true
}

// mayReach reports whether requests may connect to an address. IPv4-mapped and
// NAT64 addresses are checked as the IPv4 address that they embed.
func (p *pool) mayReach(address netip.Addr) bool {
	address = address.WithZone("").Unmap()

	if nat64.Contains(address) {
		b := address.As16()
		return p.mayReach(netip.AddrFrom4([4]byte(b[12:])))
	}

	for _, network := range *p.reachable.Load() {
		if network.Contains(address) {
			return true
		}
	}
	return public(address)
}

// addressError is the error of a connection to an address that is not allowed.
type addressError struct{ address string }

func (e *addressError) Error() string {
	return fmt.Sprintf("the address %s is neither public nor in tools.allowed_networks", e.address)
}

// control rejects connections to addresses that requests must not reach. It runs
// after name resolution, so it checks the address that is actually dialed.
func (p *pool) control(_ context.Context, network, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || !strings.HasPrefix(network, "tcp") || !p.mayReach(at.Addr()) {
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

// newTransport returns a transport that ignores the proxies of the environment. If
// limited is set, it connects only to addresses that requests may reach.
func (c *Client) newTransport(limited bool) *http.Transport {
	dialer := &net.Dialer{Timeout: dialTimeout, Resolver: c.o.Resolver}
	if limited {
		dialer.ControlContext = c.control
	}

	transport := &http.Transport{
		Proxy:                  nil,
		DialContext:            dialer.DialContext,
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    handshakeTimeout,
		IdleConnTimeout:        connIdleTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
	if c.o.TLS != nil {
		transport.TLSClientConfig = c.o.TLS.Clone()
	}
	return transport
}
