package main

import (
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sirupsen/logrus/hooks/test"

	"github.com/envoy-harmony/envoy-harmony/envoy"
)

// A second run at a port that is taken ends with what to do, and is never ready: Envoys of
// one user could share the port.
func TestRunOwnsItsPort(t *testing.T) {
	first := start(t, "run", "--simulate", "--listen", "127.0.0.1:0", "--envoy-workers", "2")
	base := strings.TrimPrefix(first.await(t, &first.stdout, "ready "), "ready ")
	address := strings.TrimSuffix(strings.TrimPrefix(base, "http://"), "/v1")
	admin := first.field(t, "started", "envoy_admin")

	for _, tt := range []struct{ flags, address, want string }{
		{"--listen " + address, address, "choose another address with --listen"},
		{"--listen 127.0.0.1:0 --envoy-admin " + admin, admin, "choose another address with --envoy-admin"},
		{"--listen 127.0.0.1:0 --set loopback=" + address, address, "choose another address with loopback"},
	} {
		stderr := refused(t, strings.Fields("run --simulate --envoy-workers 2 "+tt.flags)...)
		if !strings.Contains(stderr, tt.address) || !strings.Contains(stderr, tt.want) {
			t.Errorf("%s: the error does not say %q:\n%s", tt.flags, tt.want, stderr)
		}
	}
	first.cancel()
	if exit := first.end(t); exit != 0 {
		t.Errorf("exit status %d", exit)
	}
}

// The other process may have taken the port before, as Envoys do whose configuration says
// nothing about it: they let others in.
func TestRunAtASharedPort(t *testing.T) {
	bootstrap, err := envoy.Bootstrap(envoy.Options{
		Listen: "127.0.0.1:0", ExtProc: "unix:///nowhere",
		Engines: []envoy.Engine{{Name: "e", URLs: []string{"http://127.0.0.1:1"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	binary, err := envoy.Find(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	other, err := envoy.Launch(t.Context(), envoy.LaunchOptions{Binary: binary, Bootstrap: bootstrap, Concurrency: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Stop(t.Context()) })
	address, err := other.ListenAddress(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	stderr := refused(t, "run", "--simulate", "--listen", address, "--envoy-workers", "2")
	if !strings.Contains(stderr, "'"+address+"': Address already in use: stop that process") {
		t.Errorf("standard error:\n%s", stderr)
	}
}

// An answer of another process is none.
func TestProbeOfAnotherProcess(t *testing.T) {
	for reply, want := range map[string]string{
		"this":  "",
		"other": "another process answers at 127.0.0.1:",
		"":      "stop it, or choose another address with --listen",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if got := r.Header.Get(envoy.InstanceHeader); got != "this" {
				t.Errorf("the probe asks for the instance %q", got)
			}
			w.Header().Set(envoy.InstanceHeader, reply)
		}))
		silent, _ := test.NewNullLogger()
		p := probe{address: strings.TrimPrefix(server.URL, "http://"), instance: "this", log: silent.WithField("a", 1)}
		err := p.wait(t.Context(), nil, func() error { return errors.New("Envoy has not ended") })
		server.Close()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("instance %q: error %v, want %q", reply, err, want)
		}
	}
}

// While the engine does not answer, the log says which address and why.
func TestProbeReason(t *testing.T) {
	answer := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
	}
	serve := func(s *httptest.Server) string {
		t.Cleanup(s.Close)
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		return s.URL
	}
	silent, closing := listener(t, func(net.Conn) {}), listener(t, func(c net.Conn) { _ = c.Close() })
	untrusted := serve(httptest.NewTLSServer(answer(200)))
	plain := serve(httptest.NewServer(answer(200)))

	for address, want := range map[string]string{
		"http://127.0.0.1:1":                       "connection refused: is the engine started",
		"http://nowhere.invalid":                   "its name cannot be resolved: ",
		strings.Replace(plain, "http", "https", 1): "it speaks HTTP without TLS: write http://",
		untrusted:           "its certificate is refused (SSL_CERT_FILE names the CAs)",
		"http://" + silent:  "no answer within 2s",
		"http://" + closing: "it closed the connection without an answer: is it https://?",
		serve(httptest.NewServer(answer(503))) + "/v1/": "it answers with status 503 Service Unavailable",
		plain: "it answers this program with status 200, but not Envoy",
	} {
		p := probe{urls: []string{address, "http://127.0.0.1:1"}}
		got := p.reason(t.Context())
		if !strings.HasPrefix(got, address+": "+want) || !strings.Contains(got, "; http://127.0.0.1:1: connection refused") {
			t.Errorf("%s: reason %q, want %q", address, got, want)
		}
	}
}

func TestConnectionReasonOfClosed(t *testing.T) {
	for name, err := range map[string]error{
		"before the request": errors.New("http: server closed idle connection"),
		"within the request": &net.OpError{Op: "write", Err: os.NewSyscallError("write", syscall.EPIPE)},
		"after the request":  &net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)},
		"without a reset":    io.EOF,
	} {
		got := connectionReason(&url.Error{Op: "Get", URL: "http://engine", Err: err})
		if want := "it closed the connection without an answer: is it https://?"; got != want {
			t.Errorf("%s: reason %q, want %q", name, got, want)
		}
	}
}

// listener calls accepted with each connection to an address, which it returns.
func listener(t *testing.T, accepted func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
			accepted(conn)
		}
	}()
	return l.Addr().String()
}

// refused starts a command that ends with an error before it is ready, and returns its
// standard error.
func refused(t *testing.T, args ...string) string {
	t.Helper()
	r := start(t, args...)
	for {
		select {
		case exit := <-r.exit:
			if exit != 1 || r.stdout.String() != "" {
				t.Errorf("%q: exit status %d, standard output %q", args, exit, r.stdout.String())
			}
			return r.stderr.String()
		case <-time.After(10 * time.Millisecond):
		}

		if out := r.stdout.String(); out != "" {
			r.cancel()
			t.Fatalf("%q: exit status %d after %s", args, r.end(t), out)
		}
	}
}
