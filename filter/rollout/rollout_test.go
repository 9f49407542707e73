package rollout

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// The numbers of some sessions, by another implementation of what docs/routing.md
// says. They must never change: sessions would change their sides.
func TestBucketsAreStable(t *testing.T) {
	terse := Read([]byte(`{"messages":[{"role":"system","content":"You are terse."},{"role":"user","content":"Hi"}]}`))
	greeting := Read([]byte(`{"input":"Gr\u00fc\u00dfe"}`))
	for _, c := range []struct {
		name string
		key  Key
		want int
	}{
		{"session of a tenant", Named("acme", "s1"), 61},
		{"session", Named("", "s1"), 78},
		{"long name", Named("acme", strings.Repeat("x", 200)), 83},
		{"beginning of a tenant's", terse.Beginning("acme", "gpt-oss-120b"), 98},
		{"beginning", greeting.Beginning("", "gpt-oss-20b"), 66},
	} {
		if got := c.key.Bucket(); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// Of many sessions the percentage is in, within five standard deviations.
func TestShares(t *testing.T) {
	const sessions = 20_000
	for _, percent := range []int{0, 1, 5, 20, 50, 99, 100} {
		in := 0
		for i := range sessions {
			if Named("tenant", strconv.Itoa(i)).In(percent) {
				in++
			}
		}
		p := float64(percent) / 100
		if off := math.Abs(float64(in) - p*sessions); off > 5*math.Sqrt(sessions*p*(1-p)) {
			t.Errorf("%d %%: %d of %d", percent, in, sessions)
		}
	}
}

// A session that is in stays in while the percentage rises.
func TestMonotone(t *testing.T) {
	for i := range 2000 {
		k := Named("", strconv.Itoa(i))
		if k.In(0) || !k.In(100) {
			t.Fatalf("session %d: in at 0: %t, in at 100: %t", i, k.In(0), k.In(100))
		}
		for percent := range 100 {
			if k.In(percent) && !k.In(percent+1) {
				t.Fatalf("session %d is in at %d and not at %d", i, percent, percent+1)
			}
		}
	}
}

// randomText is some words.
func randomText(r *rand.Rand) string {
	words := []string{"Hi", "Grüße", "\"quoted\"", "a\nb", "<|start|>", "😀", "\u0000", ""}
	text := make([]string, r.IntN(5))
	for i := range text {
		text[i] = words[r.IntN(len(words))]
	}
	return strings.Join(text, " ")
}

type object = map[string]any

// parts is a text as parts of a message, of the type that an API has.
func parts(r *rand.Rand, text, kind string) any {
	if r.IntN(2) == 0 {
		return text
	}
	cut := r.IntN(len(text) + 1)
	for cut < len(text) && text[cut]&0xc0 == 0x80 { // inside a character
		cut++
	}
	return []object{{"type": kind, "text": text[:cut]}, {"type": kind, "text": text[cut:]}}
}

func body(t *testing.T, r *rand.Rand, fields object) []byte {
	t.Helper()
	text, err := json.Marshal(fields)
	if r.IntN(2) == 0 {
		text, err = json.MarshalIndent(fields, " ", "\t")
	}
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// The turns of a conversation have one key, in both APIs and however they are
// written; another first message has another key.
func TestTurnsHaveOneKey(t *testing.T) {
	const turns = 4
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		system, user := randomText(r), randomText(r)
		messages, items := make([]object, 0, 2+2*turns), make([]object, 0, 1+3*turns)
		messages = append(messages, object{"role": "system", "content": parts(r, system, "text")}, object{"role": "user", "content": parts(r, user, "text")})
		items = append(items, object{"role": "user", "content": parts(r, user, "input_text")})
		first := Read(body(t, r, object{"messages": messages, "model": "m"}))
		want := first.Beginning("t", "m")
		for turn := range turns {
			for name, text := range map[string][]byte{
				"chat":                   body(t, r, object{"messages": messages, "temperature": turn}),
				"responses":              body(t, r, object{"instructions": system, "input": items, "stream": true}),
				"responses, a developer": body(t, r, object{"input": append([]object{{"type": "message", "role": "developer", "content": system}}, items...)}),
			} {
				if q := Read(text); q.Beginning("t", "m") != want {
					t.Fatalf("turn %d, %s has another key: %s", turn, name, text)
				}
			}
			if turn == 0 {
				q := Read(body(t, r, object{"instructions": system, "input": user}))
				if q.Beginning("t", "m") != want {
					t.Fatal("a text as input has another key")
				}
			}
			answer, next := randomText(r), randomText(r)
			messages = append(messages, object{"role": "assistant", "content": answer}, object{"role": "user", "content": next})
			items = append(items, object{"type": "reasoning", "id": fmt.Sprint("rs_", turn)}, object{"role": "assistant", "content": answer}, object{"role": "user", "content": next})
		}
		other := Read(body(t, r, object{"messages": []object{{"role": "system", "content": system}, {"role": "user", "content": user + "!"}}}))
		if other.Beginning("t", "m") == want || first.Beginning("u", "m") == want || first.Beginning("t", "n") == want {
			t.Fatal("another conversation, tenant or model has the same key")
		}
	}
}

func TestRead(t *testing.T) {
	for _, c := range []struct {
		body string
		want Request
	}{
		{`{"previous_response_id":"resp_1","input":"x"}`, Request{Response: "resp_1", user: "x"}},
		{`{"previous_response_id":null,"conversation":"conv_1"}`, Request{Conversation: "conv_1"}},
		{`{"conversation":{"id":"conv_2"},"prompt_cache_key":"k"}`, Request{Conversation: "conv_2", CacheKey: "k"}},
		{`{"prompt_cache_key":5,"conversation":[1],"instructions":{}}`, Request{}},
		{`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"u"}}]}]}`, Request{user: `{"type":"image_url","image_url":{"url":"u"}}`}},
		{`{"messages":[{"role":"tool","content":"r"},{"role":"user","content":null}]}`, Request{system: `{"role":"tool","content":"r"}`}},
		{`{"messages":[7,"x",null]}`, Request{system: `7"x"null`}},
		{`{"system":[{"type":"text","text":"changes"}],"metadata":{"user_id":"u"},"messages":[{"role":"user","content":[{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}]}]}`, Request{user: "x"}},
		{`{"messages":{"role":"user"}}`, Request{}},
		{`{"messages":[`, Request{}},
		{`[]`, Request{}},
		{``, Request{}},
	} {
		if got := Read([]byte(c.body)); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.body, got, c.want)
		}
	}
}

