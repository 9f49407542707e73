package gateways

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/envoy"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/header"
)

// sendRaw sends the bytes of a request on a connection of its own, and reads the reply.
func sendRaw(t *testing.T, d *stack.Dataplane, request io.Reader) (status int, body string) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(d.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(stack.Patience))
	if _, err := io.Copy(conn, request); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("the reply is not HTTP: %v", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Errorf("after %q: %v", text, err)
	}
	return resp.StatusCode, string(text)
}

// The replies with which Envoy rejects malformed requests reach the client, in
// OpenAI's form.
func TestMalformedRequests(t *testing.T) {
	const body = `{"model":"gpt-oss-20b","messages":[{"role":"user","content":"SAY hello"}]}`
	head := func(version, more string) string {
		return "POST /v1/chat/completions HTTP/" + version + "\r\ncontent-type: application/json\r\n" + more
	}
	length := fmt.Sprintf("content-length: %d\r\n", len(body))

	for name, modeOverride := range map[string]bool{"full duplex": false, "bodies on demand": true} {
		t.Run(name, func(t *testing.T) {
			d := stack.Start(t, stack.Options{ModeOverride: modeOverride})

			for _, tt := range []struct {
				name, request string
				status        int
			}{
				{"well-formed", head("1.1", "host: x\r\n"+length) + "\r\n" + body, 200},
				{"HTTP/1.0", head("1.0", "host: x\r\n"+length) + "\r\n" + body, 426},
				{"two lengths", head("1.1", "host: x\r\n"+length+"content-length: 1\r\n") + "\r\n" + body, 400},
				{"length and chunks", head("1.1", "host: x\r\n"+length+"transfer-encoding: chunked\r\n") + "\r\n0\r\n\r\n", 400},
				{"many headers", head("1.1", "host: x\r\n"+length+strings.Repeat("a: b\r\n", 101)) + "\r\n" + body, 431},
				{"a bad host", head("1.1", "host: a b\r\n"+length) + "\r\n" + body, 400},
				{"no host", head("1.1", length) + "\r\n" + body, 400},
				{"an encoded slash", strings.Replace(head("1.1", "host: x\r\n"+length), "/v1/", "/v1%2f", 1) + "\r\n" + body, 400},
			} {
				t.Run(tt.name, func(t *testing.T) {
					status, text := sendRaw(t, d, strings.NewReader(tt.request))
					if status != tt.status {
						t.Errorf("status %d: %s", status, text)
					}
					if status == http.StatusOK {
						return
					}

					if e := stack.ReadError(t, text); e.Type != "invalid_request_error" {
						t.Errorf("%s", text)
					}
				})
			}
		})
	}
}

