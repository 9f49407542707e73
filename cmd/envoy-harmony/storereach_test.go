package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
)

// A process whose store cannot be reached says so once and runs. Kubernetes, which asks at the admin
// port, gets no ready pod until the store has answered; Envoy gets a filter.
func TestServeWithoutItsStore(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	store := free.Addr().String()
	_ = free.Close()

	r := start(t, "serve", "--engine", "vllm", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--set", "store_url=redis://"+store)
	const unreached = "the store (redis) cannot be reached"
	r.await(t, &r.stderr, unreached)
	admin, filter := r.field(t, "serving", "admin"), r.field(t, "serving", "listen")
	if text := r.stderr.String(); !strings.Contains(text, "Check store_url") || !strings.Contains(text, "dial tcp "+store) {
		t.Errorf("the log does not say what to change:\n%s", text)
	}
	pod, envoy := dialHealth(t, admin), dialHealth(t, filter)
	for _, tt := range []struct {
		at      healthClient
		service string
		want    healthv1.HealthCheckResponse_ServingStatus
	}{
		{pod, "readiness", healthv1.HealthCheckResponse_NOT_SERVING},
		{pod, livenessService, healthv1.HealthCheckResponse_SERVING},
		{envoy, "readiness", healthv1.HealthCheckResponse_SERVING},
	} {
		if got := tt.at.status(t, tt.service); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.service, got, tt.want)
		}
	}
	if status, text := get(t, http.MethodGet, "http://"+admin+"/readyz", ""); status != 503 || !strings.Contains(text, "the store has not answered yet") {
		t.Errorf("/readyz: %d %s", status, text)
	}
	if _, text := get(t, http.MethodGet, "http://"+admin+"/metrics", ""); !strings.Contains(text, `harmony_store_errors_total{operation="put_texts"}`) {
		t.Error("no metric shows that the store fails")
	}

	serveRedis(t, store)
	r.await(t, &r.stderr, "the store (redis) answers: this process is ready")
	if got := pod.status(t, "readiness"); got != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("readiness after the store has answered: %v", got)
	}
	if status, text := get(t, http.MethodGet, "http://"+admin+"/readyz", ""); status != 200 {
		t.Errorf("/readyz after the store has answered: %d %s", status, text)
	}
	r.cancel()
	if exit := r.end(t); exit != 0 {
		t.Errorf("exit status %d", exit)
	}
	if n := strings.Count(r.stderr.String(), unreached); n != 1 {
		t.Errorf("%d lines say that the store cannot be reached", n)
	}
}

// serveRedis answers every command of Redis at an address, as far as writing a text needs it.
func serveRedis(t *testing.T, address string) {
	t.Helper()
	l, err := net.Listen("tcp", address)
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
			go answerRedis(conn)
		}
	}()
}

// answerRedis reads commands, such as *1\r\n$4\r\nPING\r\n, and accepts all but HELLO, which old
// servers do not know.
func answerRedis(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		n, err := redisLength(in)
		if err != nil {
			return
		}
		reply := "+OK\r\n"
		for i := range n {
			size, err := redisLength(in)
			if err != nil {
				return
			}
			word := make([]byte, size+2)
			if _, err := io.ReadFull(in, word); err != nil {
				return
			}
			if i == 0 && strings.EqualFold(strings.TrimSpace(string(word)), "hello") {
				reply = "-ERR unknown command\r\n"
			}
		}
		if _, err := io.WriteString(conn, reply); err != nil {
			return
		}
	}
}

// redisLength reads a line such as *3 or $5.
func redisLength(in *bufio.Reader) (int, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}
