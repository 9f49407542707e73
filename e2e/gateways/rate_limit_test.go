package gateways

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/tidwall/gjson"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"sigs.k8s.io/yaml"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/envoy"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// rateLimits are limits in the format of the reference rate limit service.
type rateLimits struct {
	Domain      string `json:"domain"`
	Descriptors []struct {
		Key       string `json:"key"`
		Value     string `json:"value"`
		RateLimit struct {
			Unit            string `json:"unit"`
			RequestsPerUnit uint32 `json:"requests_per_unit"`
		} `json:"rate_limit"`
	} `json:"descriptors"`
}

// exampleLimits are those of the example, with small numbers: 300 tokens for each
// tenant, 3000 for acme.
func exampleLimits(t *testing.T) (text string, limits rateLimits) {
	t.Helper()
	b, err := os.ReadFile("../envoy/examples/ratelimit-service.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text = strings.NewReplacer("requests_per_unit: 100000}", "requests_per_unit: 300}", "requests_per_unit: 1000000}", "requests_per_unit: 3000}").Replace(string(b))
	if err := yaml.UnmarshalStrict([]byte(text), &limits); err != nil {
		t.Fatal(err)
	}
	return text, limits
}

// rateLimiter is a rate limit service in place of the reference one: its minute does
// not end.
type rateLimiter struct {
	limits rateLimits
	mu     sync.Mutex
	hits   map[string]uint64 // by the descriptor's value
}

func startRateLimiter(t *testing.T, limits rateLimits) (l *rateLimiter, address string) {
	t.Helper()
	l = &rateLimiter{limits: limits, hits: map[string]uint64{}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stack.ServeGRPC(t, listener, func(s *grpc.Server) { ratelimitv3.RegisterRateLimitServiceServer(s, l) })
	return l, listener.Addr().String()
}

// limit is the limit of a descriptor's value.
func (l *rateLimiter) limit(key, value string) (limit uint32, ok bool) {
	for _, d := range l.limits.Descriptors {
		if d.Key == key && d.Value == value {
			return d.RateLimit.RequestsPerUnit, true
		}
		if d.Key == key && d.Value == "" {
			limit, ok = d.RateLimit.RequestsPerUnit, true
		}
	}
	return limit, ok
}

// ShouldRateLimit implements Envoy's RateLimitService.
func (l *rateLimiter) ShouldRateLimit(_ context.Context, r *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if r.GetDomain() != l.limits.Domain {
		return nil, fmt.Errorf("domain %q", r.GetDomain())
	}

	out := &ratelimitv3.RateLimitResponse{OverallCode: ratelimitv3.RateLimitResponse_OK}
	for _, d := range r.GetDescriptors() {
		key, value := d.GetEntries()[0].GetKey(), d.GetEntries()[0].GetValue()
		limit, ok := l.limit(key, value)
		if !ok {
			continue
		}

		hits := max(uint64(r.GetHitsAddend()), 1)
		if d.GetHitsAddend() != nil {
			hits = d.GetHitsAddend().GetValue()
		}
		l.hits[value] += hits

		status := &ratelimitv3.RateLimitResponse_DescriptorStatus{
			Code:               ratelimitv3.RateLimitResponse_OK,
			CurrentLimit:       &ratelimitv3.RateLimitResponse_RateLimit{RequestsPerUnit: limit, Unit: ratelimitv3.RateLimitResponse_RateLimit_MINUTE},
			LimitRemaining:     uint32(max(int64(limit)-int64(l.hits[value]), 0)), //nolint:gosec // small
			DurationUntilReset: durationpb.New(17 * time.Second),
		}

		if l.hits[value] > uint64(limit) {
			status.Code, out.OverallCode = ratelimitv3.RateLimitResponse_OVER_LIMIT, ratelimitv3.RateLimitResponse_OVER_LIMIT
		}
		out.Statuses = append(out.Statuses, status)
	}
	return out, nil
}

// used is how many tokens of a tenant have been counted.
func (l *rateLimiter) used(tenant string) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hits[tenant]
}

// await waits until tokens of a tenant have been counted: that happens after the end
// of a reply.
func (l *rateLimiter) await(t *testing.T, tenant string, tokens uint64) {
	t.Helper()
	for deadline := time.Now().Add(stack.Patience); l.used(tenant) != tokens; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d tokens of %s are counted, want %d", l.used(tenant), tenant, tokens)
		}
	}
}

// tenantHeader names the tenant in these tests.
const tenantHeader = "x-tenant"

func withTenants(c *config.Config) { c.TenantHeader = tenantHeader }