// What a client changes about a request for a Harmony model does not bring it past the
// filter: neither engine nor upstream gets it.
func TestNothingPassesTheFilter(t *testing.T) {
	const (
		tenant = "x-tenant"
		body   = `{"model":"gpt-oss-20b","messages":[{"role":"user","content":"SAY hello"}]}`
		asJSON = "application/json"
	)

	for name, modeOverride := range map[string]bool{"full duplex": false, "bodies on demand": true} {
		t.Run(name, func(t *testing.T) {
			d := stack.Start(t, stack.Options{ModeOverride: modeOverride, Config: func(c *config.Config) { c.TenantHeader = tenant }, Limits: func(o *envoy.Options) { o.Upstream = "" }})

			for i, tt := range []struct {
				name, path, contentType, body string
				status                        int
			}{
				{"no tenant", "/v1/chat/completions", asJSON, body, 401},
				{"an encoded letter", "/v1/%63hat/completions", asJSON, body, 401},
				{"two slashes", "//v1//chat/completions", asJSON, body, 401},
				{"a dot", "/v1/./chat/completions", asJSON, body, 401},
				{"two dots", "/v1/audio/../chat/completions", asJSON, body, 401},
				{"encoded dots", "/v1/audio/%2e%2e/chat/completions", asJSON, body, 401},
				{"an encoded slash", "/v1/chat%2fcompletions", asJSON, body, 400},
				{"a backslash", `/v1/audio/..\chat/completions`, asJSON, body, 401},
				{"a slash at the end", "/v1/chat/completions/", asJSON, body, 404},
				{"text", "/v1/chat/completions", "text/plain", body, 415},
				{"a form, as of curl -d", "/v1/chat/completions", "application/x-www-form-urlencoded", body, 415},
				{"a form with files", "/v1/responses", "multipart/form-data; boundary=x", body, 415},
				{"JSON with padding", "/v1/messages", "application/jsonp", body, 415},
				{"another model first", "/v1/chat/completions", asJSON, `{"model":"x",` + body[1:], 400},
				{"another model first, escaped", "/v1/chat/completions", asJSON, `{"model":"x",` + strings.Replace(body[1:], "model", `mod\u0065l`, 1), 400},
				{"another model last", "/v1/chat/completions", asJSON, body[:len(body)-1] + `,"model":"x"}`, 400},
				{"completions", "/v1/completions", asJSON, `{"model":"gpt-oss-20b","prompt":[1,2,3]}`, 401},
				{"completions without a model", "/v1/completions", asJSON, `{"prompt":[1,2,3]}`, 404},
				{"an engine's token API", "/generate", asJSON, `{"input_ids":[1,2,3]}`, 404},
				{"an engine's administration", "/flush_cache", "", "", 404},
				{"the tokenizer", "/tokenize", asJSON, `{"model":"gpt-oss-20b","prompt":"x"}`, 401},
				{"a model as its engine has it", "/tokenizer_info", asJSON, `{"model":"gpt-oss-20b"}`, 404},
				{"a change of models", "/v1/models/x", asJSON, `{}`, 404},
			} {
				t.Run(tt.name, func(t *testing.T) {
					// Go's client would send another path.
					id := fmt.Sprintf("around-%d", i)
					request := fmt.Sprintf("POST %s HTTP/1.1\r\nhost: x\r\nx-request-id: %s\r\ncontent-length: %d\r\n", tt.path, id, len(tt.body))
					if tt.contentType != "" {
						request += "content-type: " + tt.contentType + "\r\n"
					}
					if tt.status != http.StatusUnauthorized {
						request += tenant + ": a\r\n"
					}

					status, text := sendRaw(t, d, strings.NewReader(request+"\r\n"+tt.body))
					if status != tt.status {
						t.Errorf("status %d: %s", status, text)
					}

					if tt.path == "/v1/messages" {
						readAnthropicError(t, text, id)
					} else {
						stack.ReadError(t, text)
					}

					if got := d.EngineRequests(t, id); len(got) > 0 {
						t.Errorf("the engine got %+v", got)
					}
				})
			}

			resp := d.Do(t, http.MethodPost, "/v1/completions", asJSON, strings.NewReader(`{"model":"gpt-oss-20b","prompt":[1,2,3]}`), tenant, "a")
			text, err := io.ReadAll(resp.Body)
			if e := stack.ReadError(t, string(text)); resp.StatusCode != http.StatusNotFound || e.Param == nil || !strings.Contains(e.Message, "/v1/chat/completions") || err != nil {
				t.Errorf("completions with a tenant: %s: %s, %v", resp.Status, text, err)
			}
		})
	}
}

// awaited is a reader without bytes that ends when something is received from it.
type awaited <-chan struct{}

func (c awaited) Read([]byte) (int, error) {
	select {
	case <-c:
		return 0, io.EOF
	case <-time.After(stack.Patience):
		return 0, errors.New("what is awaited has not come")
	}
}

