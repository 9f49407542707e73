package harmony

import (
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestAppendDecode(t *testing.T) {
	got, err := AppendDecode([]byte("> "), []Token{TokenStart, 1428, TokenMessage, 201088})
	if want := "> <|start|>user<|message|><|reserved_201088|>"; err != nil || string(got) != want {
		t.Errorf("AppendDecode = %q, %v, want %q", got, err, want)
	}
	got, err = AppendDecode(nil, []Token{1428, 201089, 1428})
	if err == nil || string(got) != "user" {
		t.Errorf("AppendDecode of an unknown id = %q, %v, want the bytes before it and an error", got, err)
	}
}

// decodeCases are contents of completions with the deltas of the
// StreamableParser of openai-harmony 0.0.8 and of a Decoder for each token
// ("-": no delta).
var decodeCases = []struct {
	name             string
	tokens           []Token
	strict, strictAt string // deltas, and the text at the end
	deltas, text     string
}{
	{"text", []Token{1428, TokenStart}, "user|<|start|>", "user<|start|>", "user|<|start|>", "user<|start|>"},
	{"emoji", []Token{31446, 244}, "-|\U0001f496", "\U0001f496", "-|\U0001f496", "\U0001f496"},
	{"broken emoji thrice", []Token{9552, 9552, 9552}, " |\ufffd| \ufffd", " \ufffd \ufffd \ufffd", " |\ufffd |\ufffd ", " \ufffd \ufffd \ufffd"},
	{"broken emoji, text", []Token{9552, 27825}, " |\ufffd", " \ufffdXY", " |\ufffdXY", " \ufffdXY"},
	{"unknown id", []Token{99999999, 32}, "-|-", "\ufffd", "\ufffd|A", "\ufffdA"},
	{"broken, unknown id", []Token{9552, 99999999, 32}, " |-|-", " \ufffd\ufffd", " |\ufffd\ufffd|A", " \ufffd\ufffdA"},
	{"ff fe A", []Token{187, 186, 32}, "\ufffd|\ufffd|A", "\ufffd\ufffdA", "\ufffd|\ufffd|A", "\ufffd\ufffdA"},
	{"e4 b8 A ad", []Token{160, 116, 32, 255}, "-|-|\ufffd|A\ufffd", "\ufffdA\ufffd", "-|-|\ufffdA|\ufffd", "\ufffdA\ufffd"},
	{"e4 e4 e4", []Token{160, 160, 160}, "-|\ufffd|\ufffd", "\ufffd\ufffd\ufffd", "-|\ufffd|\ufffd", "\ufffd\ufffd\ufffd"},
	{"surrogate", []Token{169, 254, 222}, "-|\ufffd|\ufffd", "\ufffd\ufffd\ufffd", "-|\ufffd\ufffd|\ufffd", "\ufffd\ufffd\ufffd"},
	{"overlong", []Token{124, 222, 32}, "\ufffd|\ufffd|A", "\ufffd\ufffdA", "\ufffd|\ufffd|A", "\ufffd\ufffdA"},
}

func TestDecoders(t *testing.T) {
	for _, c := range decodeCases {
		t.Run(c.name, func(t *testing.T) {
			var strict strictDecoder
			var lossless Decoder
			for range 2 { // the decoders can be used again
				deltas, text := decodeAll(c.tokens, strict.append, strict.finish)
				if deltas != c.strict || text != c.strictAt {
					t.Errorf("strict: %q, %q, want %q, %q", deltas, text, c.strict, c.strictAt)
				}
				deltas, text = decodeAll(c.tokens, func(dst []byte, token Token) ([]byte, bool) {
					dst, _ = lossless.Append(dst, token)
					return dst, len(dst) > 0
				}, lossless.Flush)
				if deltas != c.deltas || text != c.text {
					t.Errorf("lossless: %q, %q, want %q, %q", deltas, text, c.deltas, c.text)
				}
			}
			if want := 2 * strings.Count(c.text, "\ufffd"); lossless.Replaced() != want {
				t.Errorf("Replaced = %d, want %d", lossless.Replaced(), want)
			}
		})
	}
}

// decodeAll returns the deltas, separated by bars, and the whole text.
func decodeAll(tokens []Token, add func([]byte, Token) ([]byte, bool), finish func([]byte) []byte) (deltas, text string) {
	each := make([]string, 0, len(tokens))
	var whole []byte
	for _, token := range tokens {
		delta, ok := add(nil, token)
		whole = append(whole, delta...)
		if !ok {
			delta = []byte("-")
		}
		each = append(each, string(delta))
	}
	return strings.Join(each, "|"), string(finish(whole))
}

func TestDecoderAllocations(t *testing.T) {
	tokens := []Token{1428, 9552, 187, 31446, 244, 99999999, 160, 116}
	var (
		d      Decoder
		strict strictDecoder
		dst    = make([]byte, 0, 1024)
	)
	if n := testing.AllocsPerRun(100, func() {
		dst = dst[:0]
		for _, token := range tokens {
			dst, _ = d.Append(dst, token)
			dst, _ = strict.append(dst, token)
		}
		dst = strict.finish(d.Flush(dst))
	}); n != 0 {
		t.Errorf("decoding allocates %v times", n)
	}
}

// FuzzDecoder decodes its input as ids of 24 bits.
func FuzzDecoder(f *testing.F) {
	for _, c := range decodeCases {
		var b []byte
		for _, token := range c.tokens {
			b = append(b, byte(token), byte(token>>8), byte(token>>16))
		}
		f.Add(b)
	}
	r := rand.New(rand.NewPCG(9, 10))
	for range 20 {
		var b []byte
		for range 10 {
			b = binary.LittleEndian.AppendUint32(b, r.Uint32N(2000))[:len(b)+3]
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var tokens []Token
		known := true
		for ; len(data) >= 3; data = data[3:] {
			token := Token(data[0]) | Token(data[1])<<8 | Token(data[2])<<16
			if _, ok := tokenText(token); !ok {
				known = false
			}
			tokens = append(tokens, token)
		}
		var (
			d      Decoder
			strict strictDecoder
		)
		_, text := decodeAll(tokens, d.Append, d.Flush)
		_, strictText := decodeAll(tokens, strict.append, strict.finish)
		if !utf8.ValidString(text) || !utf8.ValidString(strictText) {
			t.Fatalf("%v: not UTF-8: %q, %q", tokens, text, strictText)
		}
		raw, err := AppendDecode(nil, tokens)
		if (err == nil) != known {
			t.Fatalf("%v: error %v", tokens, err)
		}
		if !known {
			return
		}
		if text != strictText {
			t.Errorf("%v: %q, strict %q", tokens, text, strictText)
		}
		if want := maximalSubparts(raw); text != want {
			t.Errorf("%v: %q, want %q", tokens, text, want)
		}
	})
}

// maximalSubparts replaces each maximal subpart of an ill-formed sequence by
// U+FFFD. A byte belongs to a subpart as long as the subpart is the beginning
// of some character.
func maximalSubparts(b []byte) string {
	var out strings.Builder
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		if r == utf8.RuneError && size == 1 {
			for size < min(len(b), 4) && beginsCharacter(b[:size+1]) {
				size++
			}
		}
		out.WriteRune(r)
		b = b[size:]
	}
	return out.String()
}

func beginsCharacter(b []byte) bool {
	for _, fill := range []string{"\x80\x80\x80", "\xbf\xbf\xbf"} {
		for n := range 4 {
			if r, size := utf8.DecodeRuneInString(string(b) + fill[:n]); r != utf8.RuneError && size == len(b)+n {
				return true
			}
		}
	}
	return false
}
