package stores

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// faulty is a data plane whose store fails.
type faulty struct {
	*stack.Dataplane
	t       *testing.T
	client  openai.Client
	metrics *prometheus.Registry
	stored  string // id of a response that is stored
	n       int    // requests so far
}

// startFaulty starts a data plane with a store, and stores a response.
func startFaulty(t *testing.T, storeURL string) *faulty {
	t.Helper()
	f := &faulty{t: t, metrics: prometheus.NewRegistry()}
	f.Dataplane = stack.Start(t, stack.Options{Metrics: f.metrics, Config: func(c *config.Config) {
		c.StoreURL = storeURL
		c.Responses.RelayUnknown = false
	}})
	f.client = f.Openai()
	f.stored = f.respond(`,"metadata":{"first":"yes"}`, true)
	return f
}

// chats sends a chat request, which has to succeed.
func (f *faulty) chats() (requestID string) {
	f.t.Helper()
	f.n++
	requestID = "chat-" + strconv.Itoa(f.n)
	resp, text := f.Chat(f.t, stack.SGLangModel, "SAY hello "+requestID, "", "X-Request-Id", requestID)
	if resp.StatusCode != http.StatusOK || gjson.Get(text, "choices.0.message.content").Str != "hello "+requestID {
		f.t.Fatalf("chat: %d %s", resp.StatusCode, text)
	}
	return requestID
}

// post sends a request for a response.
func (f *faulty) post(more string) (status int, body string) {
	f.t.Helper()
	f.n++
	resp := f.Do(f.t, http.MethodPost, "/v1/responses", "application/json",
		strings.NewReader(fmt.Sprintf(`{"model":%q,"input":"SAY %d"%s}`, stack.SGLangModel, f.n, more)))
	return resp.StatusCode, stack.ReadText(f.t, resp)
}

// respond sends a request for a response, which has to succeed and say whether it is
// stored.
func (f *faulty) respond(more string, stored bool) (id string) {
	f.t.Helper()
	status, text := f.post(more)
	if status != http.StatusOK || gjson.Get(text, "status").Str != "completed" {
		f.t.Fatalf("response: %d %s", status, text)
	}
	if got := gjson.Get(text, "store").Bool(); got != stored {
		f.t.Errorf("the response says store: %t, want %t", got, stored)
	}
	return gjson.Get(text, "id").Str
}

// reads reads the stored response, or another one.
func (f *faulty) reads(id string) error {
	_, err := f.client.Responses.Get(f.t.Context(), id, responses.ResponseGetParams{})
	return err
}

// goesOn checks what must not depend on the store, and that a response says that it
// is not stored.
func (f *faulty) goesOn() {
	f.t.Helper()
	f.chats()
	f.respond(`,"store":false`, false)
	f.respond("", false)
}

// unavailable checks that what needs the store is an error that says so.
func (f *faulty) unavailable() {
	f.t.Helper()
	stack.WantError(f.t, "read a response", f.reads(f.stored), http.StatusServiceUnavailable, "store_unavailable", "")
	if status, text := f.post(`,"previous_response_id":"` + f.stored + `"`); status != http.StatusServiceUnavailable || gjson.Get(text, "error.code").Str != "store_unavailable" {
		f.t.Errorf("continue a response: %d %s", status, text)
	}
}

// recovers waits until the store works again: what was stored before can be read
// and continued, and new responses are stored.
func (f *faulty) recovers() {
	f.t.Helper()
	f.eventually("the stored response can be read", func() bool { return f.reads(f.stored) == nil })
	f.eventually("a response is stored", func() bool {
		status, text := f.post(`,"previous_response_id":"` + f.stored + `"`)
		return status == http.StatusOK && gjson.Get(text, "store").Bool() && f.reads(gjson.Get(text, "id").Str) == nil
	})
	f.chats()
}