// A body can have very many messages and parts before the first user's text. The
// time and the memory that reading takes grow with its length, not with its square.
func TestReadIsLinear(t *testing.T) {
	few, many := 2_000, 64_000
	for name, body := range map[string]func(n int) string{
		"messages": func(n int) string {
			return `{"messages":[` + strings.Repeat(`{},`, n) + `{"role":"user","content":"x"}]}`
		},
		"system messages": func(n int) string {
			return `{"input":[` + strings.Repeat(`{"role":"system","content":"a"},`, n) + `{"role":"user","content":"x"}]}`
		},
		"parts": func(n int) string {
			return `{"messages":[{"role":"user","content":[` + strings.Repeat(`{},`, n) + `{"text":"x"}]}]}`
		},
		"repeated keys": func(n int) string { return `{` + strings.Repeat(`"messages":[{}],`, n) + `"model":"m"}` },
	} {
		allocated := func(n int) uint64 {
			text := []byte(body(n))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			Read(text)
			runtime.ReadMemStats(&after)
			return after.TotalAlloc - before.TotalAlloc
		}
		small, large := allocated(few), allocated(many)
		if limit := 4 * uint64(many/few) * small; large > limit {
			t.Errorf("%s: %d bytes for %d of them, %d bytes for %d", name, small, few, large, many)
		}
	}
}
