package enginesim

import (
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

var update = flag.Bool("update", false, "write the golden files")

// fixtures is the directory of test data for the decoders of filter/engine.
const fixtures = "../../../../filter/engine/testdata"

// fixedTime is the clock of tests.
func fixedTime() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

// userPrompt returns a conversation of one user message.
func userPrompt(text string) []harmony.Token {
	return conversation("<|start|>system<|message|>You are ChatGPT.<|end|>", text, "")
}

// conversation returns before, a user message that is only text, after, and the
// beginning of a reply.
func conversation(before, user, after string) []harmony.Token {
	ids := encodeHeader(before + "<|start|>user<|message|>")
	ids = harmony.AppendEncode(ids, user)
	return append(ids, encodeHeader("<|end|>"+after+"<|start|>assistant")...)
}

// post sends a request like the filter does.
func post(t testing.TB, s http.Handler, kind, directives string, r *engine.Request) *http.Response {
	t.Helper()
	dialect, ok := engine.ByKind(kind)
	if !ok {
		t.Fatalf("no dialect %q", kind)
	}
	out, failed := dialect.Encode(r)
	if failed != nil {
		t.Fatal(failed)
	}
	req := httptest.NewRequest(http.MethodPost, out.Path, strings.NewReader(string(out.Body)))
	for _, h := range out.Header {
		req.Header.Set(h.Name, h.Value)
	}
	req.Header.Set("x-engine-sim", directives)
	w := httptest.NewRecorder()
	func() {
		defer func() {
			if p := recover(); p != nil {
				if err, ok := p.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
					panic(p)
				}
			}
		}()
		s.ServeHTTP(w, req)
	}()
	return w.Result()
}

// ask returns a typical request.
func ask(user string, change ...func(*engine.Request)) *engine.Request {
	r := &engine.Request{ID: engine.CallID{Unique: "5feceb66", Number: 1, Request: "chatcmpl-1"}, Model: "gpt-oss-20b", Prompt: userPrompt(user), N: 1, MaxTokens: 200}
	for _, c := range change {
		c(r)
	}
	return r
}

// A kind has the replies of all cases, unless it is excepted here.
var (
	allKinds   = engine.Kinds()
	eventKinds = kindsBut(engine.IsGRPC)
	// llama.cpp returns one choice, no log probabilities, and no end marker.
	logprobKinds = kindsBut(isLlamacpp)
	choiceKinds  = kindsBut(isLlamacpp)
	doneKinds    = kindsBut(isLlamacpp)
	sglangKinds  = []string{"sglang"} // cases of its own
)

func kindsBut(excepted func(kind string) bool) []string {
	return slices.DeleteFunc(engine.Kinds(), excepted)
}

func isLlamacpp(kind string) bool { return kind == "llamacpp" }

// TestWire compares the bytes on the wire with the test data of filter/engine.
func TestWire(t *testing.T) {
	two := func(r *engine.Request) { r.N = 2 }
	likely := func(r *engine.Request) { r.Logprobs, r.TopLogprobs = true, 3 }
	cases := []struct {
		name, directives string
		r                *engine.Request
		kinds            []string
	}{
		{"final", "", ask("THINK naïve 🙂\nSAY Hello, naïve 🙂!"), allKinds},
		{"final-interval", "", ask("SAY Hello there", func(r *engine.Request) { r.Whole = true }), allKinds},
		{"call", "", ask("COMMENTARY I look.\nCALL get_weather {\"city\":\"Paris\"}"), allKinds},
		{"length", "", ask("WORDS 50", func(r *engine.Request) { r.MaxTokens = 6 }), allKinds},
		{"n2", "tokens-per-event=2", ask("NOTHINK\nSAY two", two), choiceKinds},
		{"split-character", "", ask("x @@<channel>final<message>a<#26192>b<#9552><#898><return>@@"), allKinds},
		{"logprobs", "tokens-per-event=2", ask("NOTHINK\nSAY naïve 🙂 a b c", likely), logprobKinds},
		{"error", "fault=error@3", ask("SAY x"), allKinds},
		{"end-early", "fault=end@3", ask("SAY x"), allKinds},
		{"done-early", "fault=done@3", ask("SAY x"), doneKinds},
		{"abort", "fault=abort@3", ask("SAY x"), allKinds},
		{"garbage", "fault=garbage@3", ask("SAY x"), allKinds},
		{"crlf", "crlf=true comments=true tokens-per-event=3", ask("SAY x"), eventKinds},
		{"cumulative", "output-ids=cumulative", ask("SAY naïve 🙂"), sglangKinds},
		{"cumulative-logprobs", "output-ids=cumulative tokens-per-event=random:5 seed=7", ask("NOTHINK\nSAY a b c d", likely), sglangKinds},
		{"cumulative-n2", "output-ids=cumulative tokens-per-event=random:5 seed=7", ask("SAY many words to say", two), sglangKinds},
		{"abort-503", "fault=abort503@2", ask("SAY x"), sglangKinds},
		{"too-long", "", ask("SAY x", func(r *engine.Request) { r.MaxTokens = 1 << 20 }), sglangKinds},
	}
	for _, c := range cases {
		for _, kind := range c.kinds {
			t.Run(kind+"/"+c.name, func(t *testing.T) {
				resp := post(t, New(Options{Now: fixedTime}), kind, c.directives, c.r)
				got := readAll(t, resp)
				if !engine.IsGRPC(kind) {
					golden(t, filepath.Join(fixtures, kind, c.name+".sse"), got)
					return
				}
				golden(t, filepath.Join(fixtures, kind, c.name+".grpc"), got)
				golden(t, filepath.Join(fixtures, kind, c.name+".trailer"), resp.Trailer.Get("grpc-status")+"\n"+resp.Trailer.Get("grpc-message")+"\n")
			})
		}
	}
}

