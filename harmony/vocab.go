package harmony

import (
	_ "embed"
	"strconv"
	"strings"
)

//go:generate go run ./internal/gen vocabulary.bin vocabulary_layout.go

// vocabulary is the table that internal/gen creates from the ranks of
// o200k_base. It is used in place: programs build nothing from it when they
// start.
//
//go:embed vocabulary.bin
var vocabulary string

const (
	ordinaryTokens = 199998        // ids below are ranks of o200k_base
	lastSpecial    = Token(201088) // the last special token of the reference
	reservedPrefix = "<|reserved_" // followed by the id
	specialEnd     = "|>"          // the end of every special token's name
	maxTokenSize   = 128           // bytes of the longest token
)

// named lists the special tokens that have a meaning.
var named = [...]struct {
	token Token
	name  string
}{
	{TokenStartOfText, "<|startoftext|>"},
	{TokenEndOfText, "<|endoftext|>"},
	{TokenReturn, "<|return|>"},
	{TokenConstrain, "<|constrain|>"},
	{TokenChannel, "<|channel|>"},
	{TokenStart, "<|start|>"},
	{TokenEnd, "<|end|>"},
	{TokenMessage, "<|message|>"},
	{TokenCall, "<|call|>"},
}

// specialNames contains the name of every special token, indexed by id -
// 199998.
var specialNames = func() (names [lastSpecial - ordinaryTokens + 1]string) {
	for _, n := range named {
		names[n.token-ordinaryTokens] = n.name
	}

	for i := range names {
		if names[i] == "" {
			names[i] = reservedPrefix + strconv.Itoa(i+ordinaryTokens) + specialEnd
		}
	}
	return names
}()

// SpecialName returns the text of a special token, such as "<|start|>", or
// false if t is not a special token. Tokens without a meaning are named
// "<|reserved_200000|>" and so on. The last one is 201088, which the reference
// decodes although no engine has it.
func SpecialName(t Token) (name string, ok bool) {
	if t < ordinaryTokens || t > lastSpecial {
		return "", false
	}
	return specialNames[t-ordinaryTokens], true
}

// tokenText returns the bytes of any token, including special tokens and
// 201088.
func tokenText(t Token) (text string, ok bool) {
	if t < ordinaryTokens {
		at := offsetsAt + 4*int(t)
		return vocabulary[textAt+int(le32(vocabulary, at)) : textAt+int(le32(vocabulary, at+4))], true
	}
	return SpecialName(t)
}

// cutSpecial splits text at the first special token that the engines'
// vocabulary contains. If there is none, before is the whole text.
func cutSpecial(text string) (before string, token Token, after string, found bool) {
	for at := 0; ; {
		i := strings.Index(text[at:], "<|")
		if i < 0 {
			return text, 0, "", false
		}
		at += i
		if t, size, ok := specialAt(text[at:]); ok {
			return text[:at], t, text[at+size:], true
		}
		at += len("<|")
	}
}

// specialAt returns the special token at the start of s.
func specialAt(s string) (token Token, size int, ok bool) {
	for _, n := range named {
		if strings.HasPrefix(s, n.name) {
			return n.token, len(n.name), true
		}
	}

	const digits = len("200000")
	if !strings.HasPrefix(s, reservedPrefix) || len(s) < len(reservedPrefix)+digits {
		return 0, 0, false
	}

	id, err := strconv.ParseUint(s[len(reservedPrefix):][:digits], 10, 32)
	if err != nil || id < ordinaryTokens || Token(id) >= lastSpecial {
		return 0, 0, false
	}

	// A token that has a meaning has no reserved name: <|reserved_200006|> is text.
	if name := specialNames[id-ordinaryTokens]; strings.HasPrefix(s, name) {
		return Token(id), len(name), true
	}
	return 0, 0, false
}

// le16, le32 and le64 read little-endian numbers. Each compiles to one check of
// the bounds and one load; with indices of s itself each byte has a check.

func le16(s string, i int) uint16 {
	s = s[i : i+2]
	return uint16(s[0]) | uint16(s[1])<<8
}

func le32(s string, i int) uint32 {
	s = s[i : i+4]
	return uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24
}

func le64(s string, i int) uint64 {
	s = s[i : i+8]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}
