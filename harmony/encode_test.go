package harmony

import (
	"bufio"
	"encoding/json"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// encodeCase is a line of testdata/encode.jsonl, which differential/encode.py
// creates with tiktoken and openai-harmony.
type encodeCase struct {
	Text    string  `json:"s"`
	Tokens  []Token `json:"t"`
	Special []Token `json:"special"` // with special tokens encoded as such
}

func encodeCases(t testing.TB) []encodeCase {
	t.Helper()
	f, err := os.Open("testdata/encode.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var cases []encodeCase
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var c encodeCase
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		cases = append(cases, c)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return cases
}

func TestEncodeReference(t *testing.T) {
	for _, c := range encodeCases(t) {
		if diff := cmp.Diff(c.Tokens, AppendEncode(nil, c.Text)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", c.Text, diff)
		}
		if c.Special == nil {
			continue
		}
		if diff := cmp.Diff(c.Special, AppendEncodeSpecial(nil, c.Text)); diff != "" {
			t.Errorf("%q with special tokens (-want +got):\n%s", c.Text, diff)
		}
	}
}

func TestEncodeSpecial(t *testing.T) {
	tests := []struct {
		text string
		want []Token
	}{
		{"<|start|>user<|message|>", []Token{TokenStart, 1428, TokenMessage}},
		{"<|reserved_200000|>", []Token{200000}},
		{"<|reserved_201087|>", []Token{201087}},
		{"<|reserved_200006|>", nil}, // this token has another name
		{"<|reserved_201088|>", nil}, // no engine has this token
		{"<|reserved_99999|>", nil},
		{"<|endofprompt|>", nil},
		{"<|<|end|>", []Token{27, 91, TokenEnd}},
	}
	for _, test := range tests {
		want := test.want
		if want == nil {
			want = AppendEncode(nil, test.text)
		}
		if got := AppendEncodeSpecial(nil, test.text); !slices.Equal(got, want) {
			t.Errorf("AppendEncodeSpecial(%q) = %v, want %v", test.text, got, want)
		}
		for _, token := range AppendEncode(nil, test.text) {
			if name, special := SpecialName(token); special {
				t.Errorf("AppendEncode(%q) has the special token %s", test.text, name)
			}
		}
	}
}

func TestEncodeInvalidUTF8(t *testing.T) {
	for text, same := range map[string]string{
		"a\xffb":       "a\ufffdb",
		"\xf0\x9f\x99": "\ufffd\ufffd\ufffd",
		"\xed\xa0\x80": "\ufffd\ufffd\ufffd", // a surrogate
		" \xc3":        " \ufffd",
	} {
		if got, want := AppendEncode(nil, text), AppendEncode(nil, same); !slices.Equal(got, want) {
			t.Errorf("AppendEncode(%q) = %v, want that of %q, %v", text, got, same, want)
		}
	}
}

// TestEncodeSpaces encodes runs of spaces of all lengths, before and after what changes
// where their piece ends.
func TestEncodeSpaces(t *testing.T) {
	for n := range 40 {
		for _, before := range []string{"", "a", "\n", "\t"} {
			for _, after := range []string{"", "a", "1", "\n", "\r\n x", "\t", "\u00a0", "\u4e2d"} {
				checkEncode(t, before+strings.Repeat(" ", n)+after+"and what a load of many bytes reads")
				checkEncode(t, before+strings.Repeat(" ", n)+after)
			}
		}
	}
}

// TestEncodeProperties checks properties that hold for all texts, with texts of
// all kinds and texts that are hard to encode.
func TestEncodeProperties(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		for _, text := range []string{words(r, 300), code(r, 300), jsonWords(r, 300), scripts(r, 300), odd(r, 100)} {
			checkEncode(t, text)
		}
	}
	for _, w := range worstCases {
		checkEncode(t, w.text(r, 3000))
	}
}

func checkEncode(t *testing.T, text string) {
	t.Helper()
	text = strings.ToValidUTF8(text, "")
	tokens := AppendEncode(nil, text)
	decoded, err := AppendDecode(nil, tokens)
	if err != nil || string(decoded) != text {
		t.Errorf("%q decodes to %q, %v", text, decoded, err)
	}
	if n := CountTokens(text); n != len(tokens) {
		t.Errorf("CountTokens(%q) = %d, want %d", text, n, len(tokens))
	}
	var pieces []Token
	for i := 0; i < len(text); {
		end := pieceEnd(text, i)
		if end <= i {
			t.Fatalf("%q: the piece at %d ends at %d", text, i, end)
		}
		pieces = append(pieces, mergeByRank(text[i:end])...)
		i = end
	}
	if diff := cmp.Diff(pieces, tokens); diff != "" {
		t.Errorf("%q (-merged by rank +got):\n%s", text, diff)
	}
}

// mergeByRank encodes a piece by the definition of byte-pair encoding: it
// merges the two neighbours whose joined bytes have the lowest id, the first
// ones if there are several, until no more can be merged.
func mergeByRank(piece string) []Token {
	if v := find(piece, 0, len(piece)); v != 0 {
		return []Token{v.token()}
	}
	var ends []int // end of each part
	for i := range len(piece) {
		ends = append(ends, i+1)
	}
	for {
		best, at := ^Token(0), -1
		start := 0
		for i := range len(ends) - 1 {
			if v := find(piece, start, ends[i+1]); v != 0 && v.token() < best {
				best, at = v.token(), i
			}
			start = ends[i]
		}
		if at < 0 {
			break
		}
		ends = slices.Delete(ends, at, at+1)
	}
	var tokens []Token
	start := 0
	for _, end := range ends {
		tokens = append(tokens, find(piece, start, end).token())
		start = end
	}
	return tokens
}

// TestVocabulary looks up the bytes of every token in the embedded table.
func TestVocabulary(t *testing.T) {
	for id := range Token(ordinaryTokens) {
		text, ok := tokenText(id)
		if !ok || text == "" {
			t.Fatalf("token %d has no text", id)
		}
		if v := find(text, 0, len(text)); v == 0 || v.token() != id {
			t.Fatalf("find(%q) = %d, want %d", text, v.token(), id)
		}
		if v := look("x"+text+"y", 1, 1+len(text)); v == 0 || v.token() != id {
			t.Fatalf("look(%q) = %d, want %d", text, v.token(), id)
		}
	}
}

func TestSpecialName(t *testing.T) {
	for token, want := range map[Token]string{
		0: "", 199997: "", TokenStart: "<|start|>", 200013: "<|reserved_200013|>", 201088: "<|reserved_201088|>", 201089: "", 1 << 31: "",
	} {
		name, ok := SpecialName(token)
		if name != want || ok != (want != "") {
			t.Errorf("SpecialName(%d) = %q, %t, want %q", token, name, ok, want)
		}
	}
}

func TestEncodeConcurrent(t *testing.T) {
	cases := encodeCases(t)
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for i := worker; i < len(cases); i += 2 {
				if got := AppendEncode(nil, cases[i].Text); !slices.Equal(got, cases[i].Tokens) {
					t.Errorf("%q: got %v, want %v", cases[i].Text, got, cases[i].Tokens)
				}
			}
		})
	}
	wg.Wait()
}