func (f *faulty) eventually(what string, condition func() bool) {
	f.t.Helper()
	for deadline := time.Now().Add(stack.Patience); !condition(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.t.Fatalf("timeout: %s", what)
		}
	}
}

// hangs is the metric that says whether the store hangs.
func (f *faulty) hangs() bool { return stack.Gather(f.t, f.metrics)["harmony_store_hangs{}"] == 1 }

// notices sends chat requests until the filter notices that the store hangs. Then
// they do not wait for it.
func (f *faulty) notices() {
	f.t.Helper()
	f.eventually("the filter notices that the store hangs", func() bool {
		var side sync.WaitGroup
		for i := range 5 {
			body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"SAY %d %d"}]}`, stack.SGLangModel, f.n, i)
			side.Go(func() {
				resp, err := f.Client.Post(f.URL+"/v1/chat/completions", "application/json", strings.NewReader(body))
				if err != nil {
					f.t.Error(err)
					return
				}
				defer resp.Body.Close()
				if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
					f.t.Errorf("chat: %d, %v", resp.StatusCode, err)
				}
			})
		}

		side.Wait()
		return f.hangs()
	})

	id := f.chats()
	f.eventually("the log line of a request that did not wait", func() bool {
		for line := range strings.Lines(f.Logs.String()) {
			if strings.Contains(line, id) && strings.Contains(line, "none is made until it answers again") {
				return true
			}
		}
		return false
	})
}

// serverStores runs a test with each store that is a server, behind a proxy.
func serverStores(t *testing.T, test func(t *testing.T, p *storeProxy, storeURL string)) {
	for name, variable := range map[string]string{"redis": "STORE_TEST_REDIS", "postgres": "STORE_TEST_POSTGRES"} {
		t.Run(name, func(t *testing.T) {
			u, err := url.Parse(os.Getenv(variable))
			if err != nil || u.Host == "" {
				t.Skipf("%s is not set: run make test-stores", variable)
			}
			p := newStoreProxy(t, u.Host)
			u.Host = p.address
			test(t, p, u.String())
		})
	}
}

// A store with a round trip of 100 ms, and one of 600 ms: everything works.
func TestStoresSlow(t *testing.T) {
	serverStores(t, func(t *testing.T, p *storeProxy, storeURL string) {
		f := startFaulty(t, storeURL)
		for _, roundTrip := range []time.Duration{100 * time.Millisecond, 600 * time.Millisecond} {
			p.set(roundTrip/2, false)
			f.chats()
			id := f.respond(`,"previous_response_id":"`+f.stored+`"`, true)
			if err := f.reads(id); err != nil {
				t.Errorf("%v: %v", roundTrip, err)
			}
			if f.hangs() {
				t.Errorf("%v: the store counts as hanging", roundTrip)
			}
		}
	})
}

// A store that accepts connections and does not answer: after a few requests nobody
// waits for it, and a background response is completed when it answers again.
func TestStoresHang(t *testing.T) {
	serverStores(t, func(t *testing.T, p *storeProxy, storeURL string) {
		f := startFaulty(t, storeURL)
		background := stack.BeginBackground(t, f.client, stack.SGLangModel, "THINK Hm.\nWORDS 50\nSIM delay=20ms")
		p.set(0, true)
		f.notices()
		f.goesOn()
		f.unavailable()
		p.set(0, false)
		f.recovers()
		f.eventually("the store counts as answering", func() bool { return !f.hangs() })
		if r := stack.AwaitBackground(t, f.client, background.ID); r.Status != "completed" || !strings.HasSuffix(r.OutputText(), "w50") {
			t.Errorf("response %s", r.RawJSON())
		}
	})
}

// Another process has locked the file of SQLite: writes wait, and reads do not.
func TestStoresSQLiteLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	f := startFaulty(t, "sqlite:"+path)
	db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // a test's
	locked, err := db.BeginTx(context.WithoutCancel(t.Context()), nil)
	if err != nil {
		t.Fatal(err)
	}
	f.notices()
	f.goesOn()
	if err := locked.Rollback(); err != nil {
		t.Fatal(err)
	}
	f.recovers()
}

// A store that cannot be reached.
func TestStoresDown(t *testing.T) {
	serverStores(t, func(t *testing.T, p *storeProxy, storeURL string) {
		f := startFaulty(t, storeURL)
		p.down()
		f.goesOn()
		f.unavailable()
		p.up()
		f.recovers()
	})
}

// A SQLite store has no more than its bound, and drops the oldest responses.
func TestStoresSQLiteBound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	f := &faulty{t: t}
	f.Dataplane = stack.Start(t, stack.Options{Quiet: true, Config: func(c *config.Config) {
		c.StoreURL, c.Responses.StoreBytes, c.Limits.KeptReasoningBytes = "sqlite:"+path, 1<<20, 1<<20
		c.Responses.RelayUnknown = false
	}})
	f.client = f.Openai()
	filler := `,"metadata":{"filler":"` + strings.Repeat("x", 500) + `"},"instructions":"` + strings.Repeat("Be brief. ", 5000) + `"`
	first := f.respond(filler, true)
	last := ""
	for range 100 {
		last = f.respond(filler, true)
	}
	stack.WantError(t, "the oldest response", f.reads(first), http.StatusNotFound, "response_not_found", "response_id")
	if err := f.reads(last); err != nil {
		t.Errorf("the newest response: %v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Size() > 6<<20 {
		t.Errorf("the file has %d bytes, %v", info.Size(), err)
	}
}

// startRedis starts a Redis server of the test's own.
func startRedis(t *testing.T, args ...string) (address string, server *redis.Client, kill func()) {
	t.Helper()
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("there is no redis-server: run make test-stores")
	}

	port := stack.FreePort(t)
	cmd := exec.Command(binary, append(args, "--bind", "127.0.0.1", "--port", port, "--dir", t.TempDir(), "--save", "", "--appendonly", "no")...)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
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
	t.Cleanup(func() {
		kill()
		if t.Failed() {
			t.Logf("redis-server on port %s:\n%s", port, &log)
		}
	})

	stack.AwaitPort(t, port)
	address = "127.0.0.1:" + port
	server = redis.NewClient(&redis.Options{Addr: address})
	t.Cleanup(func() { _ = server.Close() })
	return address, server, kill
}

// A Redis server whose memory is full, and one that is read-only: what is stored can
// be read. A full one can also be made room in.
func TestStoresRedisUnwritable(t *testing.T) {
	address, server, _ := startRedis(t, "--maxmemory-policy", "noeviction")
	ctx := t.Context()

	for _, c := range []struct {
		name            string
		fault, repaired []any
		deletes         bool
	}{
		{"full", []any{"config", "set", "maxmemory", "1"}, []any{"config", "set", "maxmemory", "0"}, true},
		{"read-only", []any{"replicaof", "127.0.0.1", "1"}, []any{"replicaof", "no", "one"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := startFaulty(t, "redis://"+address)
			other := f.respond("", true)
			if err := server.Do(ctx, c.fault...).Err(); err != nil {
				t.Fatal(err)
			}

			f.goesOn()
			if err := f.client.Responses.Delete(ctx, other); (err == nil) != c.deletes {
				t.Errorf("delete a response: %v", err)
			}
			if f.hangs() {
				t.Error("the store counts as hanging")
			}

			if err := server.Do(ctx, c.repaired...).Err(); err != nil {
				t.Fatal(err)
			}
			f.recovers()
		})
	}
}

// The primary of a Redis dies, and the sentinel makes its replica the primary.
func TestStoresRedisSentinel(t *testing.T) {
	primary, _, kill := startRedis(t)
	host, port, _ := strings.Cut(primary, ":")
	_, replica, _ := startRedis(t, "--replicaof", host+" "+port)

	settings := filepath.Join(t.TempDir(), "sentinel.conf")
	text := fmt.Sprintf("sentinel monitor main %s %s 1\nsentinel down-after-milliseconds main 500\nsentinel failover-timeout main 3000\n", host, port)
	if err := os.WriteFile(settings, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	address, sentinel, _ := startRedis(t, settings, "--sentinel")
	f := startFaulty(t, "redis-sentinel://"+address+"?master_name=main")

	f.eventually("the replica has the response", func() bool {
		info, err := replica.Info(t.Context(), "replication").Result()
		keys, _ := replica.Keys(t.Context(), "*"+f.stored+"*").Result()
		return err == nil && strings.Contains(info, "master_link_status:up") && len(keys) > 0
	})
	f.eventually("the sentinel knows the replica", func() bool {
		replicas, err := sentinel.Do(t.Context(), "sentinel", "replicas", "main").Slice()
		return err == nil && len(replicas) > 0
	})

	kill()
	f.goesOn()
	f.recovers()

	if role, err := replica.Do(t.Context(), "role").Slice(); err != nil || role[0] != "master" {
		t.Errorf("the replica is %v, %v", role, err)
	}
}

// A PostgreSQL database that is read-only: what is stored can be read.
func TestStoresPostgresReadOnly(t *testing.T) {
	u, err := url.Parse(os.Getenv("STORE_TEST_POSTGRES"))
	if err != nil || u.Host == "" {
		t.Skip("STORE_TEST_POSTGRES is not set: run make test-stores")
	}
	admin, err := sql.Open("pgx", u.String())
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close() //nolint:errcheck // a test's

	name := "faults_" + strconv.FormatInt(time.Now().UnixNano(), 10)
	run := func(statement string) {
		t.Helper()
		if _, err := admin.ExecContext(context.WithoutCancel(t.Context()), statement); err != nil {
			t.Fatal(err)
		}
	}
	run("CREATE DATABASE " + name)
	defer run("DROP DATABASE " + name + " WITH (FORCE)")

	u.Path = name
	f := startFaulty(t, u.String())

	for _, readOnly := range []string{"on", "off"} {
		run("ALTER DATABASE " + name + " SET default_transaction_read_only = " + readOnly)
		run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '" + name + "'")
		if readOnly == "on" {
			f.eventually("the stored response can be read", func() bool { return f.reads(f.stored) == nil })
			f.goesOn()
			if err := f.client.Responses.Delete(t.Context(), f.stored); err == nil {
				t.Error("a response is deleted")
			}
		}
	}

	f.recovers()
}

// PostgreSQL restarts while there are requests: no reply fails for it, those that
// are stored can be read, and the others say that they are not.
func TestStoresPostgresRestart(t *testing.T) {
	command := os.Getenv("STORE_TEST_POSTGRES_RESTART")
	if command == "" {
		t.Skip("STORE_TEST_POSTGRES_RESTART, a command, is not set: run make test-stores")
	}
	f := startFaulty(t, os.Getenv("STORE_TEST_POSTGRES"))

	restarted := make(chan error, 1)
	go func() {
		out, err := exec.Command("sh", "-c", command).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, out)
		}
		restarted <- err
	}()

	var ids []string
	for running := true; running; {
		select {
		case err := <-restarted:
			if err != nil {
				t.Fatal(err)
			}
			running = false
		default:
		}

		f.chats()
		status, text := f.post("")
		if status != http.StatusOK || gjson.Get(text, "status").Str != "completed" {
			t.Errorf("response: %d %s", status, text)
		} else if gjson.Get(text, "store").Bool() {
			ids = append(ids, gjson.Get(text, "id").Str)
		}
	}

	f.recovers()
	for _, id := range ids {
		if err := f.reads(id); err != nil {
			t.Errorf("a response that says that it is stored: %v", err)
		}
	}
}
