package item

import (
	"math/rand/v2"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
)

func TestPages(t *testing.T) {
	t.Parallel()
	const viewed = "\n**viewing lines [0 - 9] of 99**\n\nL0: [7] No (https://no.example)\n"
	for name, c := range map[string]struct {
		text, structured string
		cursor           int
		want             hosted.Page // the zero value: none
	}{
		"page":                       {text: "[3] A title (https://a.example/b?c=d)" + viewed, cursor: 3, want: hosted.Page{URL: "https://a.example/b?c=d", Title: "A title"}},
		"alone":                      {text: "[0] A (http://a.example)", want: hosted.Page{URL: "http://a.example", Title: "A"}},
		"white space before":         {text: " \n[12]  A  (https://a.example)\r\n", cursor: 12, want: hosted.Page{URL: "https://a.example", Title: "A"}},
		"no title":                   {text: "[1] (https://a.example)" + viewed, cursor: 1, want: hosted.Page{URL: "https://a.example", Title: ""}},
		"parentheses":                {text: "[1] Go (game) (https://a.example/Go_(game))" + viewed, cursor: 1, want: hosted.Page{URL: "https://a.example/Go_(game)", Title: "Go (game)"}},
		"no escapes":                 {text: "[1] A (https://a.example/b (c)/é)" + viewed, cursor: 1, want: hosted.Page{URL: "https://a.example/b%20%28c%29/%C3%A9", Title: "A"}},
		"title of lines":             {text: "[1] A\nB (https://a.example)" + viewed, cursor: 1, want: hosted.Page{URL: "https://a.example", Title: "A B"}},
		"what was found":             {text: "[4] Find results for text: `x (y` in `A title` (https://a.example/b/find?pattern=x%20%28y)" + viewed, cursor: 4, want: hosted.Page{URL: "https://a.example/b", Title: "A title"}},
		"source":                     {text: "[4] A (view-source:https://a.example)" + viewed, cursor: 4, want: hosted.Page{URL: "https://a.example", Title: "A"}},
		"search results":             {text: "[0] who won (2024)" + viewed},
		"search results, no address": {text: "[0] who won" + viewed},
		"cut address":                {text: "[0] A (https://a.example/bbb...)" + viewed},
		"other scheme":               {text: "[0] A (javascript:https://a.example)" + viewed},
		"no host":                    {text: "[0] A (https://)" + viewed},
		"no cursor":                  {text: "A (https://a.example)"},
		"cursor without brackets":    {text: "0] A (https://a.example)"},
		"cursor of words":            {text: "[a] A (https://a.example)"},
		"cursor below 0":             {text: "[-1] A (https://a.example)", cursor: -1},
		"long cursor":                {text: "[1234567890] A (https://a.example)", cursor: 1234567890},
		"error":                      {text: "Invalid link id `7`."},
		"nothing":                    {},
		"structured":                 {text: "x", structured: `{"cursor":2,"url":"https://a.example","title":"A"}`, cursor: 2, want: hosted.Page{URL: "https://a.example", Title: "A"}},
		"structured without cursor":  {text: "[5] B", structured: `{"url":"https://a.example","title":"A"}`, cursor: 5, want: hosted.Page{URL: "https://a.example", Title: "A"}},
		"structured within result":   {text: "[5] B", structured: `{"result":{"url":"https://a.example"}}`, cursor: 5, want: hosted.Page{URL: "https://a.example", Title: "B"}},
		"structured text":            {text: "[5] B (https://b.example)", structured: `{"result":"[5] B"}`, cursor: 5, want: hosted.Page{URL: "https://b.example", Title: "B"}},
		"structured of other types":  {text: "[5] B (https://b.example)", structured: `{"cursor":"x","url":1,"title":null}`, cursor: 5, want: hosted.Page{URL: "https://b.example", Title: "B"}},
		"structured list":            {text: "[5] B (https://b.example)", structured: `[1]`, cursor: 5, want: hosted.Page{URL: "https://b.example", Title: "B"}},
	} {
		var p Pages
		p.Add(c.text, []byte(c.structured))
		if got := p.shown[c.cursor]; got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if c.want == (hosted.Page{}) && len(p.shown) > 0 {
			t.Errorf("%s: %v", name, p.shown)
		}
	}
}

