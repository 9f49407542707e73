package stores

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/conversations"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/envoy"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/responsestest"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// sharedStores runs a test with each store that several filters can share. "make
// test-stores" sets the servers' URLs.
func sharedStores(t *testing.T, test func(t *testing.T, url string)) {
	t.Run("sqlite", func(t *testing.T) { test(t, "sqlite:"+filepath.Join(t.TempDir(), "store.db")) })
	for name, variable := range map[string]string{"redis": "STORE_TEST_REDIS", "postgres": "STORE_TEST_POSTGRES"} {
		t.Run(name, func(t *testing.T) {
			url := os.Getenv(variable)
			if url == "" {
				t.Skipf("%s is not set: run make test-stores", variable)
			}
			test(t, url)
		})
	}
}

// startReplicas starts two filters with one store and one engine, each behind an Envoy.
func startReplicas(t *testing.T, url string) (a, b *stack.Dataplane) {
	t.Helper()
	withStore := func(c *config.Config) { c.StoreURL = url }
	a = stack.Start(t, stack.Options{Config: withStore})
	b = stack.Start(t, stack.Options{Config: withStore, SimURL: a.Sim})
	a.Upstream.Handle(stack.NotFound)
	b.Upstream.Handle(stack.NotFound)
	return a, b
}

// Two filters with one store are one service: a response that one has created can
// be read, continued, followed and cancelled at the other.
func TestStoresTwoReplicas(t *testing.T) {
	sharedStores(t, func(t *testing.T, url string) {
		a, b := startReplicas(t, url)
		ca, cb := a.CheckedOpenAI(t), b.CheckedOpenAI(t)

		t.Run("chain", func(t *testing.T) {
			p := stack.Asking(stack.VLLMModel, "THINK Hm.\nSAY one")
			p.Instructions = openai.String("Be old.")
			r := stack.RespondStreamed(t, ca, p)
			p = stack.Asking(stack.VLLMModel, "SAY two")
			p.Instructions, p.PreviousResponseID = openai.String("Be new."), openai.String(r.ID)
			next := stack.RespondWhole(t, cb, p, option.WithHeader("X-Request-Id", "chain-across"))
			prompt := a.AwaitEngine(t, "chain-across", stack.StateFinished).Prompt
			if !strings.Contains(prompt, "Be new.") || strings.Contains(prompt, "Be old.") || !strings.Contains(prompt, "one<|end|>") {
				t.Errorf("prompt %q", prompt)
			}
			stored, err := ca.Responses.Get(t.Context(), next.ID, responses.ResponseGetParams{})
			if err != nil {
				t.Fatal(err)
			}
			stack.SameJSON(t, "read with the other", next.RawJSON(), stored.RawJSON())
			if err := cb.Responses.Delete(t.Context(), r.ID); err != nil {
				t.Fatal(err)
			}
			p.PreviousResponseID = openai.String(next.ID)
			_, err = ca.Responses.New(t.Context(), p)
			stack.WantError(t, "continue a chain that was deleted with the other", err, http.StatusBadRequest, "previous_response_not_found", "previous_response_id")
		})
		t.Run("follow and resume", func(t *testing.T) {
			r := stack.BeginBackground(t, ca, stack.SGLangModel, "THINK Hm.\nWORDS 50\nSIM delay=10ms")
			live := b.Resume(t, r.ID, "")
			if _, err := responsestest.Stream([]byte(live)); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(live, a.Resume(t, r.ID, "")); diff != "" {
				t.Errorf("the two streams differ:\n%s", diff)
			}
			if diff := cmp.Diff(stack.EventsAfter(t, live, 12), b.Resume(t, r.ID, "&starting_after=12")); diff != "" {
				t.Errorf("resumed:\n%s", diff)
			}
			if r := stack.AwaitBackground(t, cb, r.ID); r.Status != "completed" || !strings.HasSuffix(r.OutputText(), "w50") {
				t.Errorf("response %s", r.RawJSON())
			}
		})
		t.Run("cancel", func(t *testing.T) {
			r := stack.BeginBackground(t, ca, stack.VLLMModel, "WORDS 1000000\nSIM delay=5ms", option.WithHeader("X-Request-Id", "cancel-across"))
			a.AwaitEngine(t, "cancel-across", stack.StateRunning)
			got, err := cb.Responses.Cancel(t.Context(), r.ID)
			if err != nil || got.Status != "cancelled" {
				t.Fatalf("%v, %v", got, err)
			}
			a.AwaitEngine(t, "cancel-across", stack.StateCancelled)
			if got := stack.AwaitBackground(t, ca, r.ID); got.Status != "cancelled" {
				t.Errorf("response %s", got.RawJSON())
			}
		})
		t.Run("conversation", func(t *testing.T) {
			c, err := ca.Conversations.New(t.Context(), conversations.ConversationNewParams{})
			if err != nil {
				t.Fatal(err)
			}
			p := stack.Asking(stack.SGLangModel, "SAY one")
			p.Conversation = responses.ResponseNewParamsConversationUnion{OfString: openai.String(c.ID)}
			stack.RespondWhole(t, ca, p)
			p = stack.Asking(stack.SGLangModel, "SAY two")
			p.Conversation = responses.ResponseNewParamsConversationUnion{OfString: openai.String(c.ID)}
			stack.RespondWhole(t, cb, p, option.WithHeader("X-Request-Id", "conversation-across"))
			if prompt := a.AwaitEngine(t, "conversation-across", stack.StateFinished).Prompt; !strings.Contains(prompt, "one<|end|>") {
				t.Errorf("prompt %q", prompt)
			}
		})
	})
}

