package gateways

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/header"
)

// Names by which an endpoint picker and Envoy communicate, as defined by the
// Gateway API inference extension: in dynamic metadata, and in headers for clients
// without metadata.
const (
	lbNamespace    = "envoy.lb"
	pickedEndpoint = "x-gateway-destination-endpoint"
	servedEndpoint = "x-gateway-destination-endpoint-served"
)

// picker is an endpoint picker. It reads token requests of OpenAI's completions and
// vLLM's generate API, and sends requests whose prompts start with the same blocks
// to the same endpoint. Others are distributed round robin.
type picker struct {
	extprocv3.UnimplementedExternalProcessorServer

	address   string
	server    *grpc.Server
	endpoints []string // host:port

	mu     sync.Mutex
	blocks map[string]string // endpoint by hash of a prompt prefix
	next   int
	full   bool // every request is answered with 429
	picks  []pick
}

// pick is the picker's record of a request.
type pick struct {
	id, path, model string
	stream          bool
	tokens          int
	body            string         // SHA-256
	metadata        map[string]any // metadata of the filter
	clientEndpoint  string         // endpoint that the client has set
	endpoint        string
	served          string // endpoint that Envoy reports
}

// startPicker starts a picker of the endpoints at these URLs.
func startPicker(t *testing.T, urls []string) *picker {
	t.Helper()
	p := &picker{blocks: map[string]string{}}
	for _, u := range urls {
		p.endpoints = append(p.endpoints, strings.TrimPrefix(u, "http://"))
	}

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	p.address = "http://" + l.Addr().String()
	p.server = grpc.NewServer(grpc.WaitForHandlers(true))
	extprocv3.RegisterExternalProcessorServer(p.server, p)

	ended := make(chan error, 1)
	go func() { ended <- p.server.Serve(l) }()
	t.Cleanup(func() {
		p.server.Stop()
		if err := <-ended; err != nil {
			t.Errorf("picker: %v", err)
		}
	})

	return p
}

// blockTokens is the number of tokens in a block.
const blockTokens = 64

