package turn

import (
	"bytes"
	"encoding/json"
	"net/http"
	"regexp"
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// ToolName is a tool by the client's names. The namespace of plain functions is
// [FunctionsNamespace].
type ToolName struct{ Namespace, Name string }

// Choice narrows what the model may do with the tools.
type Choice struct {
	Required bool       // at least one call, and no answer
	Allowed  []ToolName // the only tools that may be called; nil: all
}

// Format is the form that the answer must have.
type Format struct {
	Answer    constraint.Answer
	Announced *harmony.ResponseFormat // what the prompt says of it; nil: nothing
}

// maxPromised bounds the schemas that an engine has to make a grammar of.
const maxPromised = 512 << 10

// promise gathers what a request promises of its reply; the zero value is
// nothing.
func promise(in *Input, tools *toolset) (constraint.Promise, *apierror.Error) {
	p := constraint.Promise{Required: in.Choice.Required, Parallel: !in.OneCall}
	if in.Format != nil {
		p.Answer = in.Format.Answer
	}
	size := 0
	allowed := map[ToolName]bool{}
	for _, ns := range tools.namespaces {
		for _, t := range ns.Tools {
			recipient := ns.Name + "." + t.Name
			named := tools.byRecipient[recipient]
			client := ToolName{named.namespace, named.name}
			if in.NoCalls || in.Choice.Allowed != nil && !slices.Contains(in.Choice.Allowed, client) {
				continue
			}
			allowed[client] = true
			if in.Strict[client] {
				if size += len(t.Parameters); size > maxPromised {
					return p, apierror.Invalid("tools", "The schemas of the strict tools are larger than %d bytes together. Make fewer of them strict.", maxPromised)
				}
			}
			schema, err := enforced(in, client, t.Parameters)
			if err != nil {
				return p, err
			}
			p.Tools = append(p.Tools, constraint.Tool{Recipient: recipient, Schema: schema})
		}
	}
	p.Narrowed = !in.NoCalls && len(p.Tools) < len(tools.byRecipient)
	for _, name := range in.Choice.Allowed {
		if !allowed[name] {
			return p, apierror.Invalid("tool_choice", "The tool %q of tool_choice is not one of the tools of the request.", name.Name)
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
		return nil, apierror.Invalid("tools", "The arguments of the strict tool %q cannot be enforced: the schema %s. Change it, or leave out strict.", name.Name, err)
	}
	return bytes.Clone(schema), nil // which may be a piece of the request's body
}

// kept is what a Reader checks of the reply, for engines that take a constraint
// and do not keep to it.
type kept struct {
	required  bool
	answer    constraint.Answer // that must be there; nil: any or none
	arguments bool              // of calls are a JSON object
	allowed   []ToolName        // nil: all
}

func (t *Turn) keep(p *constraint.Promise, choice Choice) {
	if t.Engine.Constraint == nil {
		return
	}
	t.kept = kept{required: p.Required, answer: p.Answer, arguments: true, allowed: choice.Allowed}
}

// isOf tells whether a text has the form of an answer, as far as can be told
// without the engine's grammars.
func isOf(answer constraint.Answer, text []byte) bool {
	switch a := answer.(type) {
	case constraint.AnswerJSON:
		return json.Valid(text)
	case constraint.AnswerChoice:
		return slices.Contains(a, string(text))
	case constraint.AnswerRegex:
		// Where the engine's idea of . and of ends of lines may be another, the
		// reply has the benefit of the doubt.
		whole, err := regexp.Compile(`(?s)^(?:` + string(a) + `)$`)
		return err != nil || whole.Match(text)
	}
	return true
}

// isObject tells whether a text is one JSON object.
func isObject(text []byte) bool {
	return json.Valid(text) && bytes.HasPrefix(bytes.TrimSpace(text), []byte("{"))
}

// unkept ends the choice because the engine did not keep to the constraint.
func (r *Reader) unkept() *apierror.Error {
	r.finish = FinishError
	r.repaired(repairFailed)
	return apierror.New(http.StatusBadGateway, "constraint_not_kept", "", "The engine did not keep to the form of the output that the request asks for. Try again, or ask the operator whether the engine's grammars are switched on.")
}

// watches tells whether the part being read is to be checked.
func (r *Reader) watches() bool {
	return r.part == Answer && r.turn.kept.answer != nil || r.part == Call && r.turn.kept.arguments
}

// checkPart looks at a part that has ended.
func (r *Reader) checkPart() {
	k := &r.turn.kept
	if r.part == Call && k.allowed != nil && r.call != nil && !slices.Contains(k.allowed, ToolName{r.call.Namespace, r.call.Name}) {
		r.broken = true
	}
	if r.watches() && r.started {
		if r.part == Call && !isObject(r.watched) || r.part == Answer && !isOf(k.answer, r.watched) {
			r.broken = true
		}
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
