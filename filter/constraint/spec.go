// Package constraint describes the output that a request allows, so that an
// engine's grammar enforces it: that a tool is called, and that a strict tool's
// arguments and a structured answer follow their schemas.
//
// A [Spec] is what a request asks for. [Spec.Format] turns it into a [Format], the
// set of all well-formed Harmony replies that follow the spec, independent of the
// engine. [AppendStructuralTag] writes a Format for the engines. The model may
// always reason first, and may use every form of a header that it was trained on.
//
// What a client sends is read with care: [CheckSchema], [CheckRegex], [CheckGrammar] and
// [CheckChoice] refuse what would crash an engine's compiler, or keep it busy for long. What
// an engine does not enforce, a [Validator] checks in the output. [After] states what is left
// of a Format after output that is there already. Custom tools' grammars are read by
// [InputLark] and [InputRegex].
//
// All that is computed for a request is taken from its [work.Account] first. The package knows
// no API and no engine's protocol, but it knows what xgrammar, the compiler of the engines,
// takes for granted, and what it gets wrong: the figures are of its version 0.2.8.
package constraint

import (
	"encoding/json"
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/work"
)

// Spec is the spec of a reply's output. The zero value allows any output.
type Spec struct {
	// The tools that may be called.
	Tools []Tool
	// At least one call, and no answer.
	Required bool
	// The model sees more tools than Tools.
	Narrowed bool
	// Calls are of Tools only, though no client asks for that.
	Declared bool
	// More than one call is allowed.
	Parallel bool
	// Of the final channel; nil: any text.
	Answer Answer
}

// Tool is a tool that may be called.
type Tool struct {
	// Such as functions.get_weather, of letters of any script, digits and _-. only.
	Recipient string
	// It is a tool of the system message: the content type can be code.
	Builtin bool
	// It is called with code: any text, no Schema.
	Code bool
	// Of the arguments; nil: any JSON object.
	Schema json.RawMessage
	// Of Schema, if it has been made already; else Format makes it. Without Schema it is
	// what no client asks for, and nobody checks.
	Enforced Value
	// Its arguments may be any text where only Declared restricts the output.
	Free bool
	// Of the arguments, in place of Schema; "": none.
	Grammar Grammar
}

// Answer is the output format of the final channel's text.
type Answer interface {
	content(account *work.Account) Format
}

type (
	// AnswerJSON is one JSON value of a schema that [CheckSchema] accepts.
	AnswerJSON struct{ Schema json.RawMessage }
	// AnswerRegex is a text that matches an expression that [CheckRegex] accepts.
	AnswerRegex string
	// AnswerGrammar is a text of a grammar that [CheckGrammar] accepts.
	AnswerGrammar string
	// AnswerChoice is one of some texts that [CheckChoice] accepts.
	AnswerChoice []string
)

// Accepts reports whether the whole text matches the expression. The error is that of the
// account.
func (a AnswerRegex) Accepts(account *work.Account, text []byte) (bool, error) {
	pattern, _, err := engineRegex(account, string(a), false)
	if err != nil {
		return false, account.Err()
	}

	// The pattern is matched as engines have it, so that both mean the same.
	re, err := parseExpression(account, goSyntax(pattern))
	var compiled *program
	if err == nil {
		compiled, err = compile(account, re)
	}
	switch {
	case account.Err() != nil:
		return false, account.Err()
	case err != nil:
		// What only engines can compile has been enforced there.
		return true, nil
	}

	return compiled.matcher().matches(account, text, true)
}

func (a AnswerJSON) content(account *work.Account) Format { return NewValue(account, a.Schema) }

func (a AnswerRegex) content(account *work.Account) Format {
	text, _, _ := engineRegex(account, string(a), false)
	return Regex(text)
}

func (a AnswerGrammar) content(*work.Account) Format { return Grammar(a) }

func (a AnswerChoice) content(*work.Account) Format {
	c := make(Choice, len(a))
	for i, text := range a {
		c[i] = Text(text)
	}
	return c
}

// AnyObject is the schema of any JSON object.
var AnyObject = json.RawMessage(`{"type":"object"}`)

// The parts of replies. A reply follows <|start|>assistant, so every further message
// begins with that.
var (
	reasoning = Many{message("<|channel|>analysis<|message|>")}
	preamble  = Optional{append(message("<|channel|>commentary<|message|>"), reasoning)}
	more      = spelled("<|end|><|start|>assistant") // another message follows
	// The content type of a message in JSON and the end of its header. The model
	// was trained on the third form.
	jsonType = forms("<|message|>", " json<|message|>", " <|constrain|>json<|message|>", "<|constrain|>json<|message|>")
	// The same of a call with code, first in the form that the model was trained on,
	// and of calls of built-in tools, which can have that form too.
	codeType    = forms(" code<|message|>", "<|message|>")
	builtinType = slices.Concat(codeType[:1], jsonType)
	// The headers of an answer.
	answerHeaders = forms("<|channel|>final<|message|>", "<|channel|>final json<|message|>",
		"<|channel|>final <|constrain|>json<|message|>", "<|channel|>final<|constrain|>json<|message|>")
)

