package responses

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/read"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// countingStore counts what is read of a store.
type countingStore struct {
	store.Store
	heads, gets, chains int
	rows, bytes         int // of responses, and of the items in them
}

func (c *countingStore) Head(ctx context.Context, tenant, id string) (store.Head, error) {
	c.heads++
	c.rows++
	return c.Store.Head(ctx, tenant, id)
}

func (c *countingStore) Get(ctx context.Context, tenant, id string) (*store.Response, error) {
	c.gets++
	r, err := c.Store.Get(ctx, tenant, id)
	if err == nil {
		c.count(r)
	}
	return r, err
}

func (c *countingStore) Chain(ctx context.Context, tenant, id string) ([]*store.Response, error) {
	c.chains++
	chain, err := c.Store.Chain(ctx, tenant, id)
	for _, r := range chain {
		c.count(r)
	}
	return chain, err
}

func (c *countingStore) count(r *store.Response) {
	c.rows++
	for _, items := range [][]store.Item{r.Input, r.Output} {
		for _, item := range items {
			c.bytes += len(item.JSON)
		}
	}
}

// reads is what has been read since it was last asked.
func (c *countingStore) reads() string {
	defer func() { c.heads, c.gets, c.chains, c.rows, c.bytes = 0, 0, 0, 0, 0 }()
	return fmt.Sprintf("%d heads, %d responses, %d chains", c.heads, c.gets, c.chains)
}

// replica is another process with s's store, which remembers chains.
func (s *server) replica() (*server, *countingStore) {
	c := &countingStore{Store: s.Store}
	api := s.API
	api.Store, api.Chains = c, read.NewChains(1<<20)
	return &server{api, s.rc}, c
}

// madeTurn is a response of a test's chain.
type madeTurn struct {
	id    string
	calls []string // that wait for their outputs
}

var modelTurns = []apitest.Output{
	apitest.Said("<|channel|>final<|message|>answer<|return|>"),
	apitest.Said("<|channel|>analysis<|message|>thought<|end|><|start|>assistant<|channel|>final<|message|>answer<|return|>"),
	apitest.Said("<|channel|>analysis<|message|>thought of a call<|end|><|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{}<|call|>"),
	apitest.Said("<|channel|>analysis<|message|>thought of two<|end|><|start|>assistant<|channel|>commentary<|message|>preamble<|end|><|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>1<|end|><|start|>assistant to=mcp__fs.read<|channel|>commentary json<|message|>2<|call|>"),
	apitest.Said("<|channel|>commentary<|message|>preamble<|end|>"),
	apitest.Cut("<|channel|>analysis<|message|>thought<|end|><|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{\"cut"),
	apitest.Cut("<|channel|>final<|message|>cut"),
}

// nextRequest is the members of a request that continues a response, now and
// then a wrong one.
func nextRequest(rng *rand.Rand, previous madeTurn) string {
	members := []string{``, mixedTools, mixedTools, weatherTool}[rng.IntN(4)] +
		[]string{``, `,"instructions":"be brief"`, `,"instructions":"be long"`}[rng.IntN(3)] +
		[]string{``, `,"reasoning":{"effort":"none"}`, `,"reasoning":{"effort":"high"}`}[rng.IntN(3)] +
		[]string{``, ``, ``, `,"background":true`}[rng.IntN(4)]
	if previous.id != "" {
		members += `,"previous_response_id":"` + previous.id + `"`
	}
	var input []string
	for _, id := range previous.calls {
		if rng.IntN(20) > 0 {
			input = append(input, `{"type":"function_call_output","call_id":"`+id+`","output":"result"}`)
		}
	}
	rng.Shuffle(len(input), func(i, j int) { input[i], input[j] = input[j], input[i] })
	for range rng.IntN(3) {
		input = append(input, []string{
			`{"role":"user","content":"question"}`,
			`{"role":"user","content":"question"}`,
			`{"role":"developer","content":"rule"}`,
			`{"role":"assistant","content":"said"}`,
			`{"role":"assistant","content":""}`,
			`{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"the client's"}]}`,
			`{"type":"function_call","call_id":"own","name":"get_weather","arguments":"{}"},{"type":"function_call_output","call_id":"own","output":""}`,
		}[rng.IntN(7)])
	}
	return members + `,"input":[` + strings.Join(input, ",") + `]`
}

