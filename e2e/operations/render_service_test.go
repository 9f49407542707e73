package operations

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"
	"github.com/tidwall/sjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// renderDate is the date of prompts in tests that compare two services.
const renderDate = "2026-11-23"

// startRender runs "envoy-harmony render" until the test ends. What it returns asks the
// service as a data plane is asked.
func startRender(t testing.TB, log *stack.LogFile, flags ...string) (*stack.Dataplane, *stack.Program) {
	t.Helper()
	p := stack.LaunchProgram(t, log, "rendering", append([]string{"render", "--listen", "127.0.0.1:0"}, flags...)...)
	return &stack.Dataplane{URL: "http://" + p.Address, Client: stack.NewClient(t)}, p
}

// TestRenderService makes replies without the filter: it renders requests at a process
// of the service, sends what it answers to the engine as it is, and derenders what the
// engine answers. The replies are those of the same requests through Envoy and the
// filter, also where the filter's own paths derender.
func TestRenderService(t *testing.T) {
	d := stack.Start(t, stack.Options{Config: func(c *config.Config) { c.Date = renderDate }})
	service, _ := startRender(t, d.Logs, "--set", "date="+renderDate)
	engine := &stack.Dataplane{URL: d.Sim, Client: d.Client}

	for _, a := range renderedAPIs {
		for name, script := range map[string]string{
			"answer":    `"THINK It is a question.\nSAY Grüße, 世界 👋🏽!"`,
			"tool call": `"THINK I look it up.\nCALL get_weather {\"city\":\"Paris\"}"`,
		} {
			request := fmt.Sprintf(a.request, script)
			whole, err := sjson.Delete(request, "stream_options")
			if err != nil {
				t.Fatal(err)
			}

			stream := strings.Replace(request, "{", `{"stream":true,`, 1)
			for _, c := range []struct {
				way       string
				want, got func(*testing.T) said
			}{
				{
					"whole",
					func(t *testing.T) said { return a.object(gjson.Parse(d.Answer(t, a.path, whole))) },
					func(t *testing.T) said {
						generated := engine.Answer(t, "/inference/v1/generate", service.Answer(t, a.path+"/render", whole))
						return a.object(gjson.Parse(service.Answer(t, a.path+"/derender", a.derender(whole, false, "generate_response", generated, ""))))
					},
				},
				{
					"whole, at the filter",
					func(t *testing.T) said { return a.object(gjson.Parse(d.Answer(t, a.path, whole))) },
					func(t *testing.T) said {
						generated := engine.Answer(t, "/inference/v1/generate", d.Answer(t, a.path+"/render", whole))
						return a.object(gjson.Parse(d.Answer(t, a.path+"/derender", a.derender(whole, false, "generate_response", generated, ""))))
					},
				},
				{
					"events of a whole answer",
					func(t *testing.T) said { return a.events(objects(d.Answer(t, a.path, stream))) },
					func(t *testing.T) said {
						generated := engine.Answer(t, "/inference/v1/generate", service.Answer(t, a.path+"/render", whole))
						return a.events(objects(service.Answer(t, a.path+"/derender", a.derender(stream, true, "generate_response", generated, ""))))
					},
				},
				{
					"chunk by chunk",
					func(t *testing.T) said { return a.events(objects(d.Answer(t, a.path, stream))) },
					func(t *testing.T) said { return a.events(a.byChunks(t, service, engine, stream)) },
				},
				{
					"chunk by chunk, at the filter",
					func(t *testing.T) said { return a.events(objects(d.Answer(t, a.path, stream))) },
					func(t *testing.T) said { return a.events(a.byChunks(t, d, engine, stream)) },
				},
			} {
				t.Run(a.path[len("/v1/"):]+"/"+name+"/"+c.way, func(t *testing.T) {
					want, got := c.want(t), c.got(t)
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("replies differ (-filter +derendered):\n%s", diff)
					}
					if want.Reasoning == "" || want.Text == "" == (name == "answer") || len(want.Calls) == 0 == (name == "tool call") || want.Usage[0] == 0 || want.Usage[1] == 0 {
						t.Errorf("the filter's reply lacks something: %+v", want)
					}
				})
			}
		}
	}
}

// derender is the body that derenders what the engine has answered.
func (a *renderedAPI) derender(request string, stream bool, field, generated, members string) string {
	return fmt.Sprintf(`{"model":%q,"stream":%t,%q:%s,%q:%s%s}`, stack.VLLMModel, stream, field, generated, a.field, request, members)
}