// TestPagesBounded shows that a browser cannot make the filter keep much, and
// that the newest page of a cursor counts.
func TestPagesBounded(t *testing.T) {
	t.Parallel()
	var p Pages
	head := func(cursor int, title, url string) string {
		return "[" + strconv.Itoa(cursor) + "] " + title + " (" + url + ")\n"
	}
	p.Add(head(0, strings.Repeat("é ", 2000), "https://a.example"), nil)
	if title := p.shown[0].Title; len(title) > 512 || !utf8.ValidString(title) || len(title) < 512-2 {
		t.Errorf("a title of %d bytes, %q", len(title), title)
	}
	p.Add(head(0, "B", "https://b.example"), nil)
	if p.shown[0] != (hosted.Page{URL: "https://b.example", Title: "B"}) {
		t.Errorf("%v", p.shown[0])
	}
	p.Add(head(0, "who won", "2024"), nil)
	p.Add(head(1, "C", "https://c.example/"+strings.Repeat("c", 4<<10)), nil)
	if len(p.shown) != 0 {
		t.Errorf("%v", p.shown)
	}
	for i := range 2 * maxPages {
		p.Add(head(i, "A", "https://a.example"), nil)
	}
	if len(p.shown) != maxPages {
		t.Errorf("%d pages", len(p.shown))
	}
}

func TestCitations(t *testing.T) {
	t.Parallel()
	a, b := hosted.Page{URL: "https://a.example", Title: "A"}, hosted.Page{URL: "https://b.example", Title: "B"}
	p := &Pages{shown: map[int]hosted.Page{3: a, 14: b}}
	for text, want := range map[string][]Citation{
		"":                          nil,
		"no":                        nil,
		"We won.【3†L8】":             {{7, 13, a}},
		"【3†L8-L11】":                {{0, 10, a}},
		"【3†L8-11】【14†L0–L2】x":      {{0, 9, a}, {9, 19, b}},
		"é🙂【14†L1】":                 {{2, 9, b}},
		"【3†L1【14†L1】":              {{5, 12, b}},
		"【【3†L1】】":                  {{1, 7, a}},
		"【4†L1】":                    nil, // nothing is shown there
		"【3】":                       nil,
		"【3†】":                      nil,
		"【3†L】":                     nil,
		"【3†L1-】":                   nil,
		"【3†L1-L】":                  nil,
		"【3†L1-L2-L3】":              nil,
		"【†L1】":                     nil,
		"【3†A title†a.example】":     nil, // a link of the browser's
		"【3†1】":                     nil,
		"【3 †L1】":                   nil,
		"[3†L1]":                    nil,
		"【0000000003†L1】":           nil,
		"【3†L1234567890】":           nil,
		"【000000003†L123456789】":    {{0, 22, a}},
		"\xe3\x80【3†L1】\x90":        {{2, 8, a}}, // each broken byte is a character
		"【3†L1\xe3\x80\x91\xe3\x80": {{0, 6, a}},
	} {
		c := Citations{Pages: p}
		if diff := cmp.Diff(want, c.AppendFound(nil, []byte(text)), cmp.AllowUnexported(Citation{}, hosted.Page{})); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
}

var citationForm = regexp.MustCompile(`【([0-9]{1,9})†L[0-9]{1,9}(?:[-–]L?[0-9]{1,9})?】`)

// citationsOf is what is found in a whole text.
func citationsOf(p *Pages, text string) []Citation {
	var found []Citation
	for _, at := range citationForm.FindAllStringSubmatchIndex(text, -1) {
		cursor, _ := strconv.Atoi(text[at[2]:at[3]])
		if shown, ok := p.shown[cursor]; ok {
			found = append(found, Citation{utf8.RuneCountInString(text[:at[0]]), utf8.RuneCountInString(text[:at[1]]), shown})
		}
	}
	return found
}

// sameCitations cuts a text anywhere and compares what is found in the pieces
// with what is in the whole.
func sameCitations(t *testing.T, text string, rng *rand.Rand) int {
	t.Helper()
	p := &Pages{shown: map[int]hosted.Page{0: {URL: "https://0.example", Title: "0"}, 12: {URL: "https://12.example", Title: "12"}}}
	c := Citations{Pages: p}
	var got []Citation
	var pieces []string
	for rest := text; rest != ""; {
		n := 1 + rng.IntN(min(len(rest), 8))
		piece := []byte(rest[:n])
		got = c.AppendFound(got, piece)
		clear(piece) // the scanner keeps none of it
		pieces, rest = append(pieces, rest[:n]), rest[n:]
	}
	if diff := cmp.Diff(citationsOf(p, text), got, cmp.AllowUnexported(Citation{}, hosted.Page{})); diff != "" {
		t.Errorf("%q: %s", pieces, diff)
	}
	return len(got)
}

// TestCitationsCut shows that citations do not depend on how a text is cut.
func TestCitationsCut(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(11, 12))
	words := []string{"【", "【0†L", "【12†", "†", "L", "1", "0", "-", "–", "】", "】", "a", "é", "🙂", "\xe3", "\x80", "\xff", "【0†L1】", "【12†L3-L4】"}
	found := 0
	for range 20_000 {
		var text strings.Builder
		for range rng.IntN(12) {
			text.WriteString(words[rng.IntN(len(words))])
		}
		found += sameCitations(t, text.String(), rng)
		if t.Failed() {
			return
		}
	}
	if found < 1000 {
		t.Errorf("%d citations", found)
	}
}

