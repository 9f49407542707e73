// Package constraint says what form a model's reply must have, so that a
// request's promises are kept by the engine's grammar and not by hope: that a
// tool is called, that a strict tool's arguments and a structured answer follow
// their schemas.
//
// A [Promise] is what a request asks for. [Promise.Format] turns it into the set
// of all well-formed Harmony replies that keep it, a [Format], which no engine's
// syntax has part in; [AppendStructuralTag] writes that for the engines. The
// model may always reason first, and may use every form of a header that it was
// trained on. The package is pure: no API, no engine.
package constraint

import (
	"encoding/json"
	"regexp"
	"slices"
)

// Promise is what a request asks of the form of its reply.
type Promise struct {
	Tools    []Tool // that may be called
	Required bool   // at least one call, and no answer
	Narrowed bool   // Tools are not all that the model sees
	Parallel bool   // more than one call
	Answer   Answer // the final channel; nil: any text
}

// Tool is a tool that may be called.
type Tool struct {
	Recipient string          // such as functions.get_weather, of letters, digits and _-. only
	Builtin   bool            // it stands in the system message: the content type can be code
	Code      bool            // it is called with code: any text, no Schema
	Schema    json.RawMessage // of the arguments; nil: any JSON object
}

// Answer is the form of the final channel's text.
type Answer interface{ content() Format }

type (
	// AnswerJSON is one JSON value of a schema that [CheckSchema] has passed.
	AnswerJSON struct{ Schema json.RawMessage }
	// AnswerRegex is a text that matches an expression that [CheckRegex] has passed.
	AnswerRegex string
	// AnswerGrammar is a text of a grammar that [CheckGrammar] has passed.
	AnswerGrammar string
	// AnswerChoice is one of some texts that [CheckChoice] has passed.
	AnswerChoice []string
)

// Accepts tells whether a text matches the expression as a whole.
func (a AnswerRegex) Accepts(text []byte) bool {
	pattern, _, err := engineRegex(string(a), false)
	if err != nil {
		return false
	}
	whole, err := regexp.Compile(`^(?:` + goSyntax(pattern) + `)$`)
	return err != nil || whole.Match(text) // what only an engine can check has passed there
}

func (a AnswerJSON) content() Format    { return Value(a) }
func (a AnswerRegex) content() Format   { return Regex(a) }
func (a AnswerGrammar) content() Format { return Grammar(a) }

func (a AnswerChoice) content() Format {
	c := make(Choice, len(a))
	for i, text := range a {
		c[i] = Text(text)
	}
	return c
}

// AnyObject is the schema of any JSON object.
var AnyObject = json.RawMessage(`{"type":"object"}`)

// What a reply is made of. The reply follows <|start|>assistant, so every
// further message begins with that.
var (
	reasoning = Many{message("<|channel|>analysis<|message|>")}
	preamble  = Optional{append(message("<|channel|>commentary<|message|>"), reasoning)}
	more      = spelled("<|end|><|start|>assistant") // another message follows
	// The content type of a message in JSON and the end of its header. The
	// trained form is the third.
	jsonType = forms("<|message|>", " json<|message|>", " <|constrain|>json<|message|>", "<|constrain|>json<|message|>")
	// The same of a call with code, in its trained form, and of calls of built-in
	// tools, which have that one too.
	codeType    = forms(" code<|message|>", "<|message|>")
	builtinType = slices.Concat(codeType[:1], jsonType)
	// The headers of an answer.
	finals = forms("<|channel|>final<|message|>", "<|channel|>final json<|message|>", "<|channel|>final <|constrain|>json<|message|>", "<|channel|>final<|constrain|>json<|message|>")
)

// message is a message of any text that another one follows.
func message(header string) Sequence {
	return append(append(spelled(header), Free{}), spelled("<|end|><|start|>assistant")...)
}

// forms is one of some texts, in which control tokens are spelled.
func forms(texts ...string) Choice {
	c := make(Choice, len(texts))
	for i, text := range texts {
		c[i] = spelled(text)
	}
	return c
}

// Format is the set of the replies that keep the promise, nil if every
// well-formed reply does.
//
//	reply  = {analysis} [preamble {analysis}] ( call {end {analysis} call} | answer )
//
// A preamble is only before calls, which a request without tools cannot have.
func (p *Promise) Format() Format {
	if !p.binds() {
		return nil
	}
	whole := Sequence{reasoning}
	if len(p.Tools) > 0 {
		whole = append(whole, preamble)
	}
	switch {
	case p.Required:
		return append(whole, p.calls()...)
	case len(p.Tools) == 0:
		return append(whole, p.answer()...)
	}
	return append(whole, Choice{p.calls(), p.answer()})
}

// binds tells whether some well-formed reply breaks the promise.
func (p *Promise) binds() bool {
	if p.Required || p.Narrowed || p.Answer != nil {
		return true
	}
	for _, t := range p.Tools {
		if t.Schema != nil {
			return true
		}
	}
	return false
}

func (p *Promise) calls() Sequence {
	var one Choice
	var loose, builtins, code []string // of any object, the first two
	for _, t := range p.Tools {
		switch {
		case t.Code:
			code = append(code, t.Recipient)
		case t.Schema != nil && t.Builtin:
			one = append(one, call(builtinType, Value{t.Schema}, t.Recipient))
		case t.Schema != nil:
			one = append(one, call(jsonType, Value{t.Schema}, t.Recipient))
		case t.Builtin:
			builtins = append(builtins, t.Recipient)
		default:
			loose = append(loose, t.Recipient)
		}
	}
	// Together, because an engine compiles every schema for itself.
	if len(loose) > 0 {
		one = append(one, call(jsonType, Value{AnyObject}, loose...))
	}
	if len(builtins) > 0 {
		one = append(one, call(builtinType, Value{AnyObject}, builtins...))
	}
	if len(code) > 0 {
		one = append(one, call(codeType, Free{}, code...))
	}
	if !p.Parallel {
		return Sequence{one}
	}
	return Sequence{one, Many{append(slices.Clone(more), reasoning, one)}}
}

// call is a message that calls one of some tools. The recipient stands in the
// role's or in the channel's section of the header.
func call(types Choice, content Format, recipients ...string) Format {
	headers := make(Choice, 0, 4*len(recipients))
	for _, r := range recipients {
		to := " to=" + r
		headers = append(headers, forms(to+"<|channel|>commentary", "<|channel|>commentary"+to, to+"<|channel|>analysis", "<|channel|>analysis"+to)...)
	}
	return Sequence{headers, types, content}
}

func (p *Promise) answer() Sequence {
	switch a := p.Answer.(type) {
	case nil:
		return Sequence{finals, Free{}}
	case AnswerJSON:
		return Sequence{finals, a.content()}
	default:
		return Sequence{finals[0], a.content()}
	}
}
