package turn

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// ToolName is a tool by the client's names. The namespace of plain functions is
// [FunctionsNamespace]. Builtin tells the tools of [Input].Builtins from the
// client's own of the same name; of a namespace that itself is the tool the name
// is "".
type ToolName struct {
	Namespace, Name string
	Builtin         bool
}

// Choice narrows what the model may do with the tools.
type Choice struct {
	Required bool       // at least one call, and no answer
	Allowed  []ToolName // the only tools that may be called; nil: all, but where Required built-in tools only if there are no others
}

// Format is the form that the answer must have.
type Format struct {
	Answer    constraint.Answer
	Announced *harmony.ResponseFormat // what the prompt says of it; nil: nothing
	Strict    bool                    // all of a schema is enforced, not what grammars are made of alone
}

// maxPromised bounds the schemas that an engine has to make a grammar of.
const maxPromised = 512 << 10

// narrow is a choice with the tools that a required call may be of named, where
// these are not all: a search is not the call that such a client waits for.
func (s *toolset) narrow(c Choice) Choice {
	if !c.Required || c.Allowed != nil || len(s.namespaces) == 0 || len(s.builtins) == 0 {
		return c
	}
	for _, t := range s.byRecipient {
		if !t.builtin {
			c.Allowed = append(c.Allowed, ToolName{t.namespace, t.name, false})
		}
	}
	return c
}

// promise gathers what a request promises of its reply; the zero value is
// nothing.
func promise(in *Input, choice Choice, tools *toolset) (constraint.Promise, *apierror.Error) {
	p := constraint.Promise{Required: choice.Required, Parallel: !in.OneCall}
	if in.Format != nil {
		p.Answer = in.Format.Answer
	}
	size := 0
	allowed := map[ToolName]bool{}
	err := tools.each(func(recipient string, parameters json.RawMessage) *apierror.Error {
		named := tools.byRecipient[recipient]
		client := ToolName{named.namespace, named.name, named.builtin}
		if in.NoCalls || choice.Allowed != nil && !slices.Contains(choice.Allowed, client) {
			return nil
		}
		allowed[client] = true
		if in.Strict[client] {
			if size += len(parameters); size > maxPromised {
				return apierror.Invalid("tools", "The schemas of the strict tools are larger than %d bytes together. Make fewer of them strict.", maxPromised)
			}
		}
		schema, err := enforced(in, client, parameters)
		p.Tools = append(p.Tools, constraint.Tool{Recipient: recipient, Builtin: named.builtin, Code: named.isCode(), Schema: schema})
		return err
	})
	if err != nil {
		return p, err
	}
	p.Narrowed = !in.NoCalls && len(p.Tools) < len(tools.byRecipient)
	for _, name := range choice.Allowed {
		if !allowed[name] {
			return p, apierror.Invalid("tool_choice", "The tool %q of tool_choice is not one of the tools of the request.", cmp.Or(name.Name, name.Namespace))
		}
	}
	if p.Required && len(p.Tools) == 0 {
		return p, apierror.Invalid("tool_choice", "tool_choice asks for a call, but the request has no tools that may be called.")
	}
	return p, nil
}

