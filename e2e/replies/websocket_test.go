package replies

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/coder/websocket"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// sockets is the program with a listener for WebSockets, behind an Envoy with the route for it.
type sockets struct {
	*stack.Program
	d *stack.Dataplane
}

func startSockets(t *testing.T, config ...string) *sockets {
	t.Helper()
	log := stack.LogOf(t)
	sim := stack.StartSim(t, log)
	dir := stack.SocketDir(t)
	p := stack.ServeProgram(t, log, append([]string{
		"--engine", "vllm=" + sim, "--set", "log.level=info",
		"--set", "loopback=unix://" + filepath.Join(dir, "loopback"),
		"--set", "websocket.listen=unix://" + filepath.Join(dir, "websocket"),
	}, config...)...)
	d := p.Envoy(t, p.Bootstrap(t))
	d.Sim = sim
	return &sockets{p, d}
}

// socket is a connection of a client.
type socket struct{ *websocket.Conn }

func (s *sockets) dial(ctx context.Context, headers ...string) (socket, *http.Response, error) {
	h := http.Header{}
	for i := 0; i < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	conn, resp, err := websocket.Dial(ctx, s.d.URL+"/v1/responses", &websocket.DialOptions{HTTPHeader: h})
	if err == nil {
		conn.SetReadLimit(-1)
	}
	return socket{conn}, resp, err
}

func (s *sockets) connect(t *testing.T, headers ...string) socket {
	t.Helper()
	c, _, err := s.dial(t.Context(), headers...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.CloseNow() })
	return c
}

func (c socket) send(t *testing.T, event string) {
	t.Helper()
	if err := c.Write(t.Context(), websocket.MessageText, []byte(event)); err != nil {
		t.Fatal(err)
	}
}

// until returns the next event of one of the kinds, and the text of the deltas before.
func (c socket) until(t *testing.T, kinds ...string) (e gjson.Result, text string) {
	t.Helper()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), stack.Patience)
		_, p, err := c.Read(ctx)
		cancel()
		if err != nil {
			t.Fatalf("before %v: %v", kinds, err)
		}
		e = gjson.ParseBytes(p)
		if slices.Contains(kinds, e.Get("type").Str) {
			return e, text
		}
		if e.Get("type").Str == "error" {
			t.Fatalf("before %v: %s", kinds, p)
		}
		text += e.Get("delta").Str
	}
}

const asks = `{"type":"response.create","model":"gpt-oss-20b","store":false,"input":"NOTHINK\nSAY `

// Each request has one last event, in the order of the requests: also one for a model that is not served here,
// which over HTTP would go on to the upstream in several messages.
func TestWebSocketAnswersOnce(t *testing.T) {
	s := startSockets(t)
	c := s.connect(t)
	long := strings.Repeat("word ", 20_000)
	for _, r := range []struct{ members, code string }{
		{`"model":"another","input":"` + long + `"`, "model_not_found"},
		{`"model":"gpt-oss-20b","previous_response_id":"resp_none","input":"x"`, "previous_response_not_found"},
		{`"model":"gpt-oss-20b","input":"x","input":"y"`, ""},
		{`"input":"x"`, ""},
		{`"model":"gpt-oss-20b","generate":false,"input":[]`, "completed"},
		{`"model":"another","input":"x"`, "model_not_found"},
		{`"model":"gpt-oss-20b","input":"NOTHINK\nSAY fine"`, "completed"},
	} {
		for range 2 {
			c.send(t, `{"type":"response.create","store":false,`+r.members+`}`)
		}
		for range 2 {
			e, _ := c.until(t, "response.completed", "response.failed", "error")
			if completed := e.Get("type").Str == "response.completed"; completed != (r.code == "completed") ||
				!completed && e.Get("error.code").Str != r.code {
				t.Errorf("%.80s: %.300s", r.members, e.Raw)
			}
		}
	}
}

