package harmony

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// countedContext is a context that ends after a number of calls of Err.
type countedContext struct {
	context.Context
	looks, most int
}

func (c *countedContext) Err() error {
	c.looks++
	if c.most > 0 && c.looks > c.most {
		return context.Canceled
	}
	return nil
}

func counted(most int) *countedContext {
	return &countedContext{Context: context.Background(), most: most}
}

// limitTexts returns long texts of all kinds. Some consist of one piece.
func limitTexts(size int) map[string]string {
	r := rand.New(rand.NewPCG(9, 10))
	texts := map[string]string{
		"words": words(r, size), "code": code(r, size), "scripts": scripts(r, size), "odd": odd(r, size),
		"not UTF-8": strings.Repeat("\xff", size),
	}
	for _, w := range worstCases {
		texts[w.name] = w.text(r, size)
	}
	return texts
}

// TestLimitKeepsTokens renders texts that just fit. The tokens must be the same
// as without a limit.
func TestLimitKeepsTokens(t *testing.T) {
	r := NewRenderer(WithCacheBytes(0))
	for name, text := range limitTexts(5 * checkBytes / 2) {
		msgs := []Message{textMessage("short"), textMessage(text), textMessage("end")}
		want, err := r.AppendConversation([]Token{1, 2}, msgs)
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.AppendLimited(t.Context(), []Token{1, 2}, msgs, len(want))
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %d tokens, %v, want %d", name, len(got), err, len(want))
		}
	}
}

// TestLimit renders texts that are far too long. Only a small part may be
// encoded, and the lower bound in the error must be correct.
func TestLimit(t *testing.T) {
	const limit = 1000
	r := NewRenderer()
	for name, text := range limitTexts(20 * checkBytes) {
		total, err := NewRenderer().AppendConversation(nil, []Message{textMessage(text)})
		if err != nil {
			t.Fatal(err)
		}
		for form, msgs := range map[string][]Message{
			"text":         {textMessage(text)},
			"instructions": {{Role: RoleDeveloper, Content: []Content{&DeveloperContent{Instructions: text}}}},
			"many":         slices.Repeat([]Message{textMessage(text[:len(text)/20])}, 40),
		} {
			ctx := counted(0)
			got, err := r.AppendLimited(ctx, []Token{7}, msgs, limit)
			var over *LimitError
			if !errors.As(err, &over) || len(got) != 1 {
				t.Errorf("%s, %s: %d tokens, %v", name, form, len(got), err)
				continue
			}
			if form == "text" && (over.AtLeast <= limit || over.AtLeast > len(total)+1) {
				t.Errorf("%s: at least %d tokens of %d", name, over.AtLeast, len(total))
			}
			// A token has at most maxTokenSize bytes.
			if most := limit*maxTokenSize/checkBytes + 3; ctx.looks > most {
				t.Errorf("%s, %s: looked %d times, for %d bytes of text each, want at most %d", name, form, ctx.looks, checkBytes, most)
			}
		}
	}
}

// TestLimitAllocations limits the memory allocated for a text that is too long.
func TestLimitAllocations(t *testing.T) {
	text := worstCases[6].text(rand.New(rand.NewPCG(13, 14)), 8<<20) // one piece of random letters
	msgs := []Message{textMessage(text)}
	r := NewRenderer()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const limit = 131072
	if _, err := r.AppendLimited(t.Context(), nil, msgs, limit); err == nil {
		t.Error("no error")
	}
	runtime.ReadMemStats(&after)
	// The tokens that are allowed, in a slice that grows, and what merging needs of one window.
	if n := after.TotalAlloc - before.TotalAlloc; n > 6*4*limit {
		t.Errorf("%d bytes are allocated for a text of %d", n, len(text))
	}
}

// TestLimitContext ends the context at each check within one text.
func TestLimitContext(t *testing.T) {
	r := NewRenderer()
	for name, text := range limitTexts(20 * checkBytes) {
		for looks := range 6 {
			ctx := counted(looks + 1)
			got, err := r.AppendLimited(ctx, nil, []Message{textMessage(text)}, 1<<30)
			if !errors.Is(err, context.Canceled) || got != nil {
				t.Errorf("%s: %d tokens, %v", name, len(got), err)
			}
			if ctx.looks > looks+2 {
				t.Errorf("%s: looked %d times after the end", name, ctx.looks-looks-1)
			}
		}
	}
	if r.cache.bytesKept() > 0 {
		t.Error("an incomplete message was cached")
	}
}

// A text that fits has the tokens that it has without a limit. One token more than the
// limit is an error, also where the bounds are not looked at before the end.
func TestEncodeLimitedText(t *testing.T) {
	texts := limitTexts(3 * checkBytes)
	texts["short"] = "a short text"
	for name, text := range texts {
		want := AppendEncode([]Token{1}, text)
		got, err := AppendEncodeLimited(context.Background(), []Token{1}, text, len(want))
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %d tokens and %v, want %d tokens", name, len(got), err, len(want))
		}
		var over *LimitError
		if got, err = AppendEncodeLimited(context.Background(), []Token{1}, text, len(want)-1); !errors.As(err, &over) || len(got) != 1 {
			t.Errorf("%s: %d tokens and %v beyond the limit", name, len(got), err)
		}
	}
	if got, err := AppendEncodeLimited(counted(1), nil, texts["words"], 1<<20); !errors.Is(err, context.Canceled) || len(got) != 0 {
		t.Errorf("%d tokens and %v after the end of the context", len(got), err)
	}
}

// TestTokensBeyondTheLimitCopyNothing has texts that are cut at the limit, wherever it is: what was
// encoded before the next check had made the tokens move to a larger array.
func TestTokensBeyondTheLimitCopyNothing(t *testing.T) {
	for name, text := range limitTexts(4 * checkBytes) {
		// Memory is made for the tokens of most texts. A piece of any length is merged as a whole.
		if len(AppendEncode(nil, text)) < len(text)/TextBytes || pieceEnd(text, 0) > checkBytes {
			continue
		}

		for limit := checkBytes / 2; limit < len(text)/TextBytes; limit += 1111 {
			b := &bounds{ctx: t.Context(), limit: limit}
			room := cap(b.grow(nil, len(text)))
			e := &encoder{}
			e.bounds = b
			if got := e.appendText(b.grow(nil, len(text)), text); cap(got) > room {
				t.Errorf("%s, limit %d: capacity %d, and %d after %d tokens", name, limit, room, cap(got), len(got))
			}
		}
	}
}

// TestLimitBoundsMemory reserves memory for the tokens of texts that are longer than the
// limit.
func TestLimitBoundsMemory(t *testing.T) {
	have := make([]Token, 10)
	for limit, want := range map[int]int{0: 128, 9: 137, 500: 628, 4010: 4010, 5000: 4010, math.MaxInt: 4010} {
		b := &bounds{ctx: t.Context(), limit: limit}
		if got := b.grow(slices.Clip(have), 4000*TextBytes); len(got) != len(have) || cap(got) < want || cap(got) > want*5/4 {
			t.Errorf("limit %d: capacity %d, want %d", limit, cap(got), want)
		}
	}
}
