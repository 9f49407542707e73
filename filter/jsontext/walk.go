package jsontext

import (
	"encoding/binary"
	"iter"
	"math/bits"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"

	"github.com/tidwall/gjson"
)

// The functions here read text that is known to be valid JSON in UTF-8. They look for
// quotes and brackets only, and strings, which are most of a request, are searched by
// the standard library many bytes at a time. Of other text they return something, and
// do not read beyond its end.

// each calls read for every member of an object, or for every element of an array
// with an empty key, until read returns false.
func each(v gjson.Result, read func(key string, v gjson.Result) bool) {
	text, object := v.Raw, v.IsObject()

	for i := 1; ; {
		// To the next key or element, or to the end.
		for i < len(text) && (isSpace(text[i]) || text[i] == ',') {
			i++
		}
		if i >= len(text) || text[i] == '}' || text[i] == ']' {
			return
		}

		key := ""
		if object {
			end := stringEnd(text, i)
			key = unquoted(text[i:end])
			for i = end; i < len(text) && (isSpace(text[i]) || text[i] == ':'); {
				i++
			}
		}

		// Of text that is no JSON a value can be empty. The loop would not end.
		end := valueEnd(text, i)
		if end == i || !read(key, newResult(text[i:end])) {
			return
		}
		i = end
	}
}

// List returns the elements of an array; of another value there are none. The list that gjson
// makes of an array has 80 bytes for an element of two, and more while it grows.
func List(v gjson.Result) iter.Seq[gjson.Result] {
	return func(yield func(gjson.Result) bool) {
		if v.IsArray() {
			each(v, func(_ string, element gjson.Result) bool { return yield(element) })
		}
	}
}

// Empty reports whether an object or an array has nothing in it. Of another value it is false.
func Empty(v gjson.Result) bool {
	if !v.IsObject() && !v.IsArray() {
		return false
	}

	empty := true
	each(v, func(string, gjson.Result) bool {
		empty = false
		return false
	})

	return empty
}

// newResult returns a value as gjson does, except for its index.
func newResult(raw string) gjson.Result {
	result := gjson.Result{Raw: raw}

	switch raw[0] {
	case '"':
		result.Type, result.Str = gjson.String, unquoted(raw)
	case '{', '[':
		result.Type = gjson.JSON
	case 't':
		result.Type = gjson.True
	case 'f':
		result.Type = gjson.False
	case 'n':
		result.Type = gjson.Null
	default:
		// Infinite if it is too large.
		result.Type = gjson.Number
		result.Num, _ = strconv.ParseFloat(raw, 64)
	}

	return result
}

// valueEnd returns the end of the value that begins at i.
func valueEnd(text string, i int) int {
	if i >= len(text) {
		return i
	}

	switch text[i] {
	case '"':
		return stringEnd(text, i)
	case '{', '[':
		return nestedEnd(text, i)
	}

	for i < len(text) && !isSpace(text[i]) && text[i] != ',' && text[i] != '}' && text[i] != ']' {
		i++
	}
	return i
}

// nestedEnd returns the end of the object or array that begins at i.
func nestedEnd(text string, i int) int {
	for depth := 0; i < len(text); {
		switch text[i] {
		case '"':
			i = stringEnd(text, i)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}

		i++
		if depth == 0 {
			return i
		}
	}
	return len(text)
}

// stringEnd returns the end of the string whose opening quote is at i. A quote is
// escaped if an odd number of backslashes precedes it.
func stringEnd(text string, i int) int {
	i++

	// Most names are short: one word finds their end. Not where a backslash comes first.
	if len(text)-i >= 8 {
		w := binary.LittleEndian.Uint64(unsafe.Slice(unsafe.StringData(text), len(text))[i:])
		if found := byteIn(w, quotes); found != 0 && (found-1)&byteIn(w, slashes) == 0 {
			return i + bits.TrailingZeros64(found)/8 + 1
		}
	}

	for i < len(text) {
		quote := strings.IndexByte(text[i:], '"')
		if quote < 0 {
			break
		}

		end := i + quote
		before := end
		for before > i && text[before-1] == '\\' {
			before--
		}

		if (end-before)%2 == 0 {
			return end + 1
		}
		i = end + 1
	}
	return len(text)
}

// unquoted returns the string that raw, with its quotes, stands for. It is a part of raw
// if nothing in it is escaped.
func unquoted(raw string) string {
	if len(raw) < 2 {
		return ""
	}

	raw = raw[1 : len(raw)-1]
	slash := strings.IndexByte(raw, '\\')
	if slash < 0 {
		return raw
	}
	return unescape(raw, slash)
}

// unescape returns the string that raw, without quotes, stands for. slash is the index of
// its first backslash. It copies whole words, and looks for backslashes in them.
func unescape(raw string, slash int) string {
	in := unsafe.Slice(unsafe.StringData(raw), len(raw))

	// An escape is longer than its character. The last word that is copied may be half empty.
	out := make([]byte, len(raw)+8)
	from, to := slash, copy(out, raw[:slash])

	for from < len(in) {
		// A word is copied first and looked at then: what is after a backslash in it is
		// overwritten by the next one.
		if len(in)-from >= 8 {
			w := binary.LittleEndian.Uint64(in[from:])
			binary.LittleEndian.PutUint64(out[to:], w)
			found := byteIn(w, slashes)
			n := 8
			if found != 0 {
				n = bits.TrailingZeros64(found) / 8
			}
			from, to = from+n, to+n
			if found == 0 {
				continue
			}
		}

		switch {
		case in[from] != '\\' || from+1 == len(in):
			out[to] = in[from]
			from, to = from+1, to+1
		case in[from+1] == 'u':
			r, n := unicodeEscape(raw[from:])
			to += utf8.EncodeRune(out[to:], r)
			from += n
		default:
			out[to] = unescaped[in[from+1]]
			from, to = from+2, to+1
		}
	}

	return unsafe.String(unsafe.SliceData(out), to)
}

// unescaped has the characters that a letter after a backslash stands for. Others stand
// for themselves.
var unescaped = func() (t [256]byte) {
	for c := range t {
		t[c] = byte(c)
	}
	t['b'], t['f'], t['n'], t['r'], t['t'] = '\b', '\f', '\n', '\r', '\t'
	return t
}()

// unicodeEscape returns the character that raw begins with in the form \u0041, or as a
// pair of surrogates in this form, and how many bytes of raw it takes. A surrogate
// without the other one becomes U+FFFD.
func unicodeEscape(raw string) (r rune, n int) {
	r = hexRune(raw)
	if utf16.IsSurrogate(r) {
		if len(raw) >= 12 && raw[6] == '\\' && raw[7] == 'u' {
			if pair := utf16.DecodeRune(r, hexRune(raw[6:])); pair != utf8.RuneError {
				return pair, 12
			}
		}
		r = utf8.RuneError
	}

	return r, min(6, len(raw))
}

// hexRune returns the character of the four hexadecimal digits after \u.
func hexRune(raw string) rune {
	n, err := strconv.ParseUint(raw[2:min(6, len(raw))], 16, 32)
	if err != nil {
		return utf8.RuneError
	}
	return rune(n)
}