// A conversation over one connection, through Envoy: nothing of it is stored, and only this
// connection goes on with it.
func TestWebSocketConversation(t *testing.T) {
	s := startSockets(t)
	c := s.connect(t)
	c.send(t, `{"type":"response.create","model":"gpt-oss-20b","store":false,"generate":false,"input":[],"instructions":"Be short."}`)
	prepared, _ := c.until(t, "response.completed")
	if r := prepared.Get("response"); r.Get("output.#").Int() != 0 || r.Get("status").Str != "completed" {
		t.Errorf("the prepared response is %s", r.Raw)
	}

	id := prepared.Get("response.id").Str
	for turn := range 3 {
		c.send(t, fmt.Sprintf(`%sturn %d","instructions":"Be short.","previous_response_id":"%s"}`, asks, turn, id))
		done, text := c.until(t, "response.completed")
		r := done.Get("response")
		if text != fmt.Sprintf("turn %d", turn) || r.Get("previous_response_id").Str != id || r.Get("store").Bool() ||
			r.Get("usage.input_tokens_details.cached_tokens").Int() == 0 {
			t.Errorf("turn %d: %q, %s", turn, text, r.Raw)
		}
		id = r.Get("id").Str
	}

	other := s.connect(t)
	other.send(t, asks+`x","previous_response_id":"`+id+`"}`)
	if e, _ := other.until(t, "error"); e.Get("error.code").Str != "previous_response_not_found" {
		t.Errorf("another connection: %s", e.Raw)
	}
	if resp := s.d.Do(t, http.MethodGet, "/v1/responses/"+id, "", nil); resp.StatusCode != http.StatusNotFound {
		t.Errorf("over HTTP: %s", resp.Status)
	}

	// One that is stored is, and the connection goes on with it too.
	c.send(t, strings.Replace(asks, "false", "true", 1)+`kept"}`)
	stored, _ := c.until(t, "response.completed")
	id = stored.Get("response.id").Str
	c.send(t, asks+`after","previous_response_id":"`+id+`"}`)
	c.until(t, "response.completed")
	if resp := s.d.Do(t, http.MethodGet, "/v1/responses/"+id, "", nil); resp.StatusCode != http.StatusOK {
		t.Errorf("the stored one over HTTP: %s", resp.Status)
	}
}

// Without a request for it there is no WebSocket: other paths and methods are as they were.
func TestWebSocketRouteIsNarrow(t *testing.T) {
	s := startSockets(t)
	for _, path := range []string{"/v1/chat/completions", "/v1/responses/x", "/v1/messages"} {
		_, resp, err := websocket.Dial(t.Context(), s.d.URL+path, nil)
		if err == nil || resp.StatusCode != http.StatusUpgradeRequired {
			t.Errorf("%s: %v, %v", path, resp, err)
		}
	}
	if resp := s.d.Do(t, http.MethodGet, "/v1/responses/resp_1", "", nil); resp.StatusCode != http.StatusNotFound {
		t.Errorf("a stored response: %s", resp.Status)
	}
	s.d.Works(t, "gpt-oss-20b")
}

// Input steers a response between two tokens, and a response is canceled there.
func TestWebSocketSteer(t *testing.T) {
	s := startSockets(t)
	c := s.connect(t)
	const slow = asks + `one two three four five six seven eight nine ten\nSIM delay=50ms"}`
	c.send(t, slow)
	created, _ := c.until(t, "response.created")
	id := created.Get("response.id").Str
	c.until(t, "response.output_text.delta")
	c.send(t, `{"type":"response.steer","previous_response_id":"`+id+`","input":"NOTHINK\nSAY steered"}`)
	c.until(t, "response.steer.accepted")
	cut, _ := c.until(t, "response.incomplete", "response.completed")
	r := cut.Get("response")
	if r.Get("incomplete_details.reason").Str != "steered" || r.Get("output.0.status").Str != "incomplete" ||
		strings.Contains(r.Get("output.0.content.0.text").Str, "ten") || r.Get("output.0.content.0.text").Str == "" {
		t.Errorf("the steered response is %s", r.Raw)
	}
	next, text := c.until(t, "response.completed")
	if text != "steered" || next.Get("response.previous_response_id").Str != id {
		t.Errorf("the next one: %q, %s", text, next.Raw)
	}

	c.send(t, slow)
	c.until(t, "response.output_text.delta")
	c.send(t, `{"type":"response.cancel"}`)
	canceled, _ := c.until(t, "response.cancelled", "response.completed")
	if canceled.Get("response.status").Str != "cancelled" {
		t.Errorf("the canceled response is %s", canceled.Raw)
	}
	s.d.AwaitCancelled(t)
}

