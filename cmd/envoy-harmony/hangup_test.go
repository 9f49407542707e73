package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func hangUp(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
}

// Without a configuration file, SIGHUP drains run and serve, and nothing stays behind.
func TestHangupDrains(t *testing.T) {
	needSimulator(t) // which is built in the folder of temporary files too
	for _, args := range []string{
		"run --simulate --listen 127.0.0.1:0 --envoy-workers 1",
		"serve --engine vllm --listen 127.0.0.1:0 --admin 127.0.0.1:0 --set drain_delay=1ms",
	} {
		command, _, _ := strings.Cut(args, " ")
		t.Run(command, func(t *testing.T) {
			folder := t.TempDir()
			t.Setenv("TMPDIR", folder)
			r := start(t, strings.Fields(args)...)
			if command == "run" {
				r.await(t, &r.stdout, "ready ")
			} else {
				r.await(t, &r.stderr, `"msg":"serving"`)
			}

			hangUp(t)
			// The shell sends one more than the kernel when a terminal is closed.
			hangUp(t)
			if exit := r.end(t); exit != 0 {
				t.Errorf("exit status %d", exit)
			}
			r.await(t, &r.stderr, `"msg":"draining"`)
			if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
				t.Errorf("%v and %v stay in the folder of temporary files", left, err)
			}
		})
	}
}

// With a file, SIGHUP has run read it, as serve does.
func TestHangupReloadsRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("reload_interval: 0s\n")
	r := start(t, "run", "--simulate", "--listen", "127.0.0.1:0", "--envoy-workers", "1", "--config", file)
	base := strings.TrimPrefix(r.await(t, &r.stdout, "ready "), "ready ")
	metrics := "http://" + r.field(t, "started", "admin") + "/metrics"

	write("reload_interval: 0s\ndate: none\n")
	hangUp(t)
	awaitMetric(t, metrics, reloadsOK, "1")
	if status, text := get(t, http.MethodPost, base+"/responses", `{"model":"gpt-oss-20b","input":"SAY Hi"}`); status != http.StatusOK {
		t.Errorf("status %d, body %s", status, text)
	}
	r.cancel()
	if exit := r.end(t); exit != 0 {
		t.Errorf("exit status %d", exit)
	}
}
