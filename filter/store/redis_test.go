package store

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

// redisTestURL returns the URL of the real server that an environment variable
// names, with a prefix that no other test uses.
func redisTestURL(t testing.TB, variable string) string {
	t.Helper()
	raw := os.Getenv(variable)
	if raw == "" {
		t.Skip("no " + variable + `: "make test-stores" starts a server and sets it`)
	}
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("prefix", redisTestPrefix(t))
	u.RawQuery = query.Encode()
	return u.String()
}

var redisTests atomic.Int64

func redisTestPrefix(t testing.TB) string {
	return t.Name() + "." + strconv.FormatInt(time.Now().UnixNano(), 36) + "." + strconv.FormatInt(redisTests.Add(1), 10) + ":"
}

func openRedisTest(t testing.TB, rawURL string, o Options) *Redis {
	t.Helper()
	s, err := OpenRedis(t.Context(), rawURL, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// patience is how long tests wait for something to happen.
const patience = 2 * time.Minute

// receive returns the next value of a channel, or the zero value if it is
// closed.
func receive[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatalf("timeout: %s", what)
		panic("unreachable")
	}
}

var redisTestOptions = Options{ResponseTTL: time.Minute, TextTTL: time.Minute}

// TestRedisTTLs checks that all keys have a TTL, and that index entries do not
// expire before their chain.
func TestRedisTTLs(t *testing.T) {
	server := redisTestURL(t, "STORE_TEST_REDIS")
	s := openRedisTest(t, server, redisTestOptions)
	ctx := t.Context()
	for i, previous := range []string{"", "resp_0", "resp_1", "resp_0"} {
		n := strconv.Itoa(i)
		r := &Response{
			ID: "resp_" + n, Previous: previous, Version: 1, Object: []byte("{}"),
			Input:  []Item{{"in_" + n, []byte("1")}, {"shared", []byte(n)}},
			Output: []Item{{"out_" + n, []byte("2")}}, Live: true, Owner: "me", Lease: time.Minute,
		}
		must(t, s.Put(ctx, "t", r))
		must(t, s.Append(ctx, "t", r.ID, "me", Batch{First: 0, Last: 1, SSE: []byte("x")}))
	}
	must(t, s.PutConversation(ctx, "t", &Conversation{ID: "conv", Created: 7, Metadata: []byte("{}")}))
	must(t, s.AddItems(ctx, "t", "conv", "", []Item{{"a", []byte("1")}, {"b", []byte("2")}}))
	must(t, s.Lock(ctx, "t", "conv", "resp_0", time.Minute))
	must(t, s.PutTexts(ctx, "t", map[string]string{"one": "1"}))
	if _, err := s.PutTextIfAbsent(ctx, "t", "two", "2"); err != nil {
		t.Fatal(err)
	}
	check := func(state string, shortest time.Duration) {
		t.Helper()
		keys := redisKeys(t, s, "t")
		if len(keys) < 18 {
			t.Fatalf("%s: %v", state, keys)
		}
		for _, key := range keys {
			ttl, err := s.client.PTTL(ctx, key).Result()
			if err != nil {
				t.Fatal(err)
			}
			if ttl <= shortest || ttl > 75*time.Minute {
				t.Errorf("%s: %s expires in %v", state, key, ttl)
			}
		}
	}
	check("written", 0)

	// With a longer TTL, one call renews a chain and all its index entries.
	longer := openRedisTest(t, server, Options{ResponseTTL: time.Hour, TextTTL: time.Minute})
	if _, err := longer.Head(ctx, "t", "resp_0"); err != nil {
		t.Fatal(err)
	}
	must(t, longer.PutMetadata(ctx, "t", "conv", []byte("{}")))
	must(t, s.client.Del(ctx, s.textKey("t", "one"), s.textKey("t", "two")).Err())
	must(t, s.client.Set(ctx, s.base("t")+"1", "", time.Hour).Err()) // replaces the texts
	must(t, s.client.Set(ctx, s.base("t")+"2", "", time.Hour).Err())
	check("renewed", 50*time.Minute)

	for i := range 4 {
		must(t, s.Delete(ctx, "t", "resp_"+strconv.Itoa(i)))
	}
	must(t, s.DeleteConversation(ctx, "t", "conv"))
	if keys := redisKeys(t, s, "t"); len(keys) != 2 {
		t.Fatalf("left after all is deleted: %v", keys)
	}
}

// redisKeys returns all keys of a tenant.
func redisKeys(t *testing.T, s *Redis, tenant string) []string {
	t.Helper()
	var keys []string
	add := func(ctx context.Context, client *redis.Client) error {
		some, err := client.Keys(ctx, s.base(tenant)+"*").Result()
		keys = append(keys, some...)
		return err
	}
	var err error
	switch client := s.client.(type) {
	case *redis.ClusterClient:
		var mu sync.Mutex
		err = client.ForEachMaster(t.Context(), func(ctx context.Context, client *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			return add(ctx, client)
		})
	case *redis.Client:
		err = add(t.Context(), client)
	}
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestRedisEpochsDoNotRepeat checks that a response written after its whole
// chain was deleted has another epoch, although its version is the same.
func TestRedisEpochsDoNotRepeat(t *testing.T) {
	s := openRedisTest(t, redisTestURL(t, "STORE_TEST_REDIS"), redisTestOptions)
	r := &Response{ID: "r", Version: 1, Object: []byte("{}")}
	must(t, s.Put(t.Context(), "t", r))
	before, err := s.Head(t.Context(), "t", "r")
	must(t, err)
	must(t, s.Delete(t.Context(), "t", "r"))
	must(t, s.Put(t.Context(), "t", r))
	after, err := s.Head(t.Context(), "t", "r")
	must(t, err)
	if before == after {
		t.Errorf("Head of both is %v", after)
	}
}

// TestRedisItemResponses checks the limit on the responses indexed for an item.
func TestRedisItemResponses(t *testing.T) {
	s := openRedisTest(t, redisTestURL(t, "STORE_TEST_REDIS"), redisTestOptions)
	for i := range 100 {
		n := strconv.Itoa(i)
		must(t, s.Put(t.Context(), "t", &Response{ID: n, Version: 1, Input: []Item{{"item", []byte(n)}}}))
	}
	n, err := s.client.ZCard(t.Context(), s.base("t")+"item:item").Result()
	if err != nil || n != 64 {
		t.Errorf("%d responses, %v", n, err)
	}
	items, err := s.Items(t.Context(), "t", []string{"item"})
	if err != nil || string(items["item"].JSON) != "99" {
		t.Errorf("%v, %v", items, err)
	}
}

func TestRedisTenantKeysDiffer(t *testing.T) {
	s := &Redis{prefix: redisPrefix}
	ownerOf := map[string]string{}
	for _, tenant := range []string{"", "a", "a:b", "a}", "}", "{", "{}", "@", "a}:text", "a%7D", "%", "ä", "a b", "a+b"} {
		for _, name := range []string{"", "c", "b:c", "}:text:c"} {
			key, owner := s.textKey(tenant, name), strconv.Quote(tenant)+" "+strconv.Quote(name)
			if other, ok := ownerOf[key]; ok {
				t.Errorf("%s is the key of %s and of %s", key, other, owner)
			}
			ownerOf[key] = owner
			// The hash tag is the text between the first { and the next }.
			_, rest, _ := strings.Cut(key, "{")
			if tag, _, ok := strings.Cut(rest, "}"); !ok || tag == "" || tag != strings.TrimSuffix(strings.TrimPrefix(s.base(tenant), redisPrefix+"{"), "}:") {
				t.Errorf("hash tag of %s is %q", key, tag)
			}
		}
	}
}

func TestOpenRedisErrors(t *testing.T) {
	for _, test := range []struct{ name, url, want string }{
		{"option", "redis://localhost?pool=3", "pool"},
		{"scheme", "redis-ring://localhost", "scheme"},
		{"no primary", "redis-sentinel://localhost", "master_name"},
		{"prefix", "redis://localhost?prefix={x}", "prefix"},
		{"slash in the password", "redis://me:12/secret@localhost:1", "percent-encoded"},
		{"port", "redis://me:secret@localhost:port", "percent-encoded"},
		{"database", "redis://me:secret@localhost/secret", "percent-encoded"},
		{"option, with a password", "redis://me:secret@localhost?pool=3", "options"},
		{"cluster", "redis-cluster://me:secret@localhost?addr=secret", "percent-encoded"},
		{"sentinel", "redis-sentinel://localhost?master_name=m&password=secret&x=secret", "options"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := OpenRedis(t.Context(), test.url, redisTestOptions)
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestRedisReconnects checks that calls fail while the server is unreachable,
// and that calls and followers work again afterwards.
func TestRedisReconnects(t *testing.T) {
	server, err := url.Parse(redisTestURL(t, "STORE_TEST_REDIS"))
	if err != nil {
		t.Fatal(err)
	}
	if server.Scheme != "redis" {
		t.Skip("the proxy supports only one server")
	}
	leaks := goleak.IgnoreCurrent()
	proxy := newProxy(t, server.Host)
	server.Host = proxy.addr
	s, err := OpenRedis(t.Context(), server.String(), redisTestOptions)
	must(t, err)

	ctx := t.Context()
	if err := s.Put(ctx, "t", &Response{ID: "r", Version: 1}); err == nil || errors.Is(err, ErrNotFound) || errors.Is(err, ErrConflict) {
		t.Fatalf("Put without a server: %v", err)
	}
	if _, err := s.Events(ctx, "t", "r", -1, time.Minute); err == nil {
		t.Fatal("Events without a server: no error")
	}

	proxy.up()
	must(t, s.Put(ctx, "t", &Response{ID: "r", Version: 1, Live: true, Owner: "me", Lease: time.Minute}))
	got := make(chan []Batch, 1)
	go func() {
		for ctx.Err() == nil {
			batches, err := s.Events(ctx, "t", "r", -1, time.Minute)
			if err == nil { // otherwise it was woken while the server was unreachable
				got <- batches
				return
			}
		}
	}()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) { // wait until the follower is subscribed
		channels, err := s.client.PubSubChannels(ctx, "*"+strings.NewReplacer("[", `\[`, "]", `\]`).Replace(s.base("t"))+"*").Result()
		must(t, err)
		if len(channels) == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("subscribed channels: %v", channels)
		}
	}
	proxy.down()
	if err := s.Append(ctx, "t", "r", "me", Batch{First: 0, Last: 0, SSE: []byte("x")}); err == nil {
		t.Fatal("Append without a server: no error")
	}
	proxy.up()
	must(t, s.Append(ctx, "t", "r", "me", Batch{First: 0, Last: 0, SSE: []byte("x")}))
	if diff := cmp.Diff([]Batch{{First: 0, Last: 0, SSE: []byte("x")}}, receive(t, got, "the follower's events")); diff != "" {
		t.Error(diff)
	}
	must(t, s.Close())
	proxy.down()
	goleak.VerifyNone(t, leaks)
}

// TestRedisServerDoesNotAnswer checks that with a server that accepts
// connections and does not answer, followers and Close do not wait for
// subscriptions.
func TestRedisServerDoesNotAnswer(t *testing.T) {
	const followers = 16
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	accepted := make(chan net.Conn, 10*followers)
	go func() {
		defer close(accepted)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	s, err := OpenRedis(t.Context(), "redis://"+listener.Addr().String()+"?pool_size=16&dial_timeout=1h&read_timeout=1h", redisTestOptions)
	must(t, err)
	results := make(chan error, followers)
	for i := range followers {
		go func() {
			_, err := s.Events(t.Context(), "t", strconv.Itoa(i), -1, time.Minute)
			results <- err
		}()
	}
	var conns []net.Conn
	for range followers + 1 { // and the connection of the subscriptions
		select {
		case conn := <-accepted:
			conns = append(conns, conn)
		case err := <-results:
			t.Fatalf("Events before the server has answered: %v", err)
		}
	}
	must(t, s.Close()) // while no call has been answered
	listener.Close()
	for conn := range accepted {
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		conn.Close()
	}
	for range followers {
		if receive(t, results, "a follower's end") == nil {
			t.Error("Events without an answer: no error")
		}
	}
	receive(t, s.subscriptions.done, "the end of the subscriptions")
}

// proxy is a TCP proxy that can be switched off.
type proxy struct {
	t            *testing.T
	addr, server string

	mu       sync.Mutex
	listener net.Listener
	conns    []net.Conn // nil: switched off
	copying  sync.WaitGroup
}

func newProxy(t *testing.T, server string) *proxy {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return &proxy{t: t, addr: listener.Addr().String(), server: server}
}

func (r *proxy) up() {
	listener, err := net.Listen("tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	r.listener = listener
	r.conns = []net.Conn{}
	r.copying.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			r.forward(client)
		}
	})
}

func (r *proxy) forward(client net.Conn) {
	server, err := net.Dial("tcp", r.server)
	if err != nil {
		client.Close()
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conns == nil {
		client.Close()
		server.Close()
		return
	}
	r.conns = append(r.conns, client, server)
	r.copying.Go(func() { _, _ = io.Copy(server, client); server.Close() })
	r.copying.Go(func() { _, _ = io.Copy(client, server); client.Close() })
}

func (r *proxy) down() {
	r.listener.Close()
	r.mu.Lock()
	for _, conn := range r.conns {
		conn.Close()
	}
	r.conns = nil
	r.mu.Unlock()
	r.copying.Wait()
}

// TestRedisDamage checks that damaged data is an error, not ErrNotFound.
func TestRedisDamage(t *testing.T) {
	s := openRedisTest(t, redisTestURL(t, "STORE_TEST_REDIS"), redisTestOptions)
	must(t, s.Put(t.Context(), "t", &Response{ID: "r", Version: 1, Input: []Item{{"i", []byte("1")}}}))
	must(t, s.client.HSet(t.Context(), s.base("t")+"chain:r", "b:r", "\x07").Err())
	if _, err := s.Get(t.Context(), "t", "r"); !errors.Is(err, errBody) {
		t.Errorf("Get: %v", err)
	}
	if _, err := s.Items(t.Context(), "t", []string{"i"}); !errors.Is(err, errBody) {
		t.Errorf("Items: %v", err)
	}
	must(t, s.client.HSet(t.Context(), s.base("t")+"chain:r", "h:r", "\xc1").Err())
	if _, err := s.Get(t.Context(), "t", "r"); err == nil || errors.Is(err, ErrNotFound) {
		t.Errorf("Get: %v", err)
	}
}

func TestRedisTooLarge(t *testing.T) {
	s := openRedisTest(t, "redis://127.0.0.1:1", redisTestOptions)
	r := &Response{ID: "r", Version: 1, Object: make([]byte, maxRedisValue+1)}
	if err := s.Put(t.Context(), "t", r); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%v", err)
	}
}

// TestRedisEvictedParts checks that a conversation or chain of which the server
// has evicted a part does not exist.
func TestRedisEvictedParts(t *testing.T) {
	s := openRedisTest(t, redisTestURL(t, "STORE_TEST_REDIS"), redisTestOptions)
	ctx := t.Context()
	for _, part := range []string{"conversation:", "order:"} {
		must(t, s.PutConversation(ctx, "t", &Conversation{ID: "c", Metadata: []byte("{}")}))
		must(t, s.AddItems(ctx, "t", "c", "", []Item{{"a", []byte("1")}, {"b", []byte("2")}}))
		must(t, s.DeleteItem(ctx, "t", "c", "a"))
		must(t, s.client.Del(ctx, s.base("t")+part+"c").Err())
		if _, err := s.ConversationItems(ctx, "t", "c", Page{}); !errors.Is(err, ErrNotFound) {
			t.Errorf("without its %s: %v", part, err)
		}
	}
	for _, part := range []string{"chain:a", "response:b"} {
		_ = s.Delete(ctx, "t", "a")
		must(t, s.Put(ctx, "t", &Response{ID: "a", Version: 1}))
		must(t, s.Put(ctx, "t", &Response{ID: "b", Version: 1, Previous: "a"}))
		must(t, s.client.Del(ctx, s.base("t")+part).Err())
		if _, err := s.Chain(ctx, "t", "b"); !errors.Is(err, ErrNotFound) {
			t.Errorf("without %s: %v", part, err)
		}
	}
}