// choose parses a token request and selects the endpoint with the longest prefix.
func (p *picker) choose(c *pick, body []byte) error {
	var request struct {
		Model    string `json:"model"`
		Stream   bool   `json:"stream"`
		Prompt   []int  `json:"prompt"`
		TokenIDs []int  `json:"token_ids"`
	}

	if err := json.Unmarshal(body, &request); err != nil {
		return fmt.Errorf("parse a request of %s: %w", c.path, err)
	}
	ids := request.Prompt
	if c.path == "/inference/v1/generate" {
		ids = request.TokenIDs
	}

	sum := sha256.Sum256(body)
	c.model, c.stream, c.tokens, c.body = request.Model, request.Stream, len(ids), hex.EncodeToString(sum[:])

	var keys []string
	chain := sha256.New()
	for block := range slices.Chunk(ids, blockTokens) {
		if len(block) == blockTokens {
			fmt.Fprint(chain, block)
			keys = append(keys, hex.EncodeToString(chain.Sum(nil)))
		}
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range slices.Backward(keys[len(keys)/2:]) { // a shorter prefix does not count
		if c.endpoint = p.blocks[key]; c.endpoint != "" {
			break
		}
	}

	if c.endpoint == "" {
		c.endpoint = p.endpoints[p.next%len(p.endpoints)]
		p.next++
	}

	for _, key := range keys {
		p.blocks[key] = c.endpoint
	}
	return nil
}

// Process handles one request in full-duplex mode. It answers after the whole body
// has arrived.
func (p *picker) Process(stream extprocv3.ExternalProcessor_ProcessServer) error {
	var c pick
	var body []byte
	for {
		m, err := stream.Recv()
		if err != nil {
			return nil //nolint:nilerr // Envoy has done with it
		}

		var replies []*extprocv3.ProcessingResponse
		switch r := m.GetRequest().(type) {
		case *extprocv3.ProcessingRequest_RequestHeaders:
			for _, h := range r.RequestHeaders.GetHeaders().GetHeaders() {
				switch h.GetKey() {
				case ":path":
					c.path = string(h.GetRawValue())
				case "x-request-id":
					c.id = string(h.GetRawValue())
				case pickedEndpoint:
					c.clientEndpoint = string(h.GetRawValue())
				}
			}
			c.metadata = m.GetMetadataContext().GetFilterMetadata()[header.MetadataNamespace].AsMap()
		case *extprocv3.ProcessingRequest_RequestBody:
			body = append(body, r.RequestBody.GetBody()...)
			if r.RequestBody.GetEndOfStream() {
				replies, err = p.reply(&c, body)
			}
		case *extprocv3.ProcessingRequest_ResponseHeaders:
			c.served = m.GetMetadataContext().GetFilterMetadata()[lbNamespace].GetFields()[servedEndpoint].GetStringValue()
			p.mu.Lock()
			p.picks = append(p.picks, c)
			p.mu.Unlock()
			replies = []*extprocv3.ProcessingResponse{{Response: &extprocv3.ProcessingResponse_ResponseHeaders{ResponseHeaders: &extprocv3.HeadersResponse{}}}}
		case *extprocv3.ProcessingRequest_ResponseBody:
			replies = []*extprocv3.ProcessingResponse{{Response: &extprocv3.ProcessingResponse_ResponseBody{ResponseBody: streamedBody(r.ResponseBody.GetBody(), r.ResponseBody.GetEndOfStream())}}}
		case *extprocv3.ProcessingRequest_ResponseTrailers:
			replies = []*extprocv3.ProcessingResponse{{Response: &extprocv3.ProcessingResponse_ResponseTrailers{ResponseTrailers: &extprocv3.TrailersResponse{}}}}
		}

		if err != nil {
			return err
		}

		for _, reply := range replies {
			if err := stream.Send(reply); err != nil {
				return err
			}
		}
	}
}

// reply returns the response to a request: the selected endpoint, and the unchanged
// body.
func (p *picker) reply(c *pick, body []byte) ([]*extprocv3.ProcessingResponse, error) {
	p.mu.Lock()
	full := p.full
	p.mu.Unlock()
	if full {
		return []*extprocv3.ProcessingResponse{{Response: &extprocv3.ProcessingResponse_ImmediateResponse{ImmediateResponse: &extprocv3.ImmediateResponse{
			Status: &typev3.HttpStatus{Code: typev3.StatusCode_TooManyRequests}, Body: []byte("no endpoint has capacity"),
		}}}}, nil
	}

	if err := p.choose(c, body); err != nil {
		return nil, err
	}

	metadata, err := structpb.NewStruct(map[string]any{lbNamespace: map[string]any{pickedEndpoint: c.endpoint}})
	if err != nil {
		return nil, err
	}

	replies := []*extprocv3.ProcessingResponse{{
		DynamicMetadata: metadata,
		Response: &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{Response: &extprocv3.CommonResponse{
			ClearRouteCache: true,
			HeaderMutation:  &extprocv3.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{{Header: &corev3.HeaderValue{Key: pickedEndpoint, RawValue: []byte(c.endpoint)}}}},
		}}},
	}}

	const most = 62_000
	for len(body) > most {
		replies = append(replies, &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{RequestBody: streamedBody(body[:most], false)}})
		body = body[most:]
	}
	return append(replies, &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{RequestBody: streamedBody(body, true)}}), nil
}

func streamedBody(p []byte, end bool) *extprocv3.BodyResponse {
	return &extprocv3.BodyResponse{Response: &extprocv3.CommonResponse{BodyMutation: &extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_StreamedResponse{
		StreamedResponse: &extprocv3.StreamedBodyResponse{Body: p, EndOfStream: end},
	}}}}
}

