package upgrade

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver of PostgreSQL
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/responsestest"
)

// everyStore runs a test with an empty store of each kind.
func everyStore(t *testing.T, test func(t *testing.T, store string)) {
	// Two runs may share a server.
	name := fmt.Sprintf("upgrade_%d_%d", os.Getpid(), time.Now().UnixNano())
	t.Run("memory", func(t *testing.T) { test(t, "memory:") })
	t.Run("sqlite", func(t *testing.T) { test(t, "sqlite:"+filepath.Join(t.TempDir(), "store.db")) })

	t.Run("redis", func(t *testing.T) {
		test(t, with(server(t, "STORE_TEST_REDIS"), "prefix="+name+":"))
	})

	t.Run("postgres", func(t *testing.T) {
		url := server(t, "STORE_TEST_POSTGRES")
		db, err := sql.Open("pgx", url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			// The test's context has ended.
			_, _ = db.ExecContext(context.Background(), "DROP SCHEMA "+name+" CASCADE")
			_ = db.Close()
		})
		if _, err := db.ExecContext(t.Context(), "CREATE SCHEMA "+name); err != nil {
			t.Fatal(err)
		}
		test(t, with(url, "search_path="+name))
	})
}

// server returns the URL of a server that "make test-upgrade" has started.
func server(t *testing.T, variable string) string {
	t.Helper()
	url := os.Getenv(variable)
	if url == "" {
		t.Skipf("%s is not set: run make test-upgrade", variable)
	}
	return url
}

// with adds a parameter to a URL.
func with(url, parameter string) string {
	if strings.Contains(url, "?") {
		return url + "&" + parameter
	}
	return url + "?" + parameter
}

// TestUpgrade goes from the earlier version to this one and back, under load.
func TestUpgrade(t *testing.T) {
	everyStore(t, func(t *testing.T, store string) {
		earlier, current := releases(t)
		f := newFleet(t, earlier, store)

		f.start(earlier, 0)
		f.start(earlier, 1)
		f.change(t, "upgrade", current, 0)

		if announced(t, "tables") && (strings.HasPrefix(store, "sqlite:") || strings.HasPrefix(store, "postgres:")) {
			f.refuses(t, earlier)
		} else {
			f.change(t, "rollback", earlier, 2)
			f.drain(0)
			f.drain(1)
			f.ended(0)
			f.ended(1)
		}

		t.Run("records", func(t *testing.T) { f.readRecords(t, current, earlier) })
	})
}

// change replaces the filters at two places by filters of another version at the other two, one
// after the other. Nobody may notice who needs nothing of the process.
func (f *fleet) change(t *testing.T, name string, to release, place int) {
	next := (place + 2) % places
	running := f.startLoad()
	running.more()

	type pending struct {
		name string
		goOn func(t *testing.T)
	}
	var all []pending
	for _, c := range checks {
		if (c.store == anyStore || (c.store == shared) == f.shared) && !lacks(t, c.name) {
			all = append(all, pending{c.name, c.begin(t, f)})
		}
	}
	open := f.openReplies(t)

	for i := range 2 {
		f.start(to, next+i)
		// For a while both versions make turns of the same chains.
		running.more()
		f.drain(place + i)
		running.more()
	}

	open.afterDrain(t)
	f.ended(place)
	f.ended(place + 1)
	running.more()

	t.Run(name, func(t *testing.T) {
		for _, p := range all {
			t.Run(p.name, p.goOn)
		}
		t.Run("open-streams", open.streamsEnd)
		if f.shared {
			t.Run("background-in-flight", open.backgroundEnds)
		}
		t.Run("no-request-fails", running.end)
	})
}

// openReplies are replies that the engine is making while their filters drain.
type openReplies struct {
	f       *fleet
	streams []*stack.FaultStream
	// cut has what is wrong with each stream that has no right end.
	cut []string

	// path is a background response, and following gets what a client that follows it has seen
	// when its filter ends the stream.
	path      string
	following chan string

	// seen is what the client had, resumed what another filter then sends it.
	seen, resumed string
}

// openReplies begins a stream at each API and each filter, and a background response.
func (f *fleet) openReplies(t *testing.T) *openReplies {
	o := &openReplies{f: f, following: make(chan string, 1)}
	const words = "NOTHINK\nWORDS 100"
	// More than two of each: Envoy spreads them over the filters, and none may be left out.
	for i := range 4 {
		for _, a := range stack.FaultAPIs {
			o.streams = append(o.streams, f.Stream(t, a, checkModel, words, "X-Request-Id",
				fmt.Sprintf("%s%s-%d", heldID, a.Name, i)))
		}
	}
	if f.shared {
		o.follow(t, words)
	}
	return o
}

