package gateways

import (
	"net/http"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// The filter's log names the engine that failed and has Envoy's reason why it could
// not be reached.
func TestLogOfAFailedEngine(t *testing.T) {
	t.Setenv("SSL_CERT_FILE", "../envoy/testdata/ca.pem")
	d := stack.Start(t, stack.Options{Config: func(c *config.Config) {
		c.Engines = append(c.Engines,
			config.Engine{Name: "gone", Kind: "vllm", URLs: []string{"http://127.0.0.1:1"}},
			config.Engine{Name: "plain", Kind: "vllm", URLs: []string{strings.Replace(c.Engines[0].URLs[0], "http:", "https:", 1)}},
			config.Engine{Name: "gone-grpc", Kind: "vllm-grpc", URLs: []string{"http://127.0.0.1:1"}},
		)
		for _, name := range []string{"gone", "plain", "gone-grpc"} {
			c.Models = append(c.Models, config.Model{Match: "=gpt-oss-" + name, Engine: name})
		}
	}})

	for name, cause := range map[string]string{"gone": "Connection_refused", "plain": "WRONG_VERSION_NUMBER", "gone-grpc": "Connection_refused"} {
		resp := d.Do(t, http.MethodPost, "/v1/chat/completions", "application/json", strings.NewReader(`{"model":"gpt-oss-`+name+`","messages":[{"role":"user","content":"hi"}]}`))
		resp.Body.Close()
		if resp.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("%s: status %d", name, resp.StatusCode)
		}

		if line := d.RequestLine(t, " engine="+name+" "); !strings.Contains(line, "level=warning") || !strings.Contains(line, cause) {
			t.Errorf("%s: no %s in %s", name, cause, line)
		}
	}
}
