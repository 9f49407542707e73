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

// redisTestURL is the URL of the real server that an environment variable
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

// patience is how long something may take that is waited for.
const patience = 20 * time.Second

// receive waits for a value, or for the channel's end.
func receive[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatalf("waited in vain: %s", what)
		panic("unreachable")
	}
}

var redisTestAges = Options{ResponseTTL: time.Minute, TextTTL: time.Minute}

// A key without an age stays for ever; an index entry that goes before its
// chain hides a response that is there.
func TestRedisEverythingHasAnAge(t *testing.T) {
	server := redisTestURL(t, "STORE_TEST_REDIS")
	s := openRedisTest(t, server, redisTestAges)
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
	must(t, s.Hold(ctx, "t", "conv", "resp_0", time.Minute))
	must(t, s.PutTexts(ctx, "t", map[string]string{"one": "1"}))
	if _, err := s.FirstText(ctx, "t", "two", "2"); err != nil {
		t.Fatal(err)
	}
	check := func(when string, shortest time.Duration) {
		t.Helper()
		keys := redisKeys(t, s, "t")
		if len(keys) < 18 {
			t.Fatalf("%s: %v", when, keys)
		}
		for _, key := range keys {
			age, err := s.client.PTTL(ctx, key).Result()
			if err != nil {
				t.Fatal(err)
			}
			if age <= shortest || age > 75*time.Minute {
				t.Errorf("%s: %s expires in %v", when, key, age)
			}
		}
	}
	check("written", 0)

	// With a longer age one call renews all that leads to the chain.
	longer := openRedisTest(t, server, Options{ResponseTTL: time.Hour, TextTTL: time.Minute})
	if _, err := longer.Head(ctx, "t", "resp_0"); err != nil {
		t.Fatal(err)
	}
	must(t, longer.PutMetadata(ctx, "t", "conv", []byte("{}")))
	must(t, s.client.Del(ctx, s.textKey("t", "one"), s.textKey("t", "two")).Err())
	must(t, s.client.Set(ctx, s.base("t")+"1", "", time.Hour).Err()) // in place of the texts
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

// redisKeys lists a tenant's keys.
func redisKeys(t *testing.T, s *Redis, tenant string) []string {
	t.Helper()
	var keys []string
	of := func(ctx context.Context, client *redis.Client) error {
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
			return of(ctx, client)
		})
	case *redis.Client:
		err = of(t.Context(), client)
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

// A response that takes the place of one with all its chain gone has another
// epoch, though its version is the same.
func TestRedisEpochsDoNotRepeat(t *testing.T) {
	s := openRedisTest(t, redisTestURL(t, "STORE_TEST_REDIS"), redisTestAges)
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

// The memory that an item's holders take has a bound.
func TestRedisHoldersOfAnItem(t *testing.T) {
	s := openRedisTest(t, redisTestURL(t, "STORE_TEST_REDIS"), redisTestAges)
	for i := range 100 {
		n := strconv.Itoa(i)
		must(t, s.Put(t.Context(), "t", &Response{ID: n, Version: 1, Input: []Item{{"item", []byte(n)}}}))
	}
	n, err := s.client.ZCard(t.Context(), s.base("t")+"item:item").Result()
	if err != nil || n != 64 {
		t.Errorf("%d holders, %v", n, err)
	}
	items, err := s.Items(t.Context(), "t", []string{"item"})
	if err != nil || string(items["item"].JSON) != "99" {
		t.Errorf("%v, %v", items, err)
	}
}

func TestRedisTenantsShareNoKey(t *testing.T) {
	s := &Redis{prefix: redisPrefix}
	of := map[string]string{}
	for _, tenant := range []string{"", "a", "a:b", "a}", "}", "{", "{}", "@", "a}:text", "a%7D", "%", "ä", "a b", "a+b"} {
		for _, name := range []string{"", "c", "b:c", "}:text:c"} {
			key, whose := s.textKey(tenant, name), strconv.Quote(tenant)+" "+strconv.Quote(name)
			if other, ok := of[key]; ok {
				t.Errorf("%s is of %s and of %s", key, other, whose)
			}
			of[key] = whose
			// Redis hashes what is between the first { and the } after it.
			_, rest, _ := strings.Cut(key, "{")
			if tag, _, ok := strings.Cut(rest, "}"); !ok || tag == "" || tag != strings.TrimSuffix(strings.TrimPrefix(s.base(tenant), redisPrefix+"{"), "}:") {
				t.Errorf("hash tag of %s is %q", key, tag)
			}
		}
	}
}

func TestOpenRedisRefuses(t *testing.T) {
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
			_, err := OpenRedis(t.Context(), test.url, redisTestAges)
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%v", err)
			}
		})
	}
}