// follow begins a background response and follows it, until its filter ends the stream.
func (o *openReplies) follow(t *testing.T, words string) {
	t.Helper()
	resp := o.f.Do(t, http.MethodPost, "/v1/responses", "application/json",
		strings.NewReader(respond(words, `,"background":true,"stream":true`)), "X-Request-Id", heldID+o.f.id())
	lines := bufio.NewScanner(resp.Body)
	var seen strings.Builder
	for !strings.Contains(lines.Text(), "output_text.delta") && lines.Scan() {
		seen.WriteString(lines.Text() + "\n")
	}
	id := responseID(seen.String())
	if id == "" {
		t.Fatalf("status %d: no response in %s", resp.StatusCode, &seen)
	}
	o.path = "/v1/responses/" + id

	go func() {
		for lines.Scan() {
			seen.WriteString(lines.Text() + "\n")
		}
		o.following <- seen.String()
	}()
}

// afterDrain lets the replies end: their filters have been told to end, and take nothing new.
func (o *openReplies) afterDrain(t *testing.T) {
	t.Helper()
	resumed := make(chan string, 1)
	if o.f.shared {
		// The response has not ended: it is the drain that ends the stream, after drain_delay. The
		// client goes on at a filter of the other version.
		o.seen = stack.Receive(t, o.following, "the end of the followed stream")
		resp := o.f.Do(t, http.MethodGet, o.path+"?stream=true", "", http.NoBody)
		go func() {
			text, _, _ := stack.FaultAPIs[1].Read(resp.Body) // its end is checked with the whole
			resumed <- text
		}()
	}

	o.f.gate.open()
	for _, s := range o.streams {
		text, message, err := s.End()
		if err != nil || message != "" {
			o.cut = append(o.cut, fmt.Sprintf("%s: %v, error %q, in %s", s.API.Name, err, message, text))
		}
	}
	if o.f.shared {
		o.resumed = stack.Receive(t, resumed, "the end of the resumed stream")
	}
}

// streamsEnd checks that every stream has its end, and no error.
func (o *openReplies) streamsEnd(t *testing.T) {
	for _, problem := range o.cut {
		t.Error(problem)
	}
}

// backgroundEnds checks that the response has ended in the drain, that its client was told to
// resume, and that nothing is missing in the stream that it has resumed.
func (o *openReplies) backgroundEnds(t *testing.T) {
	object := o.f.awaitStatus(t, o.path, "completed")
	if text := object.Get("output.0.content.0.text").Str; strings.Count(text, " ") != 99 {
		t.Errorf("not 100 words: %s", text)
	}

	before, _, told := strings.Cut(o.seen, "event: error\n")
	if !told {
		t.Errorf("the followed stream does not end with an error event: %.3000s", o.seen)
	}

	if _, err := responsestest.Stream([]byte(o.resumed)); err != nil {
		t.Errorf("the resumed stream: %v, in %s", err, o.resumed)
	}
	if !strings.HasPrefix(o.resumed, before) {
		t.Errorf("the resumed stream does not begin with what the client had:\n%s\nbut\n%s", before, o.resumed)
	}
}

// refuses checks that a program does not start with the tables of a newer one, and says so.
func (f *fleet) refuses(t *testing.T, r release) {
	_, log, exit := r.command(t, nil, "serve", "--config", f.file(r), "--listen", f.addresses[0], "--admin",
		"127.0.0.1:0")
	if exit == 0 || !strings.Contains(log, "the tables have version") {
		t.Errorf("the %s version starts with the tables of the other, status %d: %s", r.name, exit, log)
	}
}

// TestCutShort is an upgrade for which drain_timeout is too short: a background response that
// does not end in time is failed, says why, and can be read with the next version.
func TestCutShort(t *testing.T) {
	everyStore(t, func(t *testing.T, store string) {
		earlier, current := releases(t)
		if store == "memory:" {
			t.Skip("memory: ends with its process")
		}
		for name, way := range map[string][2]release{"upgrade": {earlier, current}, "rollback": {current, earlier}} {
			if name == "rollback" && announced(t, "tables") {
				continue
			}
			t.Run(name, func(t *testing.T) {
				f := newFleet(t, earlier, store)
				f.config["drain_timeout"] = "300ms"
				f.start(way[0], 0)
				status, made := f.send(t, http.MethodPost, "/v1/responses",
					respond("NOTHINK\nWORDS 100", `,"background":true`), heldID+f.id())
				if status != http.StatusOK {
					t.Fatalf("status %d: %s", status, made)
				}
				stack.Receive(t, f.gate.held, "the model's call")

				f.start(way[1], 1)
				f.drain(0)
				f.ended(0)

				r := f.awaitStatus(t, "/v1/responses/"+gjson.Get(made, "id").Str, "failed")
				if message := r.Get("error.message").Str; !strings.Contains(message, "shut down") {
					t.Errorf("it does not say why: %s", r)
				}
			})
		}
	})
}