// Input that comes while the model writes a call of the filter's ends the response with the result of
// that call: it does not wait for what the model would do with it.
func TestWebSocketSteerInACall(t *testing.T) {
	s := startSockets(t, "--set", stack.NewToolServer(t).Set(t))
	c := s.connect(t)
	c.send(t, `{"type":"response.create","model":"gpt-oss-20b","store":false,"tools":[`+stack.DocsTool+`],`+
		`"input":"NOTHINK\nCALL docs.search {\"q\":\"one two three four five\"}\nSIM delay=50ms"}`)
	created, _ := c.until(t, "response.created")
	id := created.Get("response.id").Str
	for kind := ""; kind != "mcp_call"; {
		added, _ := c.until(t, "response.output_item.added")
		kind = added.Get("item.type").Str
	}

	c.send(t, `{"type":"response.steer","previous_response_id":"`+id+`","input":"NOTHINK\nSAY steered"}`)
	c.until(t, "response.steer.accepted")
	cut, _ := c.until(t, "response.incomplete", "response.completed")
	r := cut.Get("response")
	call := r.Get("output.#(type==mcp_call)")
	if r.Get("incomplete_details.reason").Str != "steered" || !strings.Contains(call.Get("output").Str, "found one two three four five") ||
		r.Get("output.#(type==message)").Exists() {
		t.Errorf("the steered response is %s", r.Raw)
	}
	if next, text := c.until(t, "response.completed"); text != "steered" || next.Get("response.previous_response_id").Str != id {
		t.Errorf("the next one: %q, %s", text, next.Raw)
	}
}

// Where nothing is stored, a connection keeps its responses all the same, for itself alone.
func TestWebSocketNothingStored(t *testing.T) {
	s := startSockets(t, "--set", "responses.store_bytes=0")
	c := s.connect(t)
	previous := "null"
	for _, store := range []string{"false", "true", "false"} {
		c.send(t, strings.Replace(asks, "false", store, 1)+`hi","previous_response_id":`+previous+`}`)
		done, _ := c.until(t, "response.completed")
		r := done.Get("response")
		if r.Get("store").Raw != "false" || r.Get("previous_response_id").Raw != previous {
			t.Errorf("after %s: %s", previous, r.Raw)
		}
		previous = r.Get("id").Raw
	}

	other := s.connect(t)
	other.send(t, asks+`x","previous_response_id":`+previous+`}`)
	if e, _ := other.until(t, "error"); e.Get("error.code").Str != "previous_response_not_found" {
		t.Errorf("another connection: %s", e.Raw)
	}
	status, reply := s.d.Post(t, "/v1/responses", `{"model":"gpt-oss-20b","input":"x","previous_response_id":`+previous+`}`)
	if status != http.StatusBadRequest || reply.Get("error.code").Str != "previous_response_not_found" {
		t.Errorf("over HTTP: %d, %s", status, reply.Raw)
	}
}

