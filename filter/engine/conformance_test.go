package engine

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// TestDialectsAgree checks that all dialects decode equivalent replies to the
// same output, finish reasons, log probabilities and errors. The output is
// compared as text, because llama.cpp's decoder encodes some ids again.
func TestDialectsAgree(t *testing.T) {
	type result struct {
		Texts    map[int]string
		Finishes map[int]Finish
		Logprobs map[int][]Logprob
		Failed   bool
	}
	decoded := func(kind, name string) (result, bool) {
		r, ok := replies(t, kind)[filepath.Join("testdata", kind, name)]
		if !ok {
			return result{}, false
		}
		got := r.decode(t, kind, r.body)
		m := result{Texts: map[int]string{}, Finishes: got.Finish, Logprobs: got.Logprobs, Failed: got.Err != ""}
		for i, ids := range got.Tokens {
			m.Texts[i] = spelled(ids)
		}
		return m, true
	}
	missing := map[string]string{"llamacpp": "n2 done-early logprobs"} // returns one choice, sends no [DONE], and omits ids
	for _, name := range []string{"final", "final-interval", "call", "length", "n2", "split-character", "logprobs", "error", "end-early", "done-early", "abort", "garbage"} {
		want, ok := decoded("vllm", name)
		if !ok {
			t.Fatalf("no case %q", name)
		}
		for _, kind := range Kinds() {
			t.Run(kind+"/"+name, func(t *testing.T) {
				got, ok := decoded(kind, name)
				if !ok {
					if !strings.Contains(missing[kind], name) {
						t.Fatal("no such reply")
					}
					return
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("differs from vllm (-vllm +%s):\n%s", kind, diff)
				}
			})
		}
	}
}

// spelled returns the text of ids, with the names of special tokens.
func spelled(ids []harmony.Token) string {
	var d harmony.Decoder
	var b []byte
	for _, id := range ids {
		b, _ = d.Append(b, id)
	}
	return string(d.Flush(b))
}

// TestCachedTokensOnce checks that every dialect returns the number of cached
// tokens exactly once.
func TestCachedTokensOnce(t *testing.T) {
	for _, kind := range Kinds() {
		dialect, _ := ByKind(kind)
		r := replies(t, kind)[filepath.Join("testdata", kind, "final")]
		d := dialect.NewDecoder(&Request{N: 1})
		chunks, err := d.Feed(r.body, nil)
		reports := 0
		for _, c := range chunks {
			if c.Usage != nil {
				reports++
			}
		}
		if reports != 1 || err != nil {
			t.Errorf("%s: reported %d times, %v", kind, reports, err)
		}
	}
}

// llamacppEvents returns a stream of llama.cpp with these events.
func llamacppEvents(events ...string) []byte {
	return []byte("data: " + strings.Join(events, "\n\ndata: ") + "\n\n")
}

// TestLlamacppOmittedIDs checks that ids that llama.cpp omits are encoded from
// the text.
func TestLlamacppOmittedIDs(t *testing.T) {
	const end = `{"content":"","tokens":[],"stop":true,"stop_type":"eos","tokens_predicted":9,"timings":{"cache_n":2}}`
	for _, c := range []struct {
		name   string
		events []string
		want   string
		finish Finish
	}{
		{"a character of three tokens", []string{
			`{"content":" 🙂","tokens":[224],"stop":false,"tokens_predicted":3}`,
			`{"content":"","tokens":[200002],"stop":false,"tokens_predicted":4}`, end,
		}, " 🙂<|return|>", FinishStop},
		{"a special token ends a broken character", []string{
			"{\"content\":\"\ufffd<|end|>\",\"tokens\":[200007],\"stop\":false,\"tokens_predicted\":2}", end,
		}, "\ufffd<|end|>", FinishStop},
		{"a special token without its text", []string{
			"{\"content\":\"\ufffd\",\"tokens\":[200012],\"stop\":false,\"tokens_predicted\":2}", end,
		}, "\ufffd<|call|>", FinishStop},
		{"text that spells a token", []string{
			`{"content":"🙂<|return|>🙂","tokens":[224],"stop":false,"tokens_predicted":12}`,
			`{"content":"","tokens":[200002],"stop":false,"tokens_predicted":13}`, end,
		}, "🙂<|return|>🙂<|return|>", FinishStop},
		{"a stop token that is not in the model file", []string{
			`{"content":"a","tokens":[64],"stop":false,"tokens_predicted":1}`,
			`{"content":"","tokens":[200012],"stop":false,"tokens_predicted":2}`,
			`{"content":"b","tokens":[65],"stop":false,"tokens_predicted":3}`, end,
		}, "a<|call|>", FinishStop},
		{"the end without its token", []string{`{"content":"a","tokens":[64],"stop":false,"tokens_predicted":1}`, end}, "a", FinishStop},
		{"the limit within a character", []string{
			`{"content":"a","tokens":[64],"stop":false,"tokens_predicted":1}`,
			`{"content":"","tokens":[],"stop":true,"stop_type":"limit","tokens_predicted":3}`,
		}, "a", FinishLength},
		{"text without any of its ids", []string{
			`{"content":"a","tokens":[64],"stop":false,"tokens_predicted":1}`,
			`{"content":"zz","tokens":[],"stop":false,"tokens_predicted":3}`,
			`{"content":"b","tokens":[65],"stop":false,"tokens_predicted":4}`, end,
		}, "azzb", FinishStop},
		{"text in the last event", []string{
			`{"content":"a","tokens":[64],"stop":false,"tokens_predicted":1}`,
			`{"content":" 🙂<|return|>","tokens":[],"stop":true,"stop_type":"limit","tokens_predicted":9}`,
		}, "a 🙂<|return|>", FinishLength},
		{"an id whose text comes with a later event", []string{
			`{"content":"","tokens":[64],"stop":false,"tokens_predicted":3}`,
			`{"content":"b","tokens":[65],"stop":false,"tokens_predicted":4}`, end,
		}, "ab", FinishStop},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := decode(t, "llamacpp", 1, llamacppEvents(c.events...))
			if got.Err != "" || spelled(got.Tokens[0]) != c.want || got.Finish[0] != c.finish {
				t.Errorf("got %q, %s, %s", spelled(got.Tokens[0]), got.Finish[0], got.Err)
			}
			specials := strings.Count(strings.TrimSuffix(c.want, "<|return|>"), "<|return|>")
			for _, id := range got.Tokens[0][:max(len(got.Tokens[0])-1, 0)] {
				if specials > 0 && id == harmony.TokenReturn {
					t.Error("text became a control token")
				}
			}
		})
	}
}

// TestLlamacppUncountedText checks that text without a counted token is an
// error: it may be new or a repetition.
func TestLlamacppUncountedText(t *testing.T) {
	for _, last := range []string{
		`{"content":"b","tokens":[],"stop":false,"tokens_predicted":1}`,
		`{"content":"b","tokens":[],"stop":true,"stop_type":"limit","tokens_predicted":1}`,
	} {
		got := decode(t, "llamacpp", 1, llamacppEvents(`{"content":"a","tokens":[64],"stop":false,"tokens_predicted":1}`, last))
		if !strings.HasPrefix(got.Err, "502 ") || !strings.Contains(got.Err, "tokens") {
			t.Errorf("%s: %v", last, got)
		}
	}
}
