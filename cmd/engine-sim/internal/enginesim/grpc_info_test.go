package enginesim

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// TestGRPCCalls checks the calls with which a gateway finds out what an engine is.
func TestGRPCCalls(t *testing.T) {
	server := httptest.NewUnstartedServer(New(Options{Now: fixedTime}))
	server.Config.Protocols = &http.Protocols{}
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	transport := &http.Transport{Protocols: server.Config.Protocols}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
	})
	url, client := server.URL, &http.Client{Transport: transport}
	call := func(path string) (message, status string) {
		resp, err := client.Post(url+path, "application/grpc", strings.NewReader("\x00\x00\x00\x00\x00"))
		if err != nil {
			t.Fatal(err)
		}
		message = readAll(t, resp)
		status = resp.Header.Get("Grpc-Status") + resp.Trailer.Get("Grpc-Status")
		return message, status
	}
	for _, c := range []struct {
		path, message, status string
	}{
		{"/vllm.grpc.engine.VllmEngine/HealthCheck", "\x00\x00\x00\x00\x0a\x08\x01\x12\x06Health", "0"},
		{"/sglang.grpc.scheduler.SglangScheduler/HealthCheck", "\x00\x00\x00\x00\x17\x08\x01\x12\x13Health check passed", "0"},
		{"/trtllm.TrtllmService/HealthCheck", "\x00\x00\x00\x00\x04\x0a\x02OK", "0"},
		{"/sglang.grpc.scheduler.SglangScheduler/GetServerInfo", "\x00\x00\x00\x00\x00", "0"},
		{"/sglang.grpc.scheduler.SglangScheduler/GetLoads", "", "12"},
		{"/another.Service/HealthCheck", "", "12"},
	} {
		if message, status := call(c.path); message != c.message || status != c.status {
			t.Errorf("%s: %q, status %s", c.path, message, status)
		}
	}
	for path, kind := range map[string]protowire.Number{"/vllm.grpc.engine.VllmEngine/": 8, "/sglang.grpc.scheduler.SglangScheduler/": 10} {
		message, status := call(path + "GetModelInfo")
		want := string(protowire.AppendString(protowire.AppendTag(nil, kind, protowire.BytesType), "gpt_oss"))
		if status != "0" || !strings.Contains(message, want) {
			t.Errorf("%s: %q, status %s", path, message, status)
		}
	}
}

// TestRate checks that tokens keep to a schedule: none is early, and those that are
// overdue do not wait.
func TestRate(t *testing.T) {
	url := serve(t, New(Options{}))
	ask := func(rate string, start time.Time) (took time.Duration) {
		user := fmt.Sprintf("SIM rate=%s start=%d\nNOTHINK\nSAY a b c", rate, start.UnixMicro())
		begun := time.Now()
		resp, leave := open(t, url, "vllm", user)
		defer leave()
		if text := readAll(t, resp); !strings.Contains(text, "[DONE]") {
			t.Errorf("no end: %s", text)
		}
		return time.Since(begun)
	}
	// Seven tokens: three of the header, three words, and the stop token.
	if took := ask("100", time.Now().Add(50*time.Millisecond)); took < 109*time.Millisecond {
		t.Errorf("the last token came after %v", took)
	}
	ask("0.001", time.Now().Add(-24*time.Hour)) // would take an hour and a half
}