// TestZeroID reads log probabilities of the token 0, which is "!".
func TestZeroID(t *testing.T) {
	for _, kind := range logprobKinds {
		r := ask("NOTHINK\nSAY a!", func(r *engine.Request) { r.Logprobs, r.TopLogprobs = true, 3 })
		resp := post(t, New(Options{Now: fixedTime}), kind, "", r)
		dialect, _ := engine.ByKind(kind)
		chunks, err := dialect.NewDecoder(r).Feed([]byte(readAll(t, resp)), nil)

		found := false
		for _, c := range chunks {
			found = found || slices.Contains(c.Tokens, 0) && len(c.Logprobs) == len(c.Tokens)
		}
		if err != nil || !found {
			t.Errorf("%s: %v, %v", kind, chunks, err)
		}
	}
}

// golden compares got with a file.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; after a check, write it with -update", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// answer is a decoded response.
type answer struct {
	Texts    []string // by choice, with the names of special tokens
	Finishes []engine.Finish
	Logprobs [][]engine.Logprob // by choice
	Output   int                // tokens of all choices
	Usage    engine.Usage
	Err      *apierror.Error
}

// decode decodes a 200 like the filter does, in chunks of piece bytes.
func decode(t testing.TB, kind string, r *engine.Request, body []byte, trailer http.Header, piece int) answer {
	t.Helper()
	dialect, _ := engine.ByKind(kind)
	d := dialect.NewDecoder(r)
	a := answer{Finishes: make([]engine.Finish, r.N), Logprobs: make([][]engine.Logprob, r.N)}
	tokens := make([][]harmony.Token, r.N)
	take := func(chunks []engine.Chunk, err *apierror.Error) {
		for _, c := range chunks {
			tokens[c.Index] = append(tokens[c.Index], c.Tokens...)
			a.Output += len(c.Tokens)
			for _, p := range c.Logprobs { // valid until the decoder is called again
				p.Top = slices.Clone(p.Top)
				a.Logprobs[c.Index] = append(a.Logprobs[c.Index], p)
			}
			if c.Finish != engine.FinishNone {
				a.Finishes[c.Index] = c.Finish
			}
			if c.Usage != nil {
				a.Usage = *c.Usage
			}
		}
		if a.Err == nil {
			a.Err = err
		}
	}
	for len(body) > 0 {
		n := min(piece, len(body))
		take(d.Feed(body[:n], nil))
		body = body[n:]
	}
	take(nil, d.Trailers(trailer.Get))
	take(d.End(nil))
	for _, ids := range tokens {
		a.Texts = append(a.Texts, show(ids))
	}
	return a
}

// talk sends a request and decodes the response.
func talk(t testing.TB, s http.Handler, kind, directives string, r *engine.Request) answer {
	t.Helper()
	resp := post(t, s, kind, directives, r)
	body := []byte(readAll(t, resp))
	if resp.StatusCode != http.StatusOK {
		dialect, _ := engine.ByKind(kind)
		return answer{Err: dialect.ReadError(resp.StatusCode, resp.Header.Get, body)}
	}
	return decode(t, kind, r, body, trailersOf(resp), len(body)+1)
}

// trailersOf returns the trailers of a response, or the headers in their place.
func trailersOf(resp *http.Response) http.Header {
	if resp.Header.Get("grpc-status") != "" {
		return resp.Header
	}
	return resp.Trailer
}

// TestSendingDoesNotChangeTheAnswer: the decoded answer does not depend on the
// number of tokens per event or on chunk boundaries. The filter relies on it.
func TestSendingDoesNotChangeTheAnswer(t *testing.T) {
	requests := map[string]*engine.Request{
		"final":  ask("THINK naïve 🙂\nSAY Hello, naïve 🙂!"),
		"call":   ask("COMMENTARY I look.\nCALL get_weather {}"),
		"rand":   ask("x @@<channel>final<message><rand 30><#9552><#898><return>@@", func(r *engine.Request) { r.N = 3 }),
		"likely": ask("THINK naïve 🙂\nSAY Hello, naïve 🙂 and more!", func(r *engine.Request) { r.N, r.Logprobs, r.TopLogprobs = 2, true, 4 }),
		"loop":   ask("x @@<channel>analysis<message><loop>@@", func(r *engine.Request) { r.MaxTokens = 40 }),
	}
	for name, r := range requests {
		for _, kind := range engine.Kinds() {
			if kind == "llamacpp" && r.N > 1 {
				continue // the kind returns one choice
			}
			t.Run(kind+"/"+name, func(t *testing.T) {
				want := talk(t, New(Options{}), kind, "", r)
				if want.Err != nil {
					t.Fatal(want.Err)
				}
				for seed := range 60 {
					directives := fmt.Sprintf("tokens-per-event=random:%d seed=%d crlf=%t comments=%t output-ids=%s", 1+seed, seed, seed%2 == 0, seed%3 == 0, []string{"cumulative", "incremental"}[seed%2])
					resp := post(t, New(Options{}), kind, directives, r)
					got := decode(t, kind, r, []byte(readAll(t, resp)), trailersOf(resp), 1+seed*seed)
					if diff := cmp.Diff(want, got); diff != "" {
						t.Fatalf("%s (-want +got):\n%s", directives, diff)
					}
				}
			})
		}
	}
}
