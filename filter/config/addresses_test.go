package config_test

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// addressKeys are files with an address each, whose port is %s, and the key that an error names.
var addressKeys = []struct{ file, key string }{
	{"listen: 127.0.0.1:%s", "listen"},
	{"listen: '[::1]:%s'", "listen"},
	{"admin: 127.0.0.1:%s", "admin"},
	{"websocket: {listen: '127.0.0.1:%s'}\nloopback: unix:///l", "websocket.listen"},
	{"loopback: 127.0.0.1:%s", "loopback"},
	{"loopback: https://envoy:%s", "loopback"},
	{"engines: [{kind: vllm, urls: ['http://a:%s']}]", "engines[0].urls[0]"},
	{"engines: [{kind: vllm, urls: ['http://a'], endpoint_picker: 'http://b:%s'}]", "engines[0].endpoint_picker"},
	{"engines: [{kind: vllm, prefill: [{url: 'https://a:%s'}]}]\nloopback: unix:///l", "engines[0].prefill[0].url"},
	{"tools: {servers: [{label: a, url: 'https://a:%s/mcp'}]}\nloopback: unix:///l", "tools.servers[0].url"},
	{"store_url: redis://a:%s", "store_url"},
	{"store_url: postgres://a:%s/b", "store_url"},
}

func TestPorts(t *testing.T) {
	for _, tt := range addressKeys {
		for port, valid := range map[string]bool{
			"1": true, "8000": true, "65535": true, "65536": false, "99999": false, "-1": false, "x": false,
		} {
			text := fmt.Sprintf(tt.file, port)
			c, err := config.Parse("f.yaml", []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			if len(c.Engines) == 0 {
				c.Engines = []config.Engine{{Kind: "vllm"}}
			}
			err = c.Validate()
			if (err == nil) != valid || err != nil && !strings.HasPrefix(err.Error(), tt.key+": ") {
				t.Errorf("%s: %v", text, err)
			}
		}
	}
}

// Two addresses are the same for CheckListeners if the kernel says so.
func TestCheckListeners(t *testing.T) {
	hosts := []string{"127.0.0.1", "127.0.0.2", "localhost", "0.0.0.0", "", "[::1]", "[::]", "[::ffff:127.0.0.1]"}
	for _, first := range hosts {
		for _, second := range hosts {
			a, b, busy := kernelSays(t, first, second)
			err := config.CheckListeners(config.Listener{Key: "a", Address: a}, config.Listener{Key: "b", Address: b})
			if (err != nil) != busy {
				t.Errorf("%s and %s: %v, and for the kernel they are one address: %v", a, b, err, busy)
			}
		}
	}
}

// kernelSays reports whether nothing can listen at the second host while something does at a port
// of the first one.
func kernelSays(t *testing.T, first, second string) (a, b string, busy bool) {
	t.Helper()
	// Another process may have that port at the second host. It does not have all of three.
	for range 3 {
		if a, b, busy = kernelSaysOnce(t, first, second); !busy {
			break
		}
	}
	return a, b, busy
}

func kernelSaysOnce(t *testing.T, first, second string) (a, b string, busy bool) {
	t.Helper()
	l, err := net.Listen("tcp", first+":0")
	if err != nil {
		t.Skipf("this machine has no address %s: %v", first, err)
	}
	defer l.Close()

	_, port, _ := net.SplitHostPort(l.Addr().String())
	a, b = first+":"+port, second+":"+port
	other, err := net.Listen("tcp", b)
	if err == nil {
		_ = other.Close()
	}
	return a, b, errors.Is(err, syscall.EADDRINUSE)
}

func TestCheckListenersElsewhere(t *testing.T) {
	for _, tt := range []struct {
		own, other string
		one        bool
	}{
		{"127.0.0.1:1", "127.0.0.1:1", true},
		{"0.0.0.0:1", "https://127.0.0.1:1", true},
		{"0.0.0.0:1", "10.0.0.5:1", false}, // maybe Envoy's machine
		{"10.0.0.5:1", "10.0.0.5:1", true},
		{"0.0.0.0:1", "https://envoy:1", false},
		{"127.0.0.1:0", "127.0.0.1:0", false},
		{"unix:///a/b", "unix:///a//b", true},
		{"unix:///a/b", "unix:///a/c", false},
		{"", "", false},
		{"here", "here", false}, // Validate says what is wrong
	} {
		own := config.Listener{Key: "listen", Address: tt.own}
		other := config.Listener{Key: "loopback", Address: tt.other, Elsewhere: true}
		for _, both := range [][]config.Listener{{own, other}, {other, own}} {
			if err := config.CheckListeners(both...); (err != nil) != tt.one {
				t.Errorf("%v: %v", both, err)
			}
		}
	}
}
