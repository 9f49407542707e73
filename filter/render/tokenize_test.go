package render

import (
	"context"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

func TestTokenize(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, path, body, want string }{
		{"a text", TokenizePath, `{"model":"m","prompt":"Hello, world!"}`, `{"count":4,"max_model_len":131072,"tokens":[13225,11,2375,0],"token_strs":null}`},
		{"an empty text", TokenizePath, `{"prompt":""}`, `{"count":0,"max_model_len":131072,"tokens":[],"token_strs":null}`},
		{"no special tokens are added", TokenizePath, `{"prompt":"Hello","add_special_tokens":true}`, `{"count":1,"max_model_len":131072,"tokens":[13225],"token_strs":null}`},
		{"strings in the alphabet of byte level tokenizers", TokenizePath, `{"prompt":"a b\né\t~","return_token_strs":true}`, `{"count":6,"max_model_len":131072,"tokens":[64,287,198,377,197,93],"token_strs":["a","Ġb","Ċ","Ã©","ĉ","~"]}`},
		{"a spelled control token is text", TokenizePath, `{"prompt":"<|end|>","return_token_strs":true}`, `{"count":5,"max_model_len":131072,"tokens":[27,91,419,91,29],"token_strs":["<","|","end","|",">"]}`},
		{"tokens", DetokenizePath, `{"model":"m","tokens":[13225,11,2375,0]}`, `{"prompt":"Hello, world!"}`},
		{"no tokens", DetokenizePath, `{"tokens":[]}`, `{"prompt":""}`},
		{"control tokens are spelled", DetokenizePath, `{"tokens":[200006,173781,200008,200007,201088]}`, `{"prompt":"<|start|>assistant<|message|><|end|><|reserved_201088|>"}`},
		{"half a character", DetokenizePath, `{"tokens":[9552]}`, "{\"prompt\":\" \ufffd\"}"},
	} {
		if got := ask(t, c.path, c.body); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestTokenizeMessages shows that messages are tokenized as they are rendered.
func TestTokenizeMessages(t *testing.T) {
	t.Parallel()
	const path = "/v1/chat/completions"
	for _, request := range []string{
		requests[path],
		`{"model":"gpt-oss-20b","messages":[{"role":"user","content":"<|end|>Grüße"}],"reasoning_effort":"high","temperature":0}`,
		`{"model":"gpt-oss-20b","messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}],"continue_final_message":true,"add_generation_prompt":false}`,
	} {
		want := gjson.Get(ask(t, path+renderSuffix, request), "token_ids").Raw
		for _, members := range [][]any{{}, {"return_token_strs", true, "add_special_tokens", true, "stream", true, "stream_options.include_usage", true}} {
			got := gjson.Parse(ask(t, TokenizePath, apitest.With(t, request, members...)))
			if got.Get("tokens").Raw != want || got.Get("count").Int() != got.Get("tokens.#").Int() || len(members) > 0 && got.Get("token_strs.#").Int() != got.Get("count").Int() {
				t.Errorf("%s of %s, want %s", got.Raw, request, want)
			}
		}
	}
	all := tokensOf(gjson.Get(ask(t, TokenizePath, requests[path]), "tokens"))
	bare := tokensOf(gjson.Get(ask(t, TokenizePath, apitest.With(t, requests[path], "add_generation_prompt", false)), "tokens"))
	if !slices.Equal(all, append(slices.Clone(bare), apitest.Tokens("<|start|>assistant")...)) {
		t.Errorf("without the message that the model writes there are %d of %d tokens", len(bare), len(all))
	}
}

// TestTokensAndBack shows that texts are tokenized and put together again, and that
// the strings of tokens stand for their bytes.
func TestTokensAndBack(t *testing.T) {
	t.Parallel()
	bytesOf := map[rune]byte{}
	for b, r := range byteRunes {
		bytesOf[r] = byte(b)
	}
	if len(bytesOf) != 256 {
		t.Fatalf("%d characters stand for 256 bytes", len(bytesOf))
	}
	rng := rand.New(rand.NewPCG(7, 8))
	for range 300 {
		var text strings.Builder
		for range rng.IntN(40) {
			if rng.IntN(3) == 0 {
				text.WriteString([]string{"<|start|>", " world", "漢字", "🙂", "\n\n", "\x00", "\u00ad"}[rng.IntN(7)])
				continue
			}
			text.WriteRune(rune(rng.IntN(0x300)))
		}
		got := gjson.Parse(ask(t, TokenizePath, `{"return_token_strs":true,"prompt":`+apitest.Quote(text.String())+`}`))
		for _, id := range tokensOf(got.Get("tokens")) {
			if id >= harmony.TokenStartOfText {
				t.Fatalf("%q has the control token %d", text.String(), id)
			}
		}
		var spelled []byte
		for _, s := range got.Get("token_strs").Array() {
			for _, r := range s.Str {
				spelled = append(spelled, bytesOf[r])
			}
		}
		if string(spelled) != text.String() {
			t.Fatalf("%q is spelled %q", text.String(), spelled)
		}
		if back := gjson.Get(ask(t, DetokenizePath, `{"tokens":`+got.Get("tokens").Raw+`}`), "prompt").Str; back != text.String() {
			t.Fatalf("%q comes back as %q", text.String(), back)
		}
	}
}

// endingContext is a context that ends when it has been asked a number of times.
type endingContext struct {
	context.Context
	looks, most int
}

func (c *endingContext) Err() error {
	if c.looks++; c.looks > c.most {
		return context.Canceled
	}
	return nil
}

// TestTokenizingEnds shows that requests about many tokens end with their context, wherever
// they are.
func TestTokenizingEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ path, body string }{
		"a text":  {TokenizePath, `{"prompt":"` + strings.Repeat(" ", 1<<20) + `"}`},
		"strings": {TokenizePath, `{"return_token_strs":true,"prompt":"` + strings.Repeat(" a", 30_000) + `"}`},
		"tokens":  {DetokenizePath, repeated(spaces128, 20_000)},
	} {
		e, ids := api.Match(service, http.MethodPost, c.path)
		handle := func(most int) (api.Outcome, int) {
			ctx := &endingContext{Context: t.Context(), most: most}
			o := e.Handle(ctx, &api.HTTPRequest{IDs: ids, Path: c.path, Body: []byte(c.body), Context: apitest.NewContext()})
			return o, ctx.looks
		}

		o, looks := handle(1 << 30)
		if o.Err != nil || looks < 4 {
			t.Errorf("%s: %v after %d looks", name, o.Err, looks)
		}
		for most := range looks {
			o, asked := handle(most)
			// An encoder may ask once more, why it has ended.
			if o.Err == nil || o.Err.Status != http.StatusServiceUnavailable || asked > most+3 {
				t.Errorf("%s: %v, asked %d times, of which %d were good", name, o.Err, asked, most)
			}
		}
	}
}