// pickOf returns the record of a request.
func (p *picker) pickOf(t *testing.T, id string) pick {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.picks, func(c pick) bool { return strings.Contains(c.id, id) })
	if i < 0 {
		t.Fatalf("the picker got no request %s, but %+v", id, p.picks)
	}
	return p.picks[i]
}

func (p *picker) setFull(all bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.full = all
}

// servedReplicas are replicas that record requests.
type servedReplicas struct {
	urls, sims []string // URLs of the replicas, and of the simulated engines behind them

	mu  sync.Mutex
	got map[string][]arrival // by request id
}

// arrival is a request that a replica got.
type arrival struct{ endpoint, path, body string } // body is the SHA-256

// newServedReplicas starts n replicas.
func newServedReplicas(t *testing.T, n int) *servedReplicas {
	t.Helper()
	s := &servedReplicas{got: map[string][]arrival{}}

	for range n {
		sim := stack.StartSim(t, &stack.LogFile{Quiet: true})
		next := stack.Forward(t, sim)
		server := httptest.NewUnstartedServer(nil)
		endpoint := server.Listener.Addr().String()

		server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))

			sum := sha256.Sum256(body)
			id := r.Header.Get("x-request-id")
			s.mu.Lock()
			s.got[id] = append(s.got[id], arrival{endpoint, r.URL.Path, hex.EncodeToString(sum[:])})
			s.mu.Unlock()
			next.ServeHTTP(w, r)
		})

		server.Start()
		t.Cleanup(server.Close)
		s.urls, s.sims = append(s.urls, server.URL), append(s.sims, sim)
	}
	return s
}

// check compares the requests that arrived, and the replica, with the picker's
// record.
func (s *servedReplicas) check(t *testing.T, id string, p pick) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if diff := cmp.Diff([]arrival{{p.endpoint, p.path, p.body}}, s.got[p.id], cmp.AllowUnexported(arrival{})); diff != "" {
		t.Errorf("%s at the replicas (-picked +arrived):\n%s", id, diff)
	}
}

// An endpoint picker selects the replica by the prompt of the token request: as a
// second ext_proc filter of the clients' listener, and on the loopback listener.
func TestEndpointPicker(t *testing.T) {
	for _, kind := range []string{"vllm", "vllm-generate"} {
		for _, direct := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s,direct=%t", kind, direct), func(t *testing.T) {
				served := newServedReplicas(t, 3)
				p := startPicker(t, served.urls)
				d := stack.Start(t, stack.Options{SimURL: served.sims[0], Direct: direct, Config: func(c *config.Config) {
					c.Models, c.Routing.PrefixHeader = nil, "" // no other mechanism provides affinity
					c.Engines = []config.Engine{{Kind: kind, URLs: served.urls, EndpointPicker: p.address}}
				}})
				checkPickerAffinity(t, d, p, served)
				t.Run("stream", func(t *testing.T) { checkPickerStreams(t, d, p, served) })
				t.Run("large", func(t *testing.T) { checkPickerLargePrompt(t, d, p, served) })
				t.Run("rejected", func(t *testing.T) { checkPickerRejects(t, d, p) })
				t.Run("lost", func(t *testing.T) { checkPickerDown(t, d, p) })
			})
		}
	}
}

