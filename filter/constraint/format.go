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
	// Some is a format at least once.
	Some struct{ Format Format }
)

// NewValue returns the format of the values of a schema that [CheckSchema] accepts.
func NewValue(account *work.Account, schema json.RawMessage) Value {
	return Value{schemaForEngines(account, schema)}
}

// controls are the control tokens by their spellings.
var controls = map[string]harmony.Token{
	"<|start|>": harmony.TokenStart, "<|channel|>": harmony.TokenChannel, "<|message|>": harmony.TokenMessage,
	"<|constrain|>": harmony.TokenConstrain,
	"<|end|>":       harmony.TokenEnd, "<|return|>": harmony.TokenReturn, "<|call|>": harmony.TokenCall,
}

// spelled returns the format of a text in which control tokens are spelled. The text
// must not come from a client.
func spelled(text string) Sequence {
	var seq Sequence
	for text != "" {
		// The first control token, and the text before it.
		at, end := len(text), len(text)
		for name := range controls {
			if i := strings.Index(text, name); i >= 0 && i < at {
				at, end = i, i+len(name)
			}
		}

		if at > 0 {
			seq = append(seq, Text(text[:at]))
		}
		if at < end {
			seq = append(seq, Control(controls[text[at:end]]))
		}
		text = text[end:]
	}
	return seq
}

// AppendStructuralTag appends f as a structural tag of xgrammar 0.2, the
// grammar of both SGLang and vLLM:
//
//	{"type":"structural_tag","format":{…}}
func AppendStructuralTag(dst []byte, f Format) []byte {
	w := openTag(dst, "structural_tag").Key("format")
	w = f.appendTag(w)
	return w.Close()
}

func (t Text) appendTag(dst []byte) []byte {
	return openTag(dst, "const_string").Text("value", string(t)).Close()
}

// appendTag wraps the token in a repetition of once, which makes it a rule of its
// own: xgrammar's cache of compiled grammars confuses rules that differ only in
// tokens after their first element (0.2.1 to 0.2.8).
func (c Control) appendTag(dst []byte) []byte {
	w := openTag(dst, "repeat").Int("min", 1).Int("max", 1).Key("content")
	return openTag(w, "token").Int("token", int64(c)).Close().Close()
}

func (Free) appendTag(dst []byte) []byte { return append(dst, anyText...) }

// appendTag limits the white space between two tokens of JSON: a deep value can be
// indented, and a model cannot generate white space forever.
func (v Value) appendTag(dst []byte) []byte {
	return openTag(dst, "json_schema").Int("max_whitespace_cnt", 32).Raw("json_schema", v.Schema).Close()
}

func (r Regex) appendTag(dst []byte) []byte {
	return openTag(dst, "regex").Text("pattern", string(r)).Close()
}

func (g Grammar) appendTag(dst []byte) []byte {
	return openTag(dst, "grammar").Text("grammar", string(g)).Close()
}

func (s Sequence) appendTag(dst []byte) []byte { return appendElements(dst, "sequence", s) }

func (c Choice) appendTag(dst []byte) []byte { return appendElements(dst, "or", c) }

func (o Optional) appendTag(dst []byte) []byte { return appendContent(dst, "optional", o.Format) }

func (s Some) appendTag(dst []byte) []byte { return appendContent(dst, "plus", s.Format) }

func (m Many) appendTag(dst []byte) []byte { return appendContent(dst, "star", m.Format) }

// openTag begins a tag of a kind. dst is all of a grammar, or the list or the member that the
// tag is in.
func openTag(dst []byte, kind string) jsontext.Writer {
	return jsontext.Writer(dst).Open().Text("type", kind)
}

func appendElements(dst []byte, kind string, elements []Format) []byte {
	w := openTag(dst, kind).Key("elements").OpenList()
	for _, f := range elements {
		w = f.appendTag(w.Element())
	}
	return w.CloseList().Close()
}

func appendContent(dst []byte, kind string, f Format) []byte {
	w := openTag(dst, kind).Key("content")
	w = f.appendTag(w)
	return w.Close()
}

// anyText is the tag of any tokens except control tokens. Their ids begin before
// those of Harmony and end after them, with reserved ones.
var anyText = func() []byte {
	const first, last = harmony.TokenStartOfText, harmony.TokenCall + 6
	w := openTag(nil, "any_tokens").Key("exclude_tokens").OpenList()
	for t := first; t <= last; t++ {
		w = strconv.AppendUint(w.Element(), uint64(t), 10)
	}
	return slices.Clip(w.CloseList().Close())
}()
