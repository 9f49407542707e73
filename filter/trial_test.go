package filter

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/chat"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// calls are the model calls of a run.
type calls struct{ made []*engine.Request }

func (c *calls) call(r *engine.Request, _ detour) *apierror.Error {
	c.made = append(c.made, r)
	return nil
}
func (c *calls) work([]tools.Job) {}

// newTrialRun is a run of a chat call whose engine takes no grammar. Without
// calls nothing can be made again.
func newTrialRun(t *testing.T, fields string, c *calls) (*run, *audience) {
	t.Helper()
	s := newScript(t, nil)
	x := s.x
	m, _ := x.s.cfg.Model("gpt-oss")
	dialect, _ := engine.ByKind("llamacpp")
	x.target = target{true, m, dialect}
	call, err := chat.Decode(context.Background(), []byte(ask(fields)), x.s.scope(x))
	if err != nil {
		t.Fatal(err)
	}
	a := &audience{}
	r := newRun(x.s, a, chatCall{call}, x.target, &x.rec, &x.timers, "abc", s.now)
	if c == nil {
		r.await(call.Engine())
	} else {
		r.start(c, http.Header{})
	}
	return r, a
}

// llamacppNews is an answer as llama.cpp streams it.
func llamacppNews(text, stopType string) []engineEvent {
	news := []engineEvent{headersNews()}
	ids := tokens(text)
	for i, id := range ids {
		content, _ := json.Marshal(shownAs(id))
		news = append(news, bytesNews(fmt.Sprintf(`data: {"content":%s,"tokens":[%d],"stop":false,"tokens_predicted":%d}`+"\n\n", content, id, i+1)))
	}
	last := fmt.Sprintf(`data: {"content":"","tokens":[],"stop":true,"stop_type":%q,"tokens_predicted":%d,"timings":{"cache_n":4}}`+"\n\n", stopType, len(ids))
	return append(news, bytesNews(last), engineEvent{end: true})
}

func shownAs(id harmony.Token) string {
	text, _ := harmony.AppendDecode(nil, []harmony.Token{id})
	return string(text)
}

// contentOf is the answer in a reply, streamed or not.
func contentOf(reply string) string {
	var content strings.Builder
	for line := range strings.Lines(reply) {
		line = strings.TrimPrefix(line, "data: ")
		content.WriteString(gjson.Get(line, "choices.0.delta.content").Str)
		content.WriteString(gjson.Get(line, "choices.0.message.content").Str)
	}
	return content.String()
}

// A reply of an engine that takes no grammar is checked before anything of it is
// shown. One that breaks a promise is made once more, and then fails by name.
func TestPromisesAreTriedTwice(t *testing.T) {
	t.Parallel()
	const format = `,"seed":7,"response_format":{"type":"json_object"}`
	kept := llamacppNews(`<|channel|>final<|message|>{"a":1}<|return|>`, "eos")
	broken := llamacppNews("<|channel|>analysis<|message|>secret<|end|><|start|>assistant<|channel|>final<|message|>hello<|return|>", "eos")
	cut := llamacppNews(`<|channel|>final<|message|>{"a`, "limit")
	for name, c := range map[string]struct {
		news  [][]engineEvent // of each call
		calls int
		text  string // shown; "": the error
	}{
		"kept":                         {[][]engineEvent{kept}, 1, `{"a":1}`},
		"broken, then kept":            {[][]engineEvent{broken, kept}, 2, `{"a":1}`},
		"broken twice":                 {[][]engineEvent{broken, broken}, 2, ""},
		"cut by its length":            {[][]engineEvent{cut}, 1, `{"a`},
		"lost, then kept":              {[][]engineEvent{{headersNews(), {err: errBroken}}, kept}, 2, `{"a":1}`},
		"lost, then broken":            {[][]engineEvent{{headersNews(), {err: errBroken}}, broken}, 2, ""},
		"lost midway, then kept":       {[][]engineEvent{append(broken[:3:3], engineEvent{err: errBroken}), kept}, 2, `{"a":1}`},
		"lost midway, then broken":     {[][]engineEvent{append(broken[:3:3], engineEvent{err: errBroken}), broken}, 2, ""},
		"broken, then cut, is cut off": {[][]engineEvent{broken, cut}, 2, `{"a`},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, stream %t", name, stream), func(t *testing.T) {
				t.Parallel()
				made := &calls{}
				r, a := newTrialRun(t, fmt.Sprintf(`%s,"stream":%t`, format, stream), made)
				for i, news := range c.news {
					for j, e := range news {
						r.step(r.now)
						if r.news(e); j < len(news)-3 && (a.header != nil || a.text.Len() > 0) {
							t.Fatalf("call %d shows something before it is checked: %s", i, &a.text)
						}
						if len(made.made) > i+1 || r.over {
							break // of a call that is over there is no news
						}
					}
				}
				if len(made.made) != c.calls || !r.over {
					t.Fatalf("%d calls, over %t", len(made.made), r.over)
				}
				text := a.text.String()
				if c.text == "" {
					if a.err == nil || a.err.Status != 502 || a.err.Code != "constraint_not_kept" || text != "" {
						t.Errorf("error %v: %s", a.err, text)
					}
					return
				}
				if a.err != nil || !a.ended || strings.Contains(text, "secret") || contentOf(text) != c.text {
					t.Errorf("error %v, ended %t: %s", a.err, a.ended, text)
				}
				if c.calls == 2 && made.made[1].ID != made.made[0].ID+"-2" {
					t.Errorf("called %s, then %s", made.made[0].ID, made.made[1].ID)
				}
			})
		}
	}
}

