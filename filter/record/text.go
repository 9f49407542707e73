package record

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// Text is bytes that are text as a rule. Its JSON is a string; of bytes that are not
// UTF-8 it is {"base64": …}, and of redacted ones {"bytes": n}.
type Text struct {
	bytes []byte
	gone  int // how many bytes there were, of a redacted text
}

// NewText returns the text of p, which must not change any more.
func NewText(p []byte) Text { return Text{bytes: p} }

// Bytes returns the text; nil if it is redacted.
func (t Text) Bytes() []byte { return t.bytes }

// String returns the text; "" if it is redacted.
func (t Text) String() string { return string(t.bytes) }

// Len is the length of the text in bytes, also of a redacted one.
func (t Text) Len() int { return len(t.bytes) + t.gone }

// IsZero reports whether the text is empty.
func (t Text) IsZero() bool { return t.Len() == 0 }

// Redacted returns the text without its bytes.
func (t Text) Redacted() Text { return Text{gone: t.Len()} }

// otherText is the JSON of a text that is no string.
type otherText struct {
	Base64 []byte `json:"base64,omitempty"`
	Bytes  int    `json:"bytes,omitempty"`
}

// MarshalJSON implements [json.Marshaler].
func (t Text) MarshalJSON() ([]byte, error) {
	switch {
	case t.gone > 0:
		return json.Marshal(otherText{Bytes: t.gone}) //nolint:wrapcheck // cannot fail
	case !utf8.Valid(t.bytes):
		return json.Marshal(otherText{Base64: t.bytes}) //nolint:wrapcheck // cannot fail
	}
	return json.Marshal(string(t.bytes)) //nolint:wrapcheck // cannot fail
}

// UnmarshalJSON implements [json.Unmarshaler].
func (t *Text) UnmarshalJSON(p []byte) error {
	var s string
	if err := json.Unmarshal(p, &s); err == nil {
		*t = Text{bytes: []byte(s)}
		return nil
	}
	var o otherText
	if err := json.Unmarshal(p, &o); err != nil {
		return fmt.Errorf("a text is neither a string nor an object: %w", err)
	}
	*t = Text{bytes: o.Base64, gone: max(o.Bytes, 0)}
	return nil
}