// checkPickerAffinity runs alternating conversations, each with its own
// instructions.
func checkPickerAffinity(t *testing.T, d *stack.Dataplane, p *picker, served *servedReplicas) {
	t.Helper()

	talks := make([]*stack.Conversation, 6)
	for c := range talks {
		talks[c] = stack.NewConversation(fmt.Sprintf("Conversation %d. ", c) + strings.Repeat("Be kind. ", 100))
	}

	stays := make([]string, len(talks))
	used := map[string]bool{}
	for turn := range 3 {
		for i, k := range talks {
			id := fmt.Sprintf("talk-%d-%d", i, turn)
			more := map[bool]string{true: `,"max_tokens":50`}[turn == 1]
			status, reply, err := k.Ask(d, fmt.Sprintf("SAY turn %d", turn), more, "x-request-id", id, pickedEndpoint, "127.0.0.1:1")
			if err != nil || status != http.StatusOK || reply.Get("choices.0.message.content").String() != fmt.Sprintf("turn %d", turn) {
				t.Fatalf("status %d: %s: %v", status, reply.Raw, err)
			}

			got := p.pickOf(t, id)
			if turn == 0 {
				stays[i], used[got.endpoint] = got.endpoint, true
			}
			if got.endpoint != stays[i] || got.served != stays[i] || got.clientEndpoint != "" || got.model != stack.SGLangModel || got.tokens != int(reply.Get("usage.prompt_tokens").Int()) || !got.stream {
				t.Errorf("conversation %d stays at %s: %+v", i, stays[i], got)
			}

			if count := got.metadata["prompt_tokens"]; d.Direct && count != float64(got.tokens) {
				t.Errorf("the picker gets %v tokens: %v", count, got.metadata)
			}

			served.check(t, id, got)
		}
	}

	if len(used) != len(served.urls) {
		t.Errorf("%d of %d replicas were used", len(used), len(served.urls))
	}
}

// checkPickerStreams checks that a stream passes without delay and reports its
// replica at the end.
func checkPickerStreams(t *testing.T, d *stack.Dataplane, p *picker, served *servedReplicas) {
	t.Helper()
	id := strings.NewReplacer("/", "-", "=", "-", ",", "-").Replace(t.Name())
	body := fmt.Sprintf(`{"model":%q,"stream":true,"messages":[{"role":"user","content":"NOTHINK\nWORDS 10000 5"}]}`, stack.SGLangModel)
	resp := d.Do(t, http.MethodPost, "/v1/chat/completions", "application/json", strings.NewReader(body), "x-request-id", id)
	start := make([]byte, 2000)
	if _, err := io.ReadFull(resp.Body, start); err != nil || !strings.Contains(string(start), `"content":"w`) {
		t.Fatalf("%s, %v", start, err)
	}
	d.Sim = served.sims[slices.Index(served.urls, "http://"+p.pickOf(t, id).endpoint)]
	d.AwaitEngine(t, id, stack.StateRunning)
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
	d.AwaitEngine(t, id, stack.StateCancelled)
}

// checkPickerLargePrompt checks that a prompt of many ext_proc messages passes the
// picker unchanged.
func checkPickerLargePrompt(t *testing.T, d *stack.Dataplane, p *picker, served *servedReplicas) {
	t.Helper()
	id := strings.NewReplacer("/", "-", "=", "-", ",", "-").Replace(t.Name())
	resp, text := d.Chat(t, stack.SGLangModel, strings.Repeat("word ", 100_000)+"\nSAY done", "", "x-request-id", id)
	if resp.StatusCode != http.StatusOK || !strings.Contains(text, `"content":"done"`) {
		t.Fatalf("%s: %s", resp.Status, text)
	}
	got := p.pickOf(t, id)
	if served.check(t, id, got); got.tokens < 100_000 {
		t.Errorf("the picker got %+v", got)
	}
}

// checkPickerRejects checks that the picker's rejection reaches the client as an
// OpenAI error.
func checkPickerRejects(t *testing.T, d *stack.Dataplane, p *picker) {
	t.Helper()
	p.setFull(true)
	defer p.setFull(false)
	for _, more := range []string{"", `,"stream":true`} {
		resp, text := d.Chat(t, stack.SGLangModel, "SAY a", more)
		if stack.ReadError(t, text); resp.StatusCode != http.StatusTooManyRequests {
			t.Errorf("%s: %s: %s", more, resp.Status, text)
		}
	}
}

