package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
)

// The addresses at which the filter and its Envoy listen. All of them are read by parseAddress,
// so that none is accepted that its process cannot listen at.

// address is host and port, or the path of a socket.
type address struct {
	path string
	host string // an IP address in its one spelling, or a name
	port uint16 // 0: the kernel chooses one
}

// everywhere is the host of all addresses of a machine: Go listens at 0.0.0.0 as at ::, for both
// versions of IP.
const everywhere = "::"

// Listener is an address at which a process listens.
type Listener struct {
	Key     string // what sets it: a key, or a flag
	Address string // host:port, https://host:port or unix:///path; "": there is none
	// Elsewhere says that the process may be on another machine than the others.
	Elsewhere bool
}

// Listeners returns the addresses at which the filter listens, and that of Envoy's loopback
// listener.
func (c *Config) Listeners() []Listener {
	return []Listener{
		{Key: "listen", Address: c.Listen},
		{Key: "admin", Address: c.Admin},
		{Key: "websocket.listen", Address: c.WebSocket.Listen},
		{Key: "loopback", Address: c.Loopback, Elsewhere: true},
	}
}

// CheckListeners returns an error if two of several listeners have one address: the second
// process, or the second port, would not start. Addresses that are none are left out.
func CheckListeners(listeners ...Listener) error {
	var errs []error
	for i, l := range listeners {
		for _, before := range listeners[:i] {
			if l.meets(before) {
				errs = append(errs, fmt.Errorf("%s: %s is taken by %s (%s): set one of them to another port or path",
					l.Key, l.Address, before.Key, before.Address))
			}
		}
	}
	return errors.Join(errs...)
}

// meets reports whether two listeners cannot be at one time.
func (l Listener) meets(other Listener) bool {
	a, err := parseAddress(strings.TrimPrefix(l.Address, schemeTLS), 0)
	b, otherErr := parseAddress(strings.TrimPrefix(other.Address, schemeTLS), 0)
	if err != nil || otherErr != nil || a.path != b.path || a.port != b.port {
		return false
	}
	// Without a path the two may have ports that the kernel chooses, which are different ones.
	if a.path != "" || a.port == 0 {
		return a.path != ""
	}

	if l.Elsewhere && !a.isLocal() || other.Elsewhere && !b.isLocal() {
		return a.host == b.host
	}
	return a.host == b.host || a.host == everywhere || b.host == everywhere
}

// isLocal reports whether the host is this machine wherever it is said.
func (a address) isLocal() bool {
	ip, err := netip.ParseAddr(a.host)
	return err == nil && ip.IsLoopback()
}

// parseAddress parses unix:///path, or host:port with a port from least on. Its error says what to
// write.
func parseAddress(text string, least uint16) (address, error) {
	if path, ok := strings.CutPrefix(text, "unix://"); ok {
		// A relative path would depend on where the process is started, and Envoy is started elsewhere.
		if !strings.HasPrefix(path, "/") {
			return address{}, fmt.Errorf(
				"%q: write an absolute path, such as unix:///run/envoy-harmony/filter.sock", text)
		}
		return address{path: filepath.Clean(path)}, nil
	}

	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return address{}, fmt.Errorf("%q: write host:port or unix:///path", text)
	}
	number, ok := parsePort(port, least)
	if !ok {
		return address{}, fmt.Errorf("%q: the port must be a number from %d to 65535", text, least)
	}

	host = strings.ToLower(host)
	switch ip, err := netip.ParseAddr(host); {
	case host == "" || ip.IsUnspecified():
		host = everywhere
	case host == "localhost":
		host = "127.0.0.1"
	case err == nil:
		host = ip.Unmap().String()
	}
	return address{host: host, port: number}, nil
}

// parsePort parses the number of a port, from least on.
func parsePort(text string, least uint16) (port uint16, ok bool) {
	n, err := strconv.ParseUint(text, 10, 16)
	return uint16(n), err == nil && n >= uint64(least)
}

// fitsPort reports whether a URL has a port that can be connected to, or none.
func fitsPort(u *url.URL) bool {
	_, ok := parsePort(u.Port(), 1)
	return ok || u.Port() == ""
}

func (c *Config) checkAddresses() (errs faults) {
	errs = append(errs, checkAddress("listen", c.Listen)...)
	if c.Loopback != "" {
		errs = append(errs, checkLoopback(c.Loopback)...)
	}
	if c.WebSocket.Listen != "" {
		errs = append(errs, checkAddress("websocket.listen", c.WebSocket.Listen)...)
	}

	// Without an address each command has a default of its own.
	switch {
	case c.Admin == "":
	case strings.HasPrefix(c.Admin, "unix://"):
		errs.add("admin: %q: write host:port, such as 127.0.0.1:9003", c.Admin)
	default:
		errs = append(errs, checkAddress("admin", c.Admin)...)
	}
	return errs
}

// checkAddress wants host:port or unix:///path. Port 0 is one that the kernel chooses.
func checkAddress(key, text string) faults {
	if _, err := parseAddress(text, 0); err != nil {
		return fault("%s: %w", key, err)
	}
	return nil
}

// checkLoopback rejects an address that other hosts can reach: the listener leads to
// the engines without authentication.
func checkLoopback(loopback string) faults {
	text, secured := strings.CutPrefix(loopback, schemeTLS)
	a, err := parseAddress(text, 1)
	// Envoy listens there: an address that stands for all of a host's would open the engines to
	// everybody.
	switch {
	case a.path != "" && !secured:
		return nil
	case strings.HasPrefix(text, "unix://") && !secured:
		return fault("loopback: %w", err)
	case err != nil || a.path != "" || a.host == everywhere:
		return fault(
			"loopback: %q: write one address and a port from 1 to 65535, such as 127.0.0.1:10001 or "+
				"https://envoy.example.com:10001, or unix:///path: the listener must not be open to everybody",
			loopback)
	}
	return nil
}