// openai-python's connection and the WebSocket model of the Agents SDK work as their users expect.
func TestWebSocketPython(t *testing.T) {
	if _, err := os.Stat(stack.Python); err != nil {
		t.Fatal("there are no Python clients: run make venv")
	}
	s := startSockets(t)
	cmd := exec.CommandContext(t.Context(), stack.Python, "python/websocket_clients.py")
	cmd.Env = append(os.Environ(), "OPENAI_BASE_URL="+s.d.URL+"/v1", "OPENAI_API_KEY=none", "MODEL=gpt-oss-20b")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// Tenants and quotas are those of the headers of the upgrade.
func TestWebSocketTenants(t *testing.T) {
	s := startSockets(t, "--set", "tenant_header=x-tenant",
		"--set", `token_budgets=[{name: day, per: [tenant], tokens: 400, window: 24h}]`)
	none := s.connect(t)
	none.send(t, asks+`x"}`)
	if e, _ := none.until(t, "error"); e.Get("status").Int() != http.StatusUnauthorized {
		t.Errorf("without a tenant: %s", e.Raw)
	}
	for _, tenant := range []string{"a", "b"} {
		c := s.connect(t, "x-tenant", tenant)
		const short = asks + `x","max_output_tokens":16}`
		for refused := false; !refused; {
			c.send(t, short)
			e, _ := c.until(t, "error", "response.completed")
			if refused = e.Get("type").Str == "error"; refused && (e.Get("status").Int() != 429 || e.Get("headers.x-ratelimit-limit-tokens").Str != "400") {
				t.Errorf("tenant %s: %s", tenant, e.Raw)
			}
		}
	}
}

// A thousand connections, which leave, flood or do not read, leave nothing behind, and a drain
// ends what is left in good order.
func TestWebSocketsMany(t *testing.T) {
	s := startSockets(t, "--set", "drain_delay=0s", "--set", "drain_timeout=20s")
	const many = 1000
	storm := func(n int) {
		var clients sync.WaitGroup
		places := make(chan struct{}, 100)
		for i := range n {
			places <- struct{}{}
			clients.Go(func() {
				defer func() { <-places }()
				random := rand.New(rand.NewPCG(36, uint64(i)))
				if err := s.misbehave(t.Context(), random); err != nil {
					t.Errorf("client %d: %v", i, err)
				}
			})
		}
		clients.Wait()
		stack.Eventually(t, "the end of the connections", func() bool { return s.Metric(t, "harmony_websocket_connections") == 0 })
		awaitIdle(t, s.d, s.Program)
	}
	storm(many / 10)
	goroutines, descriptors := s.Metric(t, "go_goroutines"), s.Metric(t, "process_open_fds")
	storm(many)
	const few = 20
	stack.Eventually(t, "goroutines and descriptors as before", func() bool {
		return s.Metric(t, "go_goroutines") <= goroutines+few && s.Metric(t, "process_open_fds") <= descriptors+few
	})

	// All at one time, of which each tenth makes a response.
	var clients sync.WaitGroup
	var whole, closed atomic.Int64
	open := make(chan struct{}, many)
	for i := range many {
		clients.Go(func() {
			c, _, err := s.dial(t.Context())
			if err == nil && i%10 == 0 {
				err = c.Write(t.Context(), websocket.MessageText, []byte(asks+`a b c d e f g h i j k l m n o\nSIM delay=200ms"}`))
				if err == nil {
					_, _, err = c.Read(t.Context())
				}
			}
			open <- struct{}{}
			if err != nil {
				t.Errorf("connection %d: %v", i, err)
				return
			}
			for {
				_, p, err := c.Read(t.Context())
				if strings.HasPrefix(string(p), `{"type":"response.completed"`) {
					whole.Add(1)
				}
				if err != nil {
					if websocket.CloseStatus(err) == websocket.StatusGoingAway {
						closed.Add(1)
					}
					return
				}
			}
		})
	}
	for range many {
		<-open
	}
	if err := s.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	clients.Wait()
	<-s.Ended
	if s.Exit != 0 || whole.Load() != many/10 || closed.Load() != many {
		t.Errorf("%d responses of %d are whole, %d connections of %d were closed in good order, exit %d", whole.Load(), many/10, closed.Load(), many, s.Exit)
	}
	if strings.Contains(s.Logs.String(), "panic") {
		t.Error("there was a panic")
	}
}

// misbehave is a client that does one of the wrong things.
func (s *sockets) misbehave(ctx context.Context, random *rand.Rand) error {
	ctx, cancel := context.WithTimeout(ctx, stack.Patience)
	defer cancel()
	c, _, err := s.dial(ctx)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer func() { _ = c.CloseNow() }()
	write := func(text string) error { return c.Write(ctx, websocket.MessageText, []byte(text)) }

	switch random.IntN(5) {
	case 0: // leaves at any moment of a response
		_ = write(asks + `one two three four five six\nSIM delay=5ms"}`)
		for range random.IntN(6) {
			_, _, _ = c.Read(ctx)
		}
	case 1: // sends a part of an event
		w, err := c.Writer(ctx, websocket.MessageText)
		if err == nil {
			_, _ = io.WriteString(w, asks[:random.IntN(len(asks))])
		}
	case 2: // floods with what is none
		for range 50 {
			if err := write(`{"type":"x"}`); err != nil {
				return err
			}
		}
	case 3: // has more responses at one time than it may, and does not read
		for range 40 {
			if err := write(asks + `x\nSIM delay=1ms"}`); err != nil {
				return err
			}
		}
	default: // is in order
		if err := write(asks + `hello"}`); err != nil {
			return err
		}
		for {
			_, p, err := c.Read(ctx)
			if err != nil {
				return err
			}
			if strings.HasPrefix(string(p), `{"type":"response.completed"`) {
				return c.Close(websocket.StatusNormalClosure, "")
			}
			if strings.HasPrefix(string(p), `{"type":"error"`) {
				return errors.New(string(p))
			}
		}
	}
	return nil
}