// enforced is the schema that a tool's arguments must keep to; nil if they need
// only be an object.
func enforced(in *Input, name ToolName, schema json.RawMessage) (json.RawMessage, *apierror.Error) {
	if !in.Strict[name] {
		return nil, nil
	}
	if len(schema) == 0 {
		return json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`), nil
	}
	if err := constraint.CheckSchema(schema, true); err != nil {
		return nil, apierror.Invalid("tools"+parametersPath(name, err), "The arguments of the strict tool %q cannot be enforced: the schema %s. Change it, or leave out strict.", name.Name, err)
	}
	return bytes.Clone(schema), nil // which may be a piece of the request's body
}

// parametersPath is where a fault of a tool's schema is, behind "tools"; "" for
// the schema as a whole.
func parametersPath(name ToolName, err error) string {
	if path := constraint.SchemaPath(err); path != "" {
		return "." + name.Name + ".parameters" + path
	}
	return ""
}

// kept is what a Reader checks of the reply: for engines that take a constraint
// and do not keep to it, for what their grammars let pass of strict schemas, and
// for engines that take none.
type kept struct {
	required  bool
	answer    constraint.Answer // that must be there; nil: any or none
	arguments bool              // of calls are a JSON object
	allowed   []ToolName        // nil: all

	schema  *constraint.Validator              // of the answer; nil: not checked
	strict  map[ToolName]*constraint.Validator // of the arguments of strict tools; nil: not checked
	checked bool                               // there is no grammar that sees to it
}

// kept is what is checked of a reply that keeps a promise. Where an engine sees to
// it, schemas are checked if they are strict and can be checked.
func (s *Scope) kept(in *Input, p *constraint.Promise, choice Choice, tools *toolset) (kept, *apierror.Error) {
	k := kept{required: p.Required, answer: p.Answer, arguments: true, allowed: choice.Allowed, checked: s.Checked}
	var err error
	switch a := p.Answer.(type) {
	case constraint.AnswerGrammar:
		if s.Checked {
			return k, apierror.Invalid("", "This model's engine takes no grammars, and answers cannot be checked against one. Use a JSON Schema, a regular expression or a choice.")
		}
	case constraint.AnswerJSON:
		if !s.Checked && !in.Format.Strict {
			break
		}
		if k.schema, err = constraint.NewValidator(a.Schema); err != nil && s.Checked {
			return k, apierror.Invalid("", "The output format cannot be enforced: the schema %s. Change it.", err)
		}
	}
	k.strict = map[ToolName]*constraint.Validator{}
	for _, t := range p.Tools {
		if t.Schema == nil {
			continue
		}
		named := tools.byRecipient[t.Recipient]
		if k.strict[ToolName{named.namespace, named.name, named.builtin}], err = constraint.NewValidator(t.Schema); err != nil && s.Checked {
			return k, apierror.Invalid("tools", "The arguments of the strict tool %q cannot be enforced: the schema %s. Change it, or leave out strict.", named.name, err)
		}
	}
	return k, nil
}

// later is what holds for the turns that follow a first one with a promise: there
// no call is required any more. nil: the same.
func (s *Scope) later(in *Input, first *constraint.Promise, tools *toolset) (*bond, *apierror.Error) {
	if !first.Required {
		return nil, nil
	}
	choice := Choice{Allowed: in.Choice.Allowed}
	p, err := promise(in, choice, tools)
	b := &bond{promise: p}
	if err == nil && p.Format() != nil {
		b.kept, err = s.kept(in, &p, choice, tools)
	}
	return b, err
}

// bond is a promise and what is checked of a reply that keeps it.
type bond struct {
	promise constraint.Promise
	kept    kept
}

// answers tells whether a text has the form of the answer, as far as can be told
// without the engine's grammars.
func (k *kept) answers(text []byte) bool {
	switch a := k.answer.(type) {
	case constraint.AnswerJSON:
		return json.Valid(text) && k.accepts(k.schema, text)
	case constraint.AnswerChoice:
		return slices.Contains(a, string(text))
	case constraint.AnswerRegex:
		return a.Accepts(text)
	}
	return true
}

// argues tells whether a text is the arguments of a call: one JSON object, of the
// tool's schema where that is to be checked.
func (k *kept) argues(tool ToolName, text []byte) bool {
	return json.Valid(text) && bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) && k.accepts(k.strict[tool], text)
}

// accepts tells whether a text is of a schema, nil for any. What is too much to
// check is left to the engine that sees to it.
func (k *kept) accepts(schema *constraint.Validator, text []byte) bool {
	return schema == nil || !k.checked && !schema.Affords(text) || schema.Accepts(text)
}

// codeUnkept is the code of the error of a reply that breaks a promise.
const codeUnkept = "constraint_not_kept"

// unkept ends the choice because the engine did not keep to the constraint.
func (r *Reader) unkept() *apierror.Error {
	r.finish = FinishError
	r.repaired(repairFailed)
	if r.turn.kept.checked {
		return apierror.New(http.StatusBadGateway, codeUnkept, "", "The model did not keep to the form of the output that the request asks for, and its engine cannot be made to. Try again, or say in the messages what the output must look like.")
	}
	return apierror.New(http.StatusBadGateway, codeUnkept, "", "The engine did not keep to the form of the output that the request asks for. Try again, or ask the operator whether the engine's grammars are switched on.")
}

// watches tells whether the part being read is to be checked.
func (r *Reader) watches() bool {
	return r.part == Answer && r.turn.kept.answer != nil || r.part == Call && r.turn.kept.arguments && r.call != nil && !r.call.IsCode()
}

// checkPart looks at a part that has ended.
func (r *Reader) checkPart() {
	k := &r.turn.kept
	var called ToolName
	if r.call != nil {
		called = ToolName{r.call.Namespace, r.call.Name, r.call.Builtin}
	}
	switch {
	case r.part == Call && k.allowed != nil && r.call != nil && !slices.Contains(k.allowed, called),
		r.part == Answer && k.required && k.checked && r.started:
		r.broken = true
	case r.watches() && r.started:
		r.broken = r.broken || r.part == Call && !k.argues(called, r.watched) || r.part == Answer && !k.answers(r.watched)
	}
	r.watched = r.watched[:0]
}

// checkEnd looks at a reply that has ended by itself: a call that is required
// must be there, and so must an answer that has a form.
func (r *Reader) checkEnd() *apierror.Error {
	k := &r.turn.kept
	if r.matched == nil && (r.broken || len(r.calls) == 0 && (k.required || k.answer != nil && !r.shown)) {
		return r.unkept()
	}
	return nil
}