// What the model wrote with one filter stands in the prompt of the next step, which another one renders:
// reasoning that the client leaves out, and tokens that no encoder makes of the arguments.
func TestStoresExactHistory(t *testing.T) {
	sharedStores(t, func(t *testing.T, url string) {
		a, b := startReplicas(t, url)

		var letters strings.Builder
		for _, letter := range "word" {
			fmt.Fprintf(&letters, "<#%d>", harmony.AppendEncode(nil, string(letter))[0])
		}
		script := `@@<channel>analysis<message>I look.<end><start>assistant<channel>commentary to=functions.look <constrain>json<message>{ "at": "` +
			letters.String() + `" }<call>@@<channel>final<message>Seen.<return>@@`
		conversation := append(make([]any, 0, 3), map[string]any{"role": "user", "content": script})
		ask := func(d *stack.Dataplane, id string) (gjson.Result, stack.EngineRequest) {
			body, err := json.Marshal(map[string]any{
				"model": stack.VLLMModel, "messages": conversation,
				"tools": []any{map[string]any{"type": "function", "function": map[string]any{"name": "look"}}},
			})
			if err != nil {
				t.Fatal(err)
			}
			reply := d.Answer(t, "/v1/chat/completions", string(body), "X-Request-Id", id)
			return gjson.Get(reply, "choices.0.message"), a.AwaitEngine(t, id, stack.StateFinished)
		}

		said, first := ask(a, "exact-at-one")
		calls := said.Get("tool_calls")
		if calls.Get("0.function.arguments").Str != `{ "at": "word" }` {
			t.Fatalf("message %s", said.Raw)
		}
		conversation = append(conversation,
			map[string]any{"role": "assistant", "content": nil, "tool_calls": calls.Value()},
			map[string]any{"role": "tool", "tool_call_id": calls.Get("0.id").Str, "content": "ok"})
		said, next := ask(b, "exact-at-other")
		if said.Get("content").Str != "Seen." {
			t.Errorf("message %s", said.Raw)
		}
		if has := slices.Concat(first.PromptIDs, first.OutputIDs[0]); len(next.PromptIDs) < len(has) || !slices.Equal(next.PromptIDs[:len(has)], has) {
			t.Errorf("the prompt\n%s\ndoes not continue\n%s%s", next.Prompt, first.Prompt, first.Output[0])
		}
	})
}