// checkPickerDown checks that Envoy selects a replica if the picker names an
// unavailable one, and that a picker that is down is an error.
func checkPickerDown(t *testing.T, d *stack.Dataplane, p *picker) {
	t.Helper()
	p.mu.Lock()
	p.endpoints = []string{"127.0.0.1:1"}
	p.mu.Unlock()
	for i := range 3 {
		if resp, text := d.Chat(t, stack.SGLangModel, fmt.Sprintf("SAY %d", i), ""); resp.StatusCode != http.StatusOK || !strings.Contains(text, fmt.Sprintf(`"content":"%d"`, i)) {
			t.Errorf("%s: %s", resp.Status, text)
		}
	}
	p.server.Stop()
	for _, more := range []string{"", `,"stream":true`} {
		resp, text := d.Chat(t, stack.SGLangModel, "SAY a", more)
		if stack.ReadError(t, text); resp.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("%s: %s: %s", more, resp.Status, text)
		}
	}
}

// Bodies of many messages pass two full-duplex filters in one chain unchanged, both
// ways: prompts and replies of 130 kB, and those of requests that both only relay.
func TestTwoFilters(t *testing.T) {
	stack.NeedEnvoy(t, 39) // 1.38.3 loses some replies, as docs/routing.md says
	const size, rounds, parallel = 130_000, 20, 4
	served := newServedReplicas(t, 2)
	p := startPicker(t, served.urls)

	d := stack.Start(t, stack.Options{SimURL: served.sims[0], Direct: true, Bootstrap: pickerOnAllRoutes, Config: func(c *config.Config) {
		c.Models = nil
		c.Engines = []config.Engine{{Kind: "vllm", URLs: served.urls, EndpointPicker: p.address}}
	}})
	d.Upstream.Handle(stack.Echo)

	t.Run("tokens", func(t *testing.T) {
		inParallel(t, parallel, rounds, func(worker, round int) {
			said := fmt.Sprintf("worker %d", worker) + strings.Repeat(" word", size/5)
			for _, more := range []string{"", `,"stream":true`} {
				id := fmt.Sprintf("two-%d-%d-%t", worker, round, more != "")
				resp, text := d.Chat(t, stack.SGLangModel, "NOTHINK\nSAY "+said, more, "x-request-id", id)
				if resp.StatusCode != http.StatusOK || contentOf(text, more != "") != said {
					t.Errorf("%s: the reply has %d bytes: %.300s", resp.Status, len(contentOf(text, more != "")), text)
					return
				}
				served.check(t, id, p.pickOf(t, id))
			}
		})
	})

	t.Run("relayed", func(t *testing.T) {
		inParallel(t, parallel, rounds, func(int, int) {
			checkEcho(t, d, "/v1/responses/x/y", "application/octet-stream", fmt.Appendf(nil, `{"noise":%q}`, strings.Repeat("noise", size/5)))
			checkEcho(t, d, "/v1/chat/completions", "application/json", otherModelChat(size))
		})
	})
}

// pickerOnAllRoutes edits a bootstrap: requests for others pass the picker, too.
func pickerOnAllRoutes(bootstrap string) string {
	const disabled = "endpoint_picker:\n                  \"@type\": type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExtProcPerRoute\n                  "
	return strings.Replace(bootstrap, disabled+"disabled: true", disabled+"overrides: {}", 1)
}

// inParallel calls a function rounds times in each of several goroutines.
func inParallel(t *testing.T, workers, rounds int, do func(worker, round int)) {
	t.Helper()
	var all sync.WaitGroup
	for worker := range workers {
		all.Go(func() {
			for round := 0; round < rounds && !t.Failed(); round++ {
				do(worker, round)
			}
		})
	}
	all.Wait()
}

// contentOf returns the text of a chat reply.
func contentOf(reply string, streamed bool) string {
	if !streamed {
		return gjson.Get(reply, "choices.0.message.content").String()
	}
	var text strings.Builder
	for line := range strings.SplitSeq(reply, "\n") {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			text.WriteString(gjson.Get(data, "choices.0.delta.content").String())
		}
	}
	return text.String()
}