// The second call is not bound to say the same, and only what is shown counts.
func TestSecondTrial(t *testing.T) {
	t.Parallel()
	made := &calls{}
	r, a := newTrialRun(t, `,"seed":7,"response_format":{"type":"json_object"}`, made)
	broken := llamacppNews("<|channel|>final<|message|>hello, it is a long answer<|return|>", "eos")
	for _, e := range broken[:len(broken)-2] { // to the token that ends it
		r.news(e)
	}
	if len(made.made) != 2 || *made.made[0].Seed != 7 || *made.made[1].Seed != 8 {
		t.Fatalf("%d calls", len(made.made))
	}
	const kept = `<|channel|>final<|message|>{}<|return|>`
	for _, e := range llamacppNews(kept, "eos") {
		r.news(e)
	}
	if want := fmt.Sprintf(`"completion_tokens":%d`, len(tokens(kept))); !strings.Contains(a.text.String(), want) {
		t.Errorf("no %s in %s", want, &a.text)
	}
}

// Once headers had to go, because the answer takes its time, the error is in the
// stream; without the loopback listener no call can be made again.
func TestTrialOfASlowStream(t *testing.T) {
	t.Parallel()
	news := llamacppNews("<|channel|>final<|message|>hello<|return|>", "eos")
	for name, made := range map[string]*calls{"loopback": {}, "direct": nil} {
		r, a := newTrialRun(t, `,"stream":true,"response_format":{"type":"json_object"}`, made)
		tries := 1
		if made != nil {
			tries = 2
		}
		for range tries {
			for _, e := range news[:4] {
				r.news(e)
			}
			r.step(r.now.Add(time.Minute))
			r.expired(timerHold)
			r.expired(timerKeepAlive)
			if text := a.text.String(); len(a.header) == 0 || !strings.Contains(text, keepAliveComment) || strings.Contains(text, "data:") {
				t.Fatalf("%s: headers %v: %s", name, a.header, text)
			}
			for _, e := range news[4 : len(news)-2] {
				r.step(r.now)
				r.news(e)
			}
		}
		if text := a.text.String(); !r.over || a.err != nil || !strings.Contains(text, "constraint_not_kept") || !strings.HasSuffix(text, "data: [DONE]\n\n") {
			t.Errorf("%s: over %t, error %v: %s", name, r.over, a.err, text)
		}
		if made != nil && len(made.made) != 2 {
			t.Errorf("%d calls", len(made.made))
		}
	}
}

// What is held back of an answer takes the room of its tokens, however small the
// pieces are in which they come.
func TestTrialHoldsTokens(t *testing.T) {
	t.Parallel()
	usage, likely := &engine.Usage{CachedTokens: 3}, []engine.Logprob{{Value: -1}}
	memory := make([]harmony.Token, 1) // the decoder's, of one chunk
	tr := &trial{}
	for _, c := range []engine.Chunk{
		{Index: 0, Tokens: tokens("a"), Usage: usage},
		{Index: 1, Tokens: tokens("k")},
		{Index: 0, Tokens: tokens("b")},
		{Index: 1, Tokens: tokens("l")},
		{Index: 0, Tokens: tokens("c"), Logprobs: likely},
		{Index: 0, Tokens: tokens("d")},
		{Index: 0, Tokens: tokens("e")},
		{Index: 1, Tokens: tokens("m"), Finish: engine.FinishStop},
		{Index: 0, Tokens: tokens("f"), Fingerprint: "x"},
		{Index: 0, Usage: usage},
	} {
		if len(c.Tokens) > 0 {
			memory[0] = c.Tokens[0]
			c.Tokens = memory
		}
		tr.hold(&c)
	}
	want := []engine.Chunk{
		{Index: 0, Tokens: append(tokens("a"), tokens("b")...), Usage: usage},
		{Index: 1, Tokens: append(tokens("k"), tokens("l")...)},
		{Index: 0, Tokens: tokens("c"), Logprobs: likely},
		{Index: 0, Tokens: append(tokens("d"), tokens("e")...)},
		{Index: 1, Tokens: tokens("m"), Finish: engine.FinishStop},
		{Index: 0, Tokens: tokens("f"), Fingerprint: "x"},
		{Index: 0, Usage: usage},
	}
	if diff := cmp.Diff(want, tr.held); diff != "" {
		t.Errorf("held (-want +got):\n%s", diff)
	}
}