// If a filter is killed during a response, another filter returns the response as
// failed, also to a client that follows the stream.
func TestStoresReplicaIsKilled(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "envoy-harmony")
	if out, err := exec.Command("go", stack.BuildArgs(binary, "../cmd/envoy-harmony")...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	sharedStores(t, func(t *testing.T, url string) {
		other := stack.Start(t, stack.Options{Config: func(c *config.Config) { c.StoreURL = url }})
		other.Upstream.Handle(stack.NotFound)
		killed, kill := startServe(t, binary, other.Sim, url)

		body := `{"model":"gpt-oss-20b","input":"THINK Hm.\nWORDS 1000000\nSIM delay=5ms","background":true,"stream":true}`
		resp := killed.Do(t, http.MethodPost, "/v1/responses", "application/json", strings.NewReader(body))
		id := ""
		for lines := bufio.NewScanner(resp.Body); lines.Scan() && !strings.Contains(lines.Text(), "output_text.delta"); {
			if found := gjson.Get(strings.TrimPrefix(lines.Text(), "data: "), "response.id").Str; found != "" {
				id = found
			}
		}
		if id == "" {
			t.Fatalf("status %d, and no event with the response", resp.StatusCode)
		}

		foreground := killed.Do(t, http.MethodPost, "/v1/responses", "application/json", strings.NewReader(`{"model":"gpt-oss-20b","input":"WORDS 1000000\nSIM delay=5ms","stream":true}`))
		first, err := bufio.NewReader(foreground.Body).ReadString('}')
		if err != nil {
			t.Fatal(err)
		}

		kill()
		sse := other.Resume(t, id, "")
		object, err := responsestest.Stream([]byte(sse))
		if err != nil || gjson.GetBytes(object, "status").Str != "failed" || gjson.GetBytes(object, "output.0.type").Str != "reasoning" {
			t.Errorf("%v: the stream ends with %s", err, object)
		}

		c := other.CheckedOpenAI(t)
		if r := stack.AwaitBackground(t, c, id); r.Status != "failed" {
			t.Errorf("response %s", r.RawJSON())
		}

		_, half, _ := strings.Cut(first, `"id":"`)
		half, _, _ = strings.Cut(half, `"`)
		_, err = c.Responses.Get(t.Context(), half, responses.ResponseGetParams{})
		stack.WantStatus(t, err, http.StatusNotFound)
	})
}

// startServe runs the filter in its own process behind an Envoy.
func startServe(t *testing.T, binary, sim, store string) (d *stack.Dataplane, kill func()) {
	t.Helper()
	proxy, err := envoy.Find(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}

	dir, log := stack.SocketDir(t), stack.LogOf(t)
	cfg := stack.NewConfig(t, sim, func(c *config.Config) { c.Loopback = "unix://" + filepath.Join(dir, "loopback") })
	socket := "unix://" + filepath.Join(dir, "filter")

	cmd := exec.CommandContext(context.Background(), binary, "serve", "--engine", "sglang", "--listen", socket, "--admin", "127.0.0.1:0",
		"--set", "loopback="+cfg.Loopback, "--set", "store_url="+store)
	cmd.Stderr = log.Named("serve")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	dead := false
	kill = func() {
		if !dead {
			dead = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	t.Cleanup(kill)

	for deadline := time.Now().Add(stack.Patience); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("unix", strings.TrimPrefix(socket, "unix://"))
		if err == nil {
			conn.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the filter does not start: %v", err)
		}
	}

	// An Envoy that is started before the filter finds it unhealthy at first.
	d = &stack.Dataplane{Sim: sim, Client: stack.NewClient(t)}
	d.URL, d.Admin = stack.StartEnvoy(t, proxy, cfg, socket, sim, stack.Options{}, log)
	return d, kill
}