func TestCitationsAllocateNothing(t *testing.T) {
	text := []byte("No citation – none 【at all】, été.")
	p := &Pages{shown: map[int]hosted.Page{3: {URL: "https://a.example", Title: "A"}}}
	for name, p := range map[string]*Pages{"pages": p, "no pages": {}} {
		c := Citations{Pages: p}
		if n := testing.AllocsPerRun(100, func() { c.AppendFound(nil, text) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func FuzzCitations(f *testing.F) {
	f.Add("We won.【0†L8-L11】 é【12†L1】", uint64(1))
	f.Add("\xe3【0†L1\xe3\x80\x91", uint64(2))
	f.Fuzz(func(t *testing.T, text string, seed uint64) { sameCitations(t, text, rand.New(rand.NewPCG(seed, 0))) })
}

// FuzzPages shows that whatever a browser answers, a page that is kept can be
// shown to a client.
func FuzzPages(f *testing.F) {
	f.Add("[3] A (b) (https://a.example/b (c))\n**viewing lines [0 - 1] of 1**", []byte(`{"result":{"url":"https://a.example"}}`))
	f.Add("[2] A (https://a.example/?\xff)", []byte(nil))
	f.Add("[4] Find results for text: `x` in `A` (view-source:https://a.example/find?pattern=x)", []byte(`{"cursor":1,"title":"\ud83d"}`))
	f.Fuzz(func(t *testing.T, text string, structured []byte) {
		var p Pages
		p.Add(text, structured)
		for cursor, shown := range p.shown {
			u, err := url.Parse(shown.URL)
			if err != nil || !utf8.ValidString(shown.URL) || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
				t.Errorf("%d: address %q, %v", cursor, shown.URL, err)
			}
			if len(shown.Title) > 512 || !utf8.ValidString(shown.Title) || strings.ContainsAny(shown.Title, "\n\r") {
				t.Errorf("%d: title %q", cursor, shown.Title)
			}
		}
	})
}