// TestEncodeAllocations uses an encoder of its own, because the pool may be
// emptied at any time.
func TestEncodeAllocations(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	text := words(r, 10000) + code(r, 10000) + scripts(r, 10000)
	var e encoder
	dst := e.appendText(nil, text)
	if n := testing.AllocsPerRun(20, func() { dst = e.appendText(dst[:0], validUTF8(text)) }); n != 0 {
		t.Errorf("encoding allocates %v times", n)
	}
}

func FuzzEncode(f *testing.F) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, text := range []string{"", " ", "don't", "a\x00\x00", "\r\n \n x", "'\u017f", "\xf0\x9f", words(r, 50), code(r, 50), scripts(r, 50)} {
		f.Add(text)
	}
	for range 50 {
		f.Add(odd(r, 40))
	}
	f.Fuzz(func(t *testing.T, text string) {
		checkEncode(t, text)
		decoded, err := AppendDecode(nil, AppendEncodeSpecial(nil, text))
		if err != nil || utf8.ValidString(text) && string(decoded) != text {
			t.Errorf("%q decodes to %q, %v", text, decoded, err)
		}
	})
}

// TestEncodeGrowsOnce encodes a long text of the usual kind into no buffer.
func TestEncodeGrowsOnce(t *testing.T) {
	text := strings.Repeat("The filter turns requests into tokens, and the tokens of an engine into events.\n", 333)
	if got, want := cap(AppendEncode(nil, text)), cap(slices.Grow([]Token(nil), len(text)/TextBytes)); got != want {
		t.Errorf("capacity %d, want %d", got, want)
	}
}