// message returns a message of any text, and the start of the next one.
func message(header string) Sequence {
	return append(append(spelled(header), Free{}), spelled("<|end|><|start|>assistant")...)
}

// forms returns the choice of some texts, in which control tokens are spelled.
func forms(texts ...string) Choice {
	c := make(Choice, len(texts))
	for i, text := range texts {
		c[i] = spelled(text)
	}
	return c
}

// Format returns the set of the replies that follow the spec; nil if every
// well-formed reply does. It is in the form for engines, so that writing it takes no
// more than its length. What the account refuses is not read: [work.Account.Err] tells.
//
//	reply  = {analysis} [preamble {analysis}] ( call {end {analysis} call} | answer )
//
// A preamble precedes calls, so a request without tools has none. Where only Declared restricts the output, its
// messages come in any order.
func (s *Spec) Format(account *work.Account) Format {
	switch {
	case s.Restricts():
	case s.Declared && len(s.Tools) > 0:
		return s.declared(account)
	default:
		return nil
	}

	whole := Sequence{reasoning}
	if len(s.Tools) > 0 {
		whole = append(whole, preamble)
	}

	// After a preamble there may be calls alone, or an answer where none is required.
	switch {
	case s.Required:
		return append(whole, s.calls(account)...)
	case len(s.Tools) == 0:
		return append(whole, s.answer(account)...)
	}
	return append(whole, Choice{s.calls(account), s.answer(account)})
}

// Restricts reports whether there is a well-formed reply that violates the spec, other than by
// what no client asks for.
func (s *Spec) Restricts() bool {
	if s.Required || s.Narrowed || s.Answer != nil {
		return true
	}
	for _, t := range s.Tools {
		if t.Schema != nil || t.Grammar != "" {
			return true
		}
	}
	return false
}

// hasValue reports whether a tool's arguments have a schema.
func (t *Tool) hasValue() bool { return t.Schema != nil || t.Enforced.Schema != nil }

// value is the schema of a tool's arguments in the form for engines.
func (t *Tool) value(account *work.Account) Value {
	if t.Enforced.Schema != nil {
		return t.Enforced
	}

	return NewValue(account, t.Schema)
}

func (s *Spec) calls(account *work.Account) Sequence {
	var one Choice
	// Recipients; loose and builtins take any object.
	var loose, builtins, code []string
	for i := range s.Tools {
		tool := &s.Tools[i]
		switch {
		case tool.Code:
			code = append(code, tool.Recipient)
		case tool.Grammar != "":
			one = append(one, call(jsonType, tool.Grammar, tool.Recipient))
		case tool.hasValue() && tool.Builtin:
			one = append(one, call(builtinType, tool.value(account), tool.Recipient))
		case tool.hasValue():
			one = append(one, call(jsonType, tool.value(account), tool.Recipient))
		case tool.Builtin:
			builtins = append(builtins, tool.Recipient)
		default:
			loose = append(loose, tool.Recipient)
		}
	}
	// In one format, because an engine compiles every schema separately.
	if len(loose) > 0 {
		one = append(one, call(jsonType, NewValue(account, AnyObject), loose...))
	}
	if len(builtins) > 0 {
		one = append(one, call(builtinType, NewValue(account, AnyObject), builtins...))
	}
	if len(code) > 0 {
		one = append(one, call(codeType, Free{}, code...))
	}

	if !s.Parallel {
		return Sequence{one}
	}
	return Sequence{one, Many{append(slices.Clone(more), reasoning, one)}}
}

// call returns the messages that call one of some tools. The recipient is in the
// role's or in the channel's section of the header.
func call(types Choice, content Format, recipients ...string) Format {
	headers := make(Choice, 0, 4*len(recipients))
	for _, r := range recipients {
		to := " to=" + r
		headers = append(headers, forms(to+"<|channel|>commentary", "<|channel|>commentary"+to,
			to+"<|channel|>analysis", "<|channel|>analysis"+to)...)
	}
	return Sequence{headers, types, content}
}

func (s *Spec) answer(account *work.Account) Sequence {
	switch a := s.Answer.(type) {
	case nil:
		return Sequence{answerHeaders, Free{}}
	case AnswerJSON:
		return Sequence{answerHeaders, a.content(account)}
	// Only JSON is announced by a content type.
	default:
		return Sequence{answerHeaders[0], a.content(account)}
	}
}