// byChunks renders a request at one service, streams the engine's answer, and derenders
// each of its events by itself.
func (a *renderedAPI) byChunks(t *testing.T, service, engine *stack.Dataplane, request string) []gjson.Result {
	t.Helper()
	rendered := service.Answer(t, a.path+"/render", request)
	if options := gjson.Get(request, "stream_options").Raw; options != "" { // which the answer does not have
		rendered = strings.Replace(rendered, "{", `{"stream_options":`+options+",", 1)
	}

	chunks := objects(engine.Answer(t, "/inference/v1/generate", rendered))
	if len(chunks) < 10 {
		t.Fatalf("the engine streams %d chunks", len(chunks))
	}

	members := `,"prompt_tokens":` + gjson.Get(rendered, "token_count").Raw
	state := "null"
	var events []gjson.Result

	for _, chunk := range chunks {
		answer := gjson.Parse(service.Answer(t, a.path+"/derender", a.derender(request, true, "generate_chunk", chunk.Raw, members+`,"stream_state":`+state)))
		if chunk := answer.Get("chunk"); chunk.Exists() {
			events = append(events, chunk)
		}
		events = append(events, answer.Get("events").Array()...)
		state = answer.Get("stream_state").Raw
	}
	return events
}

// TestRenderPaths shows that the filter answers the paths of the tokenizer as the service
// does, unless routing.open_paths has them: then they are the upstream's.
func TestRenderPaths(t *testing.T) {
	date := func(c *config.Config) { c.Date = renderDate }
	d := stack.Start(t, stack.Options{Config: date})
	open := stack.Start(t, stack.Options{Config: func(c *config.Config) {
		date(c)
		c.Routing.OpenPaths = []string{"/tokenize"}
	}})

	service, _ := startRender(t, d.Logs, "--set", "date="+renderDate)
	open.Upstream.Handle(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "the upstream's %s", r.URL.Path) })

	for _, c := range []struct{ name, path, body, want string }{
		{"a text", "/tokenize", `{"model":"gpt-oss-120b","prompt":"Hello, world!","return_token_strs":true}`, `{"count":4,"max_model_len":131072,"tokens":[13225,11,2375,0],"token_strs":["Hello",",","Ġworld","!"]}`},
		{"messages", "/tokenize", `{"model":"gpt-oss-120b","messages":[{"role":"user","content":"Grüße"}]}`, `"tokens":[200006,`},
		{"tokens", "/detokenize", `{"model":"gpt-oss-120b","tokens":[13225,200007]}`, `{"prompt":"Hello<|end|>"}`},
	} {
		at, there := d.Answer(t, c.path, c.body), service.Answer(t, c.path, c.body)
		if at != there || !strings.Contains(at, c.want) {
			t.Errorf("%s: the filter answers %s, the service %s", c.name, at, there)
		}

		want := at
		if c.path == "/tokenize" {
			want = "the upstream's /tokenize"
		}
		if got := open.Answer(t, c.path, c.body); got != want {
			t.Errorf("%s where /tokenize is open: %s", c.name, got)
		}
	}

	if status, reply := d.Post(t, "/tokenize", `{"prompt":"Hello"}`); status != http.StatusBadRequest || reply.Get("error.param").Str != "model" {
		t.Errorf("no model: status %d, %s", status, reply.Raw)
	}
}

// TestRenderEnds ends the service by SIGTERM while a request's body arrives: it is
// answered, and the process ends well.
func TestRenderEnds(t *testing.T) {
	service, p := startRender(t, stack.LogOf(t))
	for _, path := range []string{"/health", "/readyz"} {
		resp := service.Do(t, http.MethodGet, path, "", http.NoBody)
		if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK || string(text) != "ok\n" {
			t.Errorf("%s: status %d, %v, %q", path, resp.StatusCode, err, text)
		}
	}

	const body = `{"prompt":"Hello"}`
	service.Answer(t, "/tokenize", body)
	service.Post(t, "/tokenize", "{")

	for sample, want := range map[string]float64{
		`harmony_render_seconds_count{path="/tokenize",status="200"}`: 1,
		`harmony_render_seconds_count{path="/tokenize",status="400"}`: 1,
	} {
		if got := stack.SampleOf(t, service.URL+"/metrics", sample); got != want {
			t.Errorf("%s is %v, want %v", sample, got, want)
		}
	}

	conn, err := net.Dial("tcp", p.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	// The service asks for the body when it reads it: the request has begun.
	if _, err := fmt.Fprintf(conn, "POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", len(body)); err != nil {
		t.Fatal(err)
	}

	replies := bufio.NewReader(conn)
	if line, err := replies.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 100 ") {
		t.Fatalf("%q, %v", line, err)
	}
	_, _ = replies.ReadString('\n')

	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	stack.Eventually(t, "the end of the listener", func() bool {
		late, err := net.Dial("tcp", p.Address)
		if err == nil {
			late.Close()
		}
		return err != nil
	})

	if _, err := io.WriteString(conn, body); err != nil {
		t.Fatal(err)
	}

	resp, err := http.ReadResponse(replies, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK || gjson.GetBytes(text, "tokens").Raw != "[13225]" {
		t.Errorf("status %d, %v, %s", resp.StatusCode, err, text)
	}

	stack.Receive(t, p.Ended, "the end of the process")
	if p.Exit != 0 {
		t.Errorf("exit status %d", p.Exit)
	}
}
