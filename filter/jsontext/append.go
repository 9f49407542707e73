package jsontext

import "unicode/utf8"

const hex = "0123456789abcdef"

// AppendString appends s as a JSON string, with its quotes.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	dst = AppendEscaped(dst, []byte(s))
	return append(dst, '"')
}

// AppendEscaped appends s as the content of a JSON string, without the quotes.
// Each byte that is not valid UTF-8 becomes U+FFFD. Line separators that some
// clients treat as the end of an SSE line (U+0085, U+2028, U+2029) are escaped.
func AppendEscaped(dst, text []byte) []byte {
	// Bytes that need no escape are copied together: those from start on are not copied yet.
	start := 0
	for i := 0; i < len(text); {
		c := text[i]
		if c < utf8.RuneSelf {
			if plain[c] {
				i++
				continue
			}

			dst = append(dst, text[start:i]...)
			dst = appendControl(dst, c)
			i++
			start = i
			continue
		}

		r, size := utf8.DecodeRune(text[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			dst = append(dst, text[start:i]...)
			dst = append(dst, "\ufffd"...)
			start = i + size
		case r == '\u0085' || r == '\u2028' || r == '\u2029':
			dst = append(dst, text[start:i]...)
			dst = append(dst, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
			start = i + size
		}
		i += size
	}
	return append(dst, text[start:]...)
}

func appendControl(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	return append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
}

// plain reports, by ASCII byte, whether the byte needs no escape in a JSON
// string.
var plain = func() (t [utf8.RuneSelf]bool) {
	for c := range t {
		t[c] = c >= ' ' && c != '"' && c != '\\'
	}
	return t
}()

// AppendCompact appends a JSON value without the white space between its
// tokens. It escapes the line separators that [AppendEscaped] escapes, so that
// the result is one line. raw must be valid JSON in UTF-8.
func AppendCompact(dst []byte, raw string) []byte {
	inString := false

	for i := 0; i < len(raw); i++ {
		c := raw[i]
		switch {
		case c == '"':
			inString = !inString
		case !inString && (c == ' ' || c == '\n' || c == '\r' || c == '\t'):
			continue
		case c == '\\' && i+1 < len(raw):
			// What is escaped may be a quotation mark, which ends no string.
			dst = append(dst, c)
			i++
			c = raw[i]
		case c >= utf8.RuneSelf:
			_, size := utf8.DecodeRuneInString(raw[i:])
			dst = AppendEscaped(dst, []byte(raw[i:i+size]))
			i += size - 1
			continue
		}

		dst = append(dst, c)
	}

	return dst
}
