package turn

import (
	"context"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// randomLetters returns a text with as many tokens as a text of its size can have:
// one piece without a boundary.
func randomLetters(size int) string {
	r := rand.New(rand.NewPCG(1, 2))
	text := make([]byte, size)
	for i := range text {
		text[i] = 'a' + byte(r.IntN(26))
	}
	return string(text)
}

// allocated returns how many bytes f allocates.
func allocated(f func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}

// TestRenderingStops shows that of texts that are many times longer than the context
// only a small part is encoded.
func TestRenderingStops(t *testing.T) {
	letters := randomLetters(8 << 20)
	words := strings.Repeat("some words ", len(letters)/11)
	long := func(text string) []Item { return []Item{{Kind: User, Text: text}} }
	turns := append(long(letters), Item{Kind: Answer, Text: "a"})
	many := append(make([]Item, 0, 2001), userHi)
	for range 1000 {
		many = append(many, Item{Kind: Answer, Text: "a"}, Item{Kind: User, Text: letters[:8<<10]})
	}

	for name, c := range map[string]struct {
		in        Input
		unbounded bool
		// Of the error; "": the prompt is short.
		want string
	}{
		"letters":           {Input{Items: long(letters)}, false, "maximum context length is 131072 tokens. However, your messages resulted in at least 1048577 tokens. Please reduce"},
		"words":             {Input{Items: long(words)}, false, "resulted in at least 10"},
		"instructions":      {Input{Instructions: letters, Items: []Item{userHi}}, false, "resulted in at least 1048577 tokens"},
		"many":              {Input{Items: many}, false, "resulted in at least 10"},
		"shown":             {Input{Items: long(letters)}, true, "has at least 1048577 tokens; those of more than 1048576 are not shown or counted"},
		"truncated":         {Input{Items: append(turns, userHi), Truncate: true}, false, ""},
		"truncated in vain": {Input{Items: long(letters), Truncate: true}, false, "resulted in at least 1048577 tokens"},
		"many truncated":    {Input{Items: many, Truncate: true}, false, ""},
	} {
		rc, _ := newContext()
		rc.Renderer = harmony.NewRenderer()
		rc.Unbounded = c.unbounded
		var err error
		n := allocated(func() {
			made, apiErr := Prepare(context.Background(), rc, &c.in)
			if apiErr != nil {
				err = apiErr
			} else if len(made.Engine.Prompt) > 131072 {
				t.Errorf("%s: %d tokens", name, len(made.Engine.Prompt))
			}
		})

		switch {
		case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		case n > 4*len(letters):
			t.Errorf("%s: %d bytes are allocated for %d of text", name, n, len(letters))
		}
	}
}

// TestRenderingEnds shows that rendering stops when its context ends.
func TestRenderingEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	rc, _ := newContext()
	for _, truncate := range []bool{false, true} {
		in := &Input{Items: []Item{{Kind: User, Text: "first"}, {Kind: Answer, Text: "a"}, {Kind: User, Text: randomLetters(4 << 20)}}, Truncate: truncate}
		if _, err := Prepare(ctx, rc, in); err == nil || err.Status != 503 || err.RetryAfter == 0 {
			t.Errorf("truncate %t: %v", truncate, err)
		}
	}
}

// TestExtendStops shows that no prefix is longer than what is rendered of a prompt.
func TestExtendStops(t *testing.T) {
	rc, _ := newContext()
	_, err := Extend(context.Background(), rc, nil, []Item{{Kind: User, Text: randomLetters(4 << 20)}, {Kind: Answer, Text: "a"}, userHi})
	if err == nil || !strings.Contains(err.Error(), "at least 1048577 tokens") {
		t.Errorf("%v", err)
	}
}