// make makes a response to a request.
func (s *server) make(t *testing.T, body []byte, out apitest.Output) madeTurn {
	t.Helper()
	request, apiErr := s.decode(body, s.rc)
	if apiErr != nil {
		t.Fatal(apiErr)
	}
	if request.Options.Background {
		if _, _, err := request.Queue(context.Background(), "owner", time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	r := newReply(request, api.SingleCall)
	if _, err := r.Push(nil, &engine.Chunk{Tokens: out.Tokens, Finish: out.Finish}); err != nil {
		t.Fatal(err)
	}
	mustEnd(t, r, nil)
	if err := r.Fault(); err != nil {
		t.Fatal(err)
	}
	made := madeTurn{id: request.ResponseID}
	stored, err := s.Store.Get(context.Background(), s.rc.Tenant, made.id)
	if err != nil {
		t.Fatal(err)
	}
	for _, it := range stored.Output {
		if v := gjson.ParseBytes(it.JSON); v.Get("call_id").Exists() && !item.IsCutCall(it) {
			made.calls = append(made.calls, v.Get("call_id").Str)
		}
	}
	return made
}

// TestRememberedChains shows that what replicas remember of chains never shows
// but in their speed: chains that branch, are deleted in part, and are made by
// several replicas, have the prompts and errors of chains that are read.
func TestRememberedChains(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(9, 10))
	short := 0
	for range 60 {
		reader := newServer()
		reader.Chains = nil
		first, firstReads := reader.replica()
		second, secondReads := reader.replica()
		made := []madeTurn{{}}
		for range 20 {
			previous := made[len(made)-1]
			if rng.IntN(4) == 0 {
				previous = made[rng.IntN(len(made))]
			}
			body := []byte(`{"model":"gpt-oss-20b"` + nextRequest(rng, previous) + `}`)
			want, wantErr := reader.decode(body, reader.rc)
			for s, reads := range map[*server]*countingStore{first: firstReads, second: secondReads} {
				reads.reads()
				got, err := s.decode(body, s.rc)
				if previous.id != "" && reads.gets+reads.chains == 0 {
					short++
				}
				if (err == nil) != (wantErr == nil) || err != nil && string(err.JSON()) != string(wantErr.JSON()) {
					t.Fatalf("%s: %v, want %v", body, err, wantErr)
				}
				if err == nil {
					if diff := cmp.Diff(apitest.Spell(t, want.Engine().Prompt), apitest.Spell(t, got.Engine().Prompt)); diff != "" {
						t.Fatalf("%s: another prompt:\n%s", body, diff)
					}
				}
			}
			if wantErr != nil {
				continue
			}
			s := []*server{first, second}[rng.IntN(2)]
			made = append(made, s.make(t, body, modelTurns[rng.IntN(len(modelTurns))]))
			if gone := 1 + rng.IntN(len(made)-1); rng.IntN(15) == 0 {
				_ = reader.Store.Delete(context.Background(), reader.rc.Tenant, made[gone].id)
			}
		}
	}
	if short < 300 {
		t.Errorf("only %d turns went on from what was remembered", short)
	}
}

// TestChainReads counts what is read of the store for the next turn.
func TestChainReads(t *testing.T) {
	t.Parallel()
	s := newServer()
	first, reads := s.replica()
	second, secondReads := s.replica()
	body := func(members string, previous madeTurn) []byte {
		return []byte(`{"model":"gpt-oss-20b"` + weatherTool + members + `,"input":"question"` + previousOf(previous) + `}`)
	}
	last := madeTurn{}
	for i := range 6 {
		reads.reads()
		if last = first.make(t, body(`,"background":`+strconv.FormatBool(i%3 < 2), last), modelTurns[1]); i > 0 {
			if got := reads.reads(); got != "1 heads, 1 responses, 0 chains" { // the test reads the response
				t.Errorf("turn %d: %s", i, got)
			}
		}
	}
	decode := func(s *server, want string, c *countingStore) {
		t.Helper()
		c.reads()
		if _, err := s.decode(body("", last), s.rc); err != nil {
			t.Fatal(err)
		}
		if got := c.reads(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	decode(second, "1 heads, 1 responses, 1 chains", secondReads) // knows nothing
	decode(second, "1 heads, 0 responses, 0 chains", secondReads)
	last = first.make(t, body("", last), modelTurns[1])
	decode(second, "1 heads, 1 responses, 0 chains", secondReads) // knows all but the last
}

func previousOf(m madeTurn) string {
	if m.id == "" {
		return ""
	}
	return `,"previous_response_id":"` + m.id + `"`
}

// TestChainOfLive continues a response that is still being made.
func TestChainOfLive(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]*server{"remembering": newServer(), "reading": newServer()} {
		if name == "reading" {
			s.Chains = nil
		}
		request, err := s.decode([]byte(ask(`,"background":true`)), s.rc)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := request.Queue(context.Background(), "owner", time.Minute); err != nil {
			t.Fatal(err)
		}
		if apiErr := s.fails(t, `,"input":"more","previous_response_id":"`+request.ResponseID+`"`); apiErr.Param != "previous_response_id" || !strings.Contains(apiErr.Message, "still being made") {
			t.Errorf("%s: %v", name, apiErr)
		}
	}
}

// TestRememberedTurn goes on with a response under its own id, as Codex
// compatibility mode does, and then with another.
func TestRememberedTurn(t *testing.T) {
	t.Parallel()
	reader := codexServer()
	reader.Chains = nil
	s, reads := reader.replica()
	turn := s.codex(t, `,"input":"one"`, callsOne)
	for range 3 {
		id, callID := turn.Get("id").Str, turn.Get("output.@reverse.0.call_id").Str
		members := `,"previous_response_id":"` + id + `","input":[{"type":"function_call_output","call_id":"` + callID + `","output":"sunny"}]`
		reads.reads()
		if diff := cmp.Diff(reader.codexPrompt(t, members), s.codexPrompt(t, members)); diff != "" {
			t.Fatal(diff)
		}
		if got := reads.reads(); got != "1 heads, 1 responses, 0 chains" { // the mode itself reads the response
			t.Error(got)
		}
		if turn = s.codex(t, members, callsOne); turn.Get("id").Str != id {
			t.Errorf("the id %q, want %q", turn.Get("id").Str, id)
		}
	}
}

// TestRememberedCompaction continues a chain that is compacted.
func TestRememberedCompaction(t *testing.T) {
	t.Parallel()
	reader := newCompactor(t, 1)
	reader.Chains = nil
	s, _ := reader.replica()
	previous := ""
	for i, input := range []string{`"one"`, `"two"`, `[{"type":"compaction_trigger"}]`, `"three"`, `"four"`, `[{"type":"compaction_trigger"}]`, `"five"`} {
		members := previous + `,"input":` + input
		if diff := cmp.Diff(reader.prompt(t, members), s.prompt(t, members)); diff != "" {
			t.Fatalf("turn %d: %s", i, diff)
		}
		previous = `,"previous_response_id":"` + s.create(t, members, said).Get("id").Str + `"`
	}
}