// A request that names another model first is relayed as it arrives. If it names a
// Harmony model later, the client gets a 400, and the engine never a complete request.
// It may have got a part before.
func TestSecondModelFarAway(t *testing.T) {
	first, last := `{"model":"x","y":"`+strings.Repeat("y", 300_000), `","model":"gpt-oss-20b","messages":[{"role":"user","content":"SAY hello"}]}`
	length := fmt.Sprint("content-length: ", len(first+last))
	head := func(framing string) io.Reader {
		return strings.NewReader("POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n" + framing + "\r\n\r\n")
	}
	chunk := func(text string) io.Reader { return strings.NewReader(fmt.Sprintf("%x\r\n%s\r\n", len(text), text)) }

	for name, modeOverride := range map[string]bool{"full duplex": false, "bodies on demand": true} {
		t.Run(name, func(t *testing.T) {
			began, ended := make(chan struct{}, 3), make(chan struct{}, 3)

			engine := func(_ http.ResponseWriter, r *http.Request) {
				began <- struct{}{}
				// The test ends after the engine's requests: none is overlooked.
				if n, err := io.Copy(io.Discard, r.Body); err == nil {
					t.Errorf("the engine got a complete request of %d bytes", n)
				}
				ended <- struct{}{}
			}

			d := stack.Start(t, stack.Options{ModeOverride: modeOverride, Engine: func(http.Handler) http.Handler { return http.HandlerFunc(engine) }, Limits: func(o *envoy.Options) { o.Upstream = "" }})
			send := func(request ...io.Reader) {
				t.Helper()
				status, text := sendRaw(t, d, io.MultiReader(request...))
				if e := stack.ReadError(t, text); status != http.StatusBadRequest || e.Param == nil || *e.Param != "model" {
					t.Errorf("status %d: %s", status, text)
				}
			}

			canceled := func() {
				t.Helper()
				if _, err := io.Copy(io.Discard, awaited(ended)); err != nil {
					t.Errorf("the engine's request goes on: %v", err)
				}
			}

			// The engine has a part before the last one is sent.
			send(head("transfer-encoding: chunked"), chunk(first), awaited(began), chunk(last), chunk(""))
			canceled()
			send(head(length), strings.NewReader(first), awaited(began), strings.NewReader(last))
			canceled()

			// It may have nothing of what is sent at once.
			send(head(length), strings.NewReader(first+last))
		})
	}
}

// The upstream has the paths of OpenAI's API that are not the filter's, and those that
// the operator opens.
func TestOpenPaths(t *testing.T) {
	closed := []string{"/generate", "/v1/batches", "/v1/batches/1", "/v1/assistants", "/tokenizer_info"}
	byDefault := envoy.OpenPaths()

	for name, tt := range map[string]struct {
		open, get, not []string
	}{
		"by default": {nil, nil, closed},
		"some":       {[]string{"/v1/batches/*", "/tokenize"}, []string{"/v1/batches", "/v1/batches/1", "/tokenize"}, []string{"/generate", "/v1/assistants", "/tokenize/x"}},
		"all":        {[]string{"/*"}, append(closed, "/", "/v1/completions", "/tokenize"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			d := stack.Start(t, stack.Options{Config: func(c *config.Config) { c.Routing.OpenPaths = tt.open }})
			d.Upstream.Handle(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "upstream %s", r.URL.Path) })

			ask := func(path string) (int, string) {
				resp := d.Do(t, http.MethodPost, path, "application/json", strings.NewReader(`{"model":"gpt-oss-20b"}`))
				return resp.StatusCode, stack.ReadText(t, resp)
			}

			for _, path := range append(byDefault, tt.get...) {
				path, below := strings.CutSuffix(path, "/*")
				if below {
					path += "/x"
				}
				if status, text := ask(path); status != http.StatusOK || text != "upstream "+path {
					t.Errorf("%s: status %d: %s", path, status, text)
				}
			}

			for _, path := range tt.not {
				if status, text := ask(path); status != http.StatusNotFound || stack.ReadError(t, text).Type != "invalid_request_error" {
					t.Errorf("%s: status %d: %s", path, status, text)
				}
			}
		})
	}
}

// The routes of what is not found take their cluster from a header that clients cannot send:
// no spelling of it reaches a cluster of Envoy, such as an engine's own API.
func TestClientsNameNoCluster(t *testing.T) {
	var text string
	d := stack.Start(t, stack.Options{
		Bootstrap: func(s string) string { text = s; return s },
		Limits:    func(o *envoy.Options) { o.Upstream = "" },
	})
	_, clusters, _ := strings.Cut(text, "\n  clusters:\n")
	names := regexp.MustCompile(`(?m)^  - name: "?([^"\n]+)`).FindAllStringSubmatch(clusters, -1)
	if len(names) < 3 {
		t.Fatalf("the clusters are %q", names)
	}

	for _, match := range names {
		for _, path := range []string{"/get_model_info", "/flush_cache", "/generate"} {
			for _, name := range []string{header.Engine, strings.ToUpper(header.Engine)} {
				resp := d.Do(t, http.MethodGet, path, "", http.NoBody, name, match[1])
				if text := stack.ReadText(t, resp); resp.StatusCode != http.StatusNotFound {
					t.Errorf("%s of %s: %s: %.200s", path, match[1], resp.Status, text)
				}
			}
		}
	}
}