// askAs sends a chat request of a tenant, and returns the tokens that it used.
func askAs(t *testing.T, d *stack.Dataplane, tenant, content, more string) (status int, tokens uint64, resp *http.Response, reply string) {
	t.Helper()
	resp, reply = d.Chat(t, stack.SGLangModel, content, more, tenantHeader, tenant)
	return resp.StatusCode, stack.LastUsage(reply).Get("total_tokens").Uint(), resp, reply
}

// wantTooManyTokens checks an answer to a tenant that is over its limit.
func wantTooManyTokens(t *testing.T, resp *http.Response, reply string) {
	t.Helper()
	e := gjson.Get(reply, "error")
	if resp.StatusCode != http.StatusTooManyRequests || e.Get("type").Str != "tokens" || e.Get("code").Str != "rate_limit_exceeded" ||
		!strings.Contains(e.Get("message").Str, "tokens per minute") || !e.Get("param").Exists() || resp.Header.Get("Content-Type") != "application/json" {
		t.Errorf("status %d, %v: %s", resp.StatusCode, resp.Header, reply)
	}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err != nil || seconds < 0 || seconds > 60 {
		t.Errorf("retry-after: %q", resp.Header.Get("Retry-After"))
	}
}

// Envoy's rate limit filter counts the tokens of replies as the filter reports them.
// A tenant over its tokens a minute gets an error in OpenAI's format; others do not.
func TestRateLimitOfTokens(t *testing.T) {
	_, limits := exampleLimits(t)
	for name, direct := range map[string]bool{"loopback": false, "direct": true} {
		t.Run(name, func(t *testing.T) {
			limiter, address := startRateLimiter(t, limits)
			d := stack.Start(t, stack.Options{Direct: direct, Config: withTenants, Limits: func(o *envoy.Options) { o.RateLimitService = "http://" + address }})

			var counted uint64
			for _, more := range []string{"", `,"stream":true,"stream_options":{"include_usage":true}`} {
				status, tokens, resp, reply := askAs(t, d, "small", "THINK hm\nSAY hello", more)
				if status != http.StatusOK || tokens == 0 || resp.Header.Get("X-Ratelimit-Limit") == "" {
					t.Fatalf("status %d, %v: %s", status, resp.Header, reply)
				}
				counted += tokens
				limiter.await(t, "small", counted)
			}

			// The reply that goes over the limit is not cut.
			status, tokens, _, reply := askAs(t, d, "small", "NOTHINK\nWORDS 300", "")
			if status != http.StatusOK || tokens < 300 {
				t.Fatalf("status %d: %s", status, reply)
			}
			limiter.await(t, "small", counted+tokens)

			for _, more := range []string{"", `,"stream":true`} {
				_, _, resp, reply := askAs(t, d, "small", "SAY hello", more)
				wantTooManyTokens(t, resp, reply)
			}

			if status, _, _, reply := askAs(t, d, "acme", "SAY hello", ""); status != http.StatusOK {
				t.Errorf("another tenant: status %d: %s", status, reply)
			}
			checkUncounted(t, d, limiter)
		})
	}
}

