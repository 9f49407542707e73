package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Other users of the machine cannot connect to the filter's socket, whatever the
// process's umask is.
func TestSocketIsNotForOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "filter.sock")
	l, err := listenAt(t.Context(), "listen", "unix://"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode != 0o660 {
		t.Errorf("the socket has mode %o", mode)
	}
}

// The admin port answers questions and changes nothing: there are no other paths, such
// as a profiler, and no other methods.
func TestAdminPortOnlyReads(t *testing.T) {
	ready := newReadiness()
	ready.storeReached()
	a, err := listenAdmin(t.Context(), "127.0.0.1:0", prometheus.NewRegistry(), ready, nil)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- a.serve() }()
	defer func() {
		a.close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	ask := func(method, path string) int {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, method, "http://"+a.address()+path, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode
	}
	for _, path := range []string{"/", "/metrics", "/healthz", "/readyz"} {
		if status := ask(http.MethodGet, path); status != http.StatusOK {
			t.Errorf("GET %s: %d", path, status)
		}
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
			if status := ask(method, path); status != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: %d", method, path, status)
			}
		}
	}
	for _, path := range []string{"/debug/pprof/", "/debug/vars", "/config", "/config_dump", "/quitquitquit", "/v1/models", "/metrics/x"} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			if status := ask(method, path); status != http.StatusNotFound {
				t.Errorf("%s %s: %d", method, path, status)
			}
		}
	}
}
