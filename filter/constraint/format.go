package constraint

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/work"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Format is a set of token sequences: the output that is allowed after
// "<|start|>assistant", up to the stop token. It is an immutable tree of the types
// of this package.
//
// No Format contains a stop token. An engine allows a stop token wherever the reply
// may end, and xgrammar fails after a grammar that requires one.
type Format interface {
	appendTag(dst []byte) []byte
}

type (
	// Text is exactly this text.
	Text string
	// Control is this control token, and not a text that spells it.
	Control harmony.Token
	// Free is any text without control tokens.
	Free struct{}
	// Value is one JSON value of a JSON Schema in the form for engines, see [NewValue].
	Value struct{ Schema json.RawMessage }
	// Regex is a text that matches a whole regular expression in the syntax of engines.
	Regex string
	// Grammar is a text of an EBNF grammar with the start rule root.
	Grammar string
	// Sequence is some formats one after the other.
	Sequence []Format
	// Choice is one of some formats.
	Choice []Format
	// Optional is a format once or not at all.
	Optional struct{ Format Format }
	// Many is a format any number of times, including none.
	Many struct{ Format Format }
)

// NewValue returns the format of the values of a schema that [CheckSchema] accepts.
func NewValue(account *work.Account, schema json.RawMessage) Value {
	return Value{schemaForEngines(account, schema)}
}

// controls are the control tokens by their spellings.
var controls = map[string]harmony.Token{
	"<|start|>": harmony.TokenStart, "<|channel|>": harmony.TokenChannel, "<|message|>": harmony.TokenMessage,
	"<|constrain|>": harmony.TokenConstrain, "<|end|>": harmony.TokenEnd, "<|return|>": harmony.TokenReturn, "<|call|>": harmony.TokenCall,
}

// spelled returns the format of a text in which control tokens are spelled. The text
// must not come from a client.
func spelled(s string) Sequence {
	var seq Sequence
	for s != "" {
		at, end := len(s), len(s)
		for name := range controls {
			if i := strings.Index(s, name); i >= 0 && i < at {
				at, end = i, i+len(name)
			}
		}
		if at > 0 {
			seq = append(seq, Text(s[:at]))
		}
		if at < end {
			seq = append(seq, Control(controls[s[at:end]]))
		}
		s = s[end:]
	}
	return seq
}

// AppendStructuralTag appends f as a structural tag of xgrammar 0.2, the
// grammar of both SGLang and vLLM:
//
//	{"type":"structural_tag","format":{…}}
func AppendStructuralTag(dst []byte, f Format) []byte {
	dst = append(dst, `{"type":"structural_tag","format":`...)
	return append(f.appendTag(dst), '}')
}

func (t Text) appendTag(dst []byte) []byte {
	return appendMember(dst, "const_string", "value", string(t))
}

// appendTag wraps the token in a repetition of once, which makes it a rule of its
// own: xgrammar's cache of compiled grammars confuses rules that differ only in
// tokens after their first element (0.2.1 to 0.2.8).
func (c Control) appendTag(dst []byte) []byte {
	dst = append(dst, `{"type":"repeat","min":1,"max":1,"content":{"type":"token","token":`...)
	return append(strconv.AppendUint(dst, uint64(c), 10), '}', '}')
}

func (Free) appendTag(dst []byte) []byte { return append(dst, anyText...) }

// appendTag limits the white space between two tokens of JSON: a deep value can be
// indented, and a model cannot generate white space forever.
func (v Value) appendTag(dst []byte) []byte {
	dst = append(dst, `{"type":"json_schema","max_whitespace_cnt":32,"json_schema":`...)
	return append(append(dst, v.Schema...), '}')
}

func (r Regex) appendTag(dst []byte) []byte {
	return appendMember(dst, "regex", "pattern", string(r))
}

func (g Grammar) appendTag(dst []byte) []byte {
	return appendMember(dst, "grammar", "grammar", string(g))
}

func (s Sequence) appendTag(dst []byte) []byte { return appendElements(dst, "sequence", s) }

func (c Choice) appendTag(dst []byte) []byte { return appendElements(dst, "or", c) }

func (o Optional) appendTag(dst []byte) []byte { return appendContent(dst, "optional", o.Format) }

func (m Many) appendTag(dst []byte) []byte { return appendContent(dst, "star", m.Format) }

func appendType(dst []byte, kind string) []byte {
	return append(append(append(dst, `{"type":"`...), kind...), '"')
}

func appendMember(dst []byte, kind, name, value string) []byte {
	dst = append(append(append(appendType(dst, kind), `,"`...), name...), `":`...)
	return append(jsontext.AppendString(dst, value), '}')
}

func appendElements(dst []byte, kind string, elements []Format) []byte {
	dst = append(appendType(dst, kind), `,"elements":[`...)
	for i, f := range elements {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = f.appendTag(dst)
	}
	return append(dst, ']', '}')
}

func appendContent(dst []byte, kind string, f Format) []byte {
	dst = append(appendType(dst, kind), `,"content":`...)
	return append(f.appendTag(dst), '}')
}

// anyText is the tag of any tokens except control tokens. Their ids begin before
// those of Harmony and end after them, with reserved ones.
var anyText = func() []byte {
	const first, last = harmony.TokenStartOfText, harmony.TokenCall + 6
	dst := []byte(`{"type":"any_tokens","exclude_tokens":[`)
	for t := first; t <= last; t++ {
		if t > first {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(t), 10)
	}
	return slices.Clip(append(dst, ']', '}'))
}()