// checkUncounted checks that nothing is counted of what used no tokens.
func checkUncounted(t *testing.T, d *stack.Dataplane, limiter *rateLimiter) {
	t.Helper()
	d.Upstream.Handle(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"data":[]}`) })
	if status, _, _, reply := askAs(t, d, "idle", "SIM status=400", ""); status != http.StatusBadRequest {
		t.Errorf("status %d: %s", status, reply)
	}
	resp, reply := d.Chat(t, stack.OtherModel, "hello", "", tenantHeader, "idle")
	if resp.StatusCode != http.StatusOK {
		t.Errorf("status %d: %s", resp.StatusCode, reply)
	}
	_, tokens, _, _ := askAs(t, d, "idle", "SAY hello", "") // counted after the others
	limiter.await(t, "idle", tokens)
	// Paths without models are not limited.
	resp = d.Do(t, http.MethodGet, "/v1/files", "", http.NoBody, tenantHeader, "small")
	if resp.StatusCode != http.StatusOK {
		t.Errorf("/v1/files: status %d", resp.StatusCode)
	}
}

// If the rate limit service is down, requests pass.
func TestRateLimitServiceIsDown(t *testing.T) {
	d := stack.Start(t, stack.Options{Config: withTenants, Limits: func(o *envoy.Options) { o.RateLimitService = "http://127.0.0.1:1" }})
	if status, _, _, reply := askAs(t, d, "small", "SAY hello", ""); status != http.StatusOK {
		t.Errorf("status %d: %s", status, reply)
	}
}

// Envoy's local rate limit filter counts the prompts of model calls, as the filter
// has rendered them.
func TestLocalRateLimitOfPromptTokens(t *testing.T) {
	for name, direct := range map[string]bool{"loopback": false, "direct": true} {
		t.Run(name, func(t *testing.T) {
			d := stack.Start(t, stack.Options{Direct: direct, Config: withTenants, Limits: func(o *envoy.Options) { o.PromptTokensPerMinute = 300 }})

			prompts := func(tenant string) (left int64) {
				for left = 300; ; {
					resp, reply := d.Chat(t, stack.SGLangModel, "NOTHINK\nWORDS 400", "", tenantHeader, tenant, "x-harmony-prompt-tokens", "1")
					prompt := stack.LastUsage(reply).Get("prompt_tokens").Int()
					if resp.StatusCode != http.StatusOK {
						wantTooManyTokens(t, resp, reply)
						return left
					}
					if left -= prompt; left < 0 {
						t.Fatalf("%d tokens too many", -left)
					}
				}
			}

			if left := prompts("small"); left > 100 { // a prompt is less than 100 tokens
				t.Errorf("limited with %d tokens left", left)
			}
			if left := prompts("acme"); left > 100 {
				t.Errorf("another tenant is limited with %d tokens left", left)
			}
		})
	}
}

// The local limit holds for background responses too.
func TestLocalRateLimitInTheBackground(t *testing.T) {
	d := stack.Start(t, stack.Options{Config: withTenants, Limits: func(o *envoy.Options) { o.PromptTokensPerMinute = 10 }})
	queued := d.Answer(t, "/v1/responses", `{"model":"gpt-oss-20b","background":true,"input":"SAY a"}`, tenantHeader, "small")
	r := stack.AwaitBackground(t, d.Openai(option.WithHeader(tenantHeader, "small")), gjson.Get(queued, "id").Str)
	if r.Status != "failed" || r.Error.Code != "rate_limit_exceeded" {
		t.Errorf("response %s", r.RawJSON())
	}
}

// The reference rate limit service counts the same. RATELIMIT_BIN is its binary; it
// needs redis-server.
func TestReferenceRateLimitService(t *testing.T) {
	binary := os.Getenv("RATELIMIT_BIN")
	if binary == "" {
		t.Skip("RATELIMIT_BIN is not set: go install github.com/envoyproxy/ratelimit/src/service_cmd@latest")
	}

	text, _ := exampleLimits(t)
	d := stack.Start(t, stack.Options{Config: withTenants, Limits: func(o *envoy.Options) { o.RateLimitService = "http://" + startReference(t, binary, text) }})
	if status, _, resp, reply := askAs(t, d, "small", "NOTHINK\nWORDS 300", ""); status != http.StatusOK || resp.Header.Get("X-Ratelimit-Limit") == "" {
		t.Fatalf("status %d, %v: %s", status, resp.Header, reply)
	}

	for deadline := time.Now().Add(stack.Patience); ; time.Sleep(20 * time.Millisecond) {
		status, _, resp, reply := askAs(t, d, "small", "SAY hello", "")
		if status != http.StatusOK {
			t.Logf("%v: %s", resp.Header, reply)
			wantTooManyTokens(t, resp, reply)
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the tenant is not limited")
		}
	}

	if status, _, _, reply := askAs(t, d, "acme", "SAY hello", ""); status != http.StatusOK {
		t.Errorf("another tenant: status %d: %s", status, reply)
	}
}

// startReference runs the reference service with its Redis and returns its address.
func startReference(t *testing.T, binary, limits string) (address string) {
	t.Helper()
	dir, redis, grpcPort := t.TempDir(), stack.FreePort(t), stack.FreePort(t)
	if err := os.MkdirAll(filepath.Join(dir, "ratelimit", "config"), 0o700); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(filepath.Join(dir, "ratelimit", "config", "limits.yaml"), []byte(limits), 0o600); err != nil {
		t.Fatal(err)
	}

	spawn := func(env []string, name string, args ...string) {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Env = append(os.Environ(), env...)
		cmd.Dir = dir
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Wait() }) // ended by the test's context
	}

	spawn(nil, "redis-server", "--port", redis, "--bind", "127.0.0.1", "--save", "")
	stack.AwaitPort(t, redis)
	spawn([]string{
		"RUNTIME_ROOT=" + dir, "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false", "USE_STATSD=false", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL=127.0.0.1:" + redis,
		"HOST=127.0.0.1", "PORT=" + stack.FreePort(t), "DEBUG_HOST=127.0.0.1", "DEBUG_PORT=" + stack.FreePort(t), "GRPC_HOST=127.0.0.1", "GRPC_PORT=" + grpcPort,
	}, binary)

	stack.AwaitPort(t, grpcPort)
	return "127.0.0.1:" + grpcPort
}
