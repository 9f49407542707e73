package constraint

import (
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/work"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// After returns the output that f allows after output, the beginning of a reply that f
// allows. ok is false if that cannot be stated: output ends inside a value of a schema, or
// inside a text of a regular expression or of a grammar, or f does not allow it; or it
// takes more steps than account has.
func After(account *work.Account, format Format, output []harmony.Token) (rest Format, ok bool) {
	var text []byte

	d := derivation{account: account}
	for _, token := range output {
		if token >= harmony.TokenStartOfText {
			format, ok = d.derive(format, symbol{control: token})
			if format == nil || !ok {
				return nil, false
			}
			continue
		}

		// Most output is free text, in which a token changes nothing: its bytes are not looked at.
		if inFree(format) {
			continue
		}
		var err error
		// An id outside of the vocabulary is no text that a format has.
		if text, err = harmony.AppendDecode(text[:0], []harmony.Token{token}); err != nil {
			return nil, false
		}
		for _, b := range text {
			if format, ok = d.derive(format, symbol{text: b}); format == nil || !ok {
				return nil, false
			}
		}
	}

	// Nothing may follow.
	if s, isSequence := format.(Sequence); isSequence && len(s) == 0 {
		return nil, false
	}
	return format, format != nil
}

// inFree reports whether f begins with any text, which only a control token ends.
func inFree(f Format) bool {
	s, ok := f.(Sequence)
	if !ok || len(s) < 2 {
		_, ok = f.(Free)
		return ok
	}

	_, free := s[0].(Free)
	_, ends := s[1].(Control)
	return free && ends
}

// symbol is a control token, or a byte of text if control is 0.
type symbol struct {
	control harmony.Token
	text    byte
}

// derivation derives formats, and counts the formats that it looks at: each symbol can
// begin thousands of alternatives.
type derivation struct {
	account *work.Account
	refused bool
}

// stepsOfFormat is about what it takes to look at a format or to copy it.
const stepsOfFormat = 3

func (d *derivation) spend(formats int) {
	d.refused = d.refused || d.account.Spend(formats*stepsOfFormat) != nil
}

// derive returns what f allows after a first symbol: its derivative, as Brzozowski
// defined that for regular expressions. nil means that f does not allow the symbol; ok
// is false if the rest cannot be stated.
func (d *derivation) derive(format Format, first symbol) (rest Format, ok bool) {
	if d.refused {
		return nil, false
	}

	// A format that is one symbol: the rest is nothing, or the same again.
	switch format := format.(type) {
	case Text:
		if first.control == 0 && format != "" && format[0] == first.text {
			return format[1:], true
		}
		return nil, true
	case Control:
		if first.control == harmony.Token(format) {
			return Sequence{}, true
		}
		return nil, true
	case Free:
		if first.control == 0 {
			return format, true
		}
		return nil, true
	case Sequence:
		return d.deriveSequence(format, first)
	case Choice:
		return d.deriveChoice(format, first)
	case Optional:
		return d.derive(format.Format, first)
	case Many:
		// The rest of one time, and then any number again.
		rest, ok = d.derive(format.Format, first)
		return d.join(rest, Sequence{format}), ok
	case Some:
		rest, ok = d.derive(format.Format, first)
		return d.join(rest, Sequence{Many(format)}), ok
	}
	// A value, an expression or a grammar: only engines know what may follow within one.
	return nil, first.control != 0
}

func (d *derivation) deriveSequence(sequence Sequence, first symbol) (Format, bool) {
	d.spend(len(sequence))
	var rests Choice

	for i, element := range sequence {
		rest, ok := d.derive(element, first)
		if !ok {
			return nil, false
		}
		if rest != nil {
			rests = append(rests, d.join(rest, sequence[i+1:]))
		}

		// An element that can be empty lets the next one begin too.
		if !canBeEmpty(element) {
			break
		}
	}
	return oneOf(rests), true
}

func (d *derivation) deriveChoice(choice Choice, first symbol) (Format, bool) {
	d.spend(len(choice))
	var rests Choice

	for _, element := range choice {
		rest, ok := d.derive(element, first)
		if !ok {
			return nil, false
		}
		if rest != nil {
			rests = append(rests, rest)
		}
	}
	return oneOf(rests), true
}

// oneOf returns the choice of some formats; nil for none.
func oneOf(formats Choice) Format {
	switch len(formats) {
	case 0:
		return nil
	case 1:
		return formats[0]
	}
	return formats
}

// join returns a format followed by others; nil stays nil.
func (d *derivation) join(first Format, others Sequence) Format {
	if first == nil {
		return nil
	}
	// Of a text that is there to its end nothing is left.
	if t, ok := first.(Text); ok && t == "" {
		first = Sequence{}
	}

	s, ok := first.(Sequence)
	if !ok {
		s = Sequence{first}
	}

	d.spend(len(s) + len(others))
	all := append(append(make(Sequence, 0, len(s)+len(others)), s...), others...)
	if len(all) == 1 {
		return all[0]
	}
	return all
}

// canBeEmpty reports whether a format allows the empty output. Of values, expressions
// and grammars only control tokens would have to know, and none follows these.
func canBeEmpty(format Format) bool {
	switch format := format.(type) {
	case Text:
		return format == ""
	case Free, Optional, Many:
		return true
	case Sequence:
		for _, element := range format {
			if !canBeEmpty(element) {
				return false
			}
		}
		return true
	case Choice:
		return slices.ContainsFunc(format, canBeEmpty)
	case Some:
		return canBeEmpty(format.Format)
	}
	return false
}
