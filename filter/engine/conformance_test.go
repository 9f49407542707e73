package engine

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// TestDialectsAgree holds every dialect's replies of one cause to mean the
// same: tokens (of llama.cpp their text, for some of its ids are made anew),
// finish reasons, cached tokens and errors.
func TestDialectsAgree(t *testing.T) {
	type meaning struct {
		Texts    map[int]string
		Finishes map[int]Finish
		Logprobs map[int][]Logprob
		Failed   bool
	}
	said := func(kind, name string) (meaning, bool) {
		r, ok := replies(t, kind)[filepath.Join("testdata", kind, name)]
		if !ok {
			return meaning{}, false
		}
		got := r.decode(t, kind, r.body)
		m := meaning{Texts: map[int]string{}, Finishes: got.Finish, Logprobs: got.Logprobs, Failed: got.Err != ""}
		for i, ids := range got.Tokens {
			m.Texts[i] = spelled(ids)
		}
		return m, true
	}
	missing := map[string]string{"llamacpp": "n2 done-early logprobs"} // it gives one choice, never says [DONE], and loses ids
	for _, name := range []string{"final", "final-interval", "call", "length", "n2", "split-character", "logprobs", "error", "end-early", "done-early", "abort", "garbage"} {
		want, ok := said("vllm", name)
		if !ok {
			t.Fatalf("no case %q", name)
		}
		for _, kind := range Kinds() {
			t.Run(kind+"/"+name, func(t *testing.T) {
				got, ok := said(kind, name)
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

// spelled is the text of ids, special tokens by their names.
func spelled(ids []harmony.Token) string {
	var d harmony.Decoder
	var b []byte
	for _, id := range ids {
		b, _ = d.Append(b, id)
	}
	return string(d.Flush(b))
}

// TestCachedTokens is told once by every dialect.
func TestCachedTokensAreToldOnce(t *testing.T) {
	for _, kind := range Kinds() {
		dialect, _ := ByKind(kind)
		r := replies(t, kind)[filepath.Join("testdata", kind, "final")]
		d := dialect.NewDecoder(&Request{N: 1})
		chunks, err := d.Feed(r.body, nil)
		told := 0
		for _, c := range chunks {
			if c.Usage != nil {
				told++
			}
		}
		if told != 1 || err != nil {
			t.Errorf("%s: told %d times, %v", kind, told, err)
		}
	}
}

// llamacppEvents are a stream of one choice.
func llamacppEvents(events ...string) []byte {
	return []byte("data: " + strings.Join(events, "\n\ndata: ") + "\n\n")
}

// TestLlamacppRepairs is how ids that llama.cpp loses are found again.
func TestLlamacppRepairs(t *testing.T) {
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
		{"a stop token that the model file does not know", []string{
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
		{"an id whose text is held back", []string{
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

// TestLlamacppRefusesUncountedText: text that stands for no token that is counted
// may be new or a repetition.
func TestLlamacppRefusesUncountedText(t *testing.T) {
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