// While the server is away calls fail; when it is back they work again, also for
// those who wait for events.
func TestRedisServerComesAndGoes(t *testing.T) {
	server, err := url.Parse(redisTestURL(t, "STORE_TEST_REDIS"))
	if err != nil {
		t.Fatal(err)
	}
	if server.Scheme != "redis" {
		t.Skip("the relay is for one server")
	}
	leaks := goleak.IgnoreCurrent()
	relay := newRelay(t, server.Host)
	server.Host = relay.addr
	s, err := OpenRedis(t.Context(), server.String(), redisTestAges)
	must(t, err)

	ctx := t.Context()
	if err := s.Put(ctx, "t", &Response{ID: "r", Version: 1}); err == nil || errors.Is(err, ErrNotFound) || errors.Is(err, ErrConflict) {
		t.Fatalf("Put without a server: %v", err)
	}
	if _, err := s.Events(ctx, "t", "r", -1, time.Minute); err == nil {
		t.Fatal("Events without a server: no error")
	}

	relay.up()
	must(t, s.Put(ctx, "t", &Response{ID: "r", Version: 1, Live: true, Owner: "me", Lease: time.Minute}))
	got := make(chan []Batch, 1)
	go func() {
		for ctx.Err() == nil {
			batches, err := s.Events(ctx, "t", "r", -1, time.Minute)
			if err == nil { // else it woke up while the server was away
				got <- batches
				return
			}
		}
	}()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) { // until the follower is subscribed
		channels, err := s.client.PubSubChannels(ctx, "*"+strings.NewReplacer("[", `\[`, "]", `\]`).Replace(s.base("t"))+"*").Result()
		must(t, err)
		if len(channels) == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the follower is subscribed to %v", channels)
		}
	}
	relay.down()
	if err := s.Append(ctx, "t", "r", "me", Batch{First: 0, Last: 0, SSE: []byte("x")}); err == nil {
		t.Fatal("Append without a server: no error")
	}
	relay.up()
	must(t, s.Append(ctx, "t", "r", "me", Batch{First: 0, Last: 0, SSE: []byte("x")}))
	if diff := cmp.Diff([]Batch{{First: 0, Last: 0, SSE: []byte("x")}}, receive(t, got, "the follower's events")); diff != "" {
		t.Error(diff)
	}
	must(t, s.Close())
	relay.down()
	goleak.VerifyNone(t, leaks)
}

// While a server takes connections and does not answer, followers do not wait
// for each other's subscriptions, and Close does not wait for them either.
func TestRedisServerIsSilent(t *testing.T) {
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
	s, err := OpenRedis(t.Context(), "redis://"+listener.Addr().String()+"?pool_size=16&dial_timeout=1h&read_timeout=1h", redisTestAges)
	must(t, err)
	results := make(chan error, followers)
	for i := range followers {
		go func() {
			_, err := s.Events(t.Context(), "t", strconv.Itoa(i), -1, time.Minute)
			results <- err
		}()
	}
	var conns []net.Conn
	for range followers + 1 { // and the one for news
		select {
		case conn := <-accepted:
			conns = append(conns, conn)
		case err := <-results:
			t.Fatalf("Events before the server has answered: %v", err)
		}
	}
	must(t, s.Close()) // while nobody answers
	listener.Close()
	for conn := range accepted {
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		conn.Close()
	}
	for range followers {
		if receive(t, results, "a follower's end") == nil {
			t.Error("Events of a server that is silent: no error")
		}
	}
	receive(t, s.subscriptions.done, "the end of the subscriptions")
}

// relay is a way to a server that can be closed.
type relay struct {
	t            *testing.T
	addr, server string

	mu       sync.Mutex
	listener net.Listener
	conns    []net.Conn // nil: down
	copying  sync.WaitGroup
}

func newRelay(t *testing.T, server string) *relay {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return &relay{t: t, addr: listener.Addr().String(), server: server}
}

func (r *relay) up() {
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
			r.carry(client)
		}
	})
}

func (r *relay) carry(client net.Conn) {
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

func (r *relay) down() {
	r.listener.Close()
	r.mu.Lock()
	for _, conn := range r.conns {
		conn.Close()
	}
	r.conns = nil
	r.mu.Unlock()
	r.copying.Wait()
}

// What scripts cannot read is an error, not a response that is not there.
func TestRedisDamage(t *testing.T) {
	s := openRedisTest(t, redisTestURL(t, "STORE_TEST_REDIS"), redisTestAges)
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
	s := openRedisTest(t, "redis://127.0.0.1:1", redisTestAges)
	r := &Response{ID: "r", Version: 1, Object: make([]byte, maxRedisValue+1)}
	if err := s.Put(t.Context(), "t", r); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%v", err)
	}
}

// A server that evicts keys may take a part of what belongs together. Then all
// of it is gone; what is left is never taken for the whole.
func TestRedisEvictedParts(t *testing.T) {
	s := openRedisTest(t, redisTestURL(t, "STORE_TEST_REDIS"), redisTestAges)
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
