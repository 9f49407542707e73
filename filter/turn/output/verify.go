package output

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/toolset"
	"github.com/envoy-harmony/envoy-harmony/filter/work"
)

// verifier verifies that output follows its spec: for engines that accept a
// constraint and do not apply it, for the parts of strict schemas that grammars
// cannot express, and for engines that accept no constraint. The zero value
// accepts any output.
type verifier struct {
	// A call, and no answer.
	required bool
	// That must be there; nil: any or none.
	answer constraint.Answer
	// Of calls are JSON objects.
	arguments bool
	// Nil: all.
	allowed map[item.ToolName]bool

	// Of the answer; nil: not verified.
	schema *constraint.Validator
	// Of the arguments of strict tools; nil: not verified.
	strict map[item.ToolName]*constraint.Validator
	// No grammar of an engine enforces the spec.
	alone bool
	// Or not all of it: the reply is checked before the client gets any of it.
	held bool

	// That were reserved for schema and strict.
	bytes int

	// settled is what a [Check] has decided of the texts of the whole output; Undecided
	// where there is none, so that readers verify texts as they end.
	settled Verdict
}

// newVerifier returns the verifier of a spec. If an engine enforces the spec, only
// strict schemas are verified, and only those that can be.
func newVerifier(
	rc *request.Context, in *request.Input, spec *constraint.Spec, choice request.Choice, tools *toolset.Set,
) (verifier, *apierror.Error) {
	rules := verifier{
		required: spec.Required, answer: spec.Answer, arguments: true, allowed: choice.AllowedSet(), alone: rc.Checked,
	}
	room := roomTaken{rc: rc}
	var err error

	// What an engine's grammar enforces need not be verified, except what no grammar can express.
	switch answer := spec.Answer.(type) {
	case constraint.AnswerGrammar:
		if rc.Checked {
			return rules, apierror.Invalid("",
				"This model's engine does not support grammars, and answers cannot be verified against a "+
					"grammar. Use a JSON Schema, a regular expression or a choice.")
		}
	case constraint.AnswerJSON:
		if !rc.Checked && !in.Format.Strict {
			break
		}
		if rules.schema, err = rules.validator(&room, answer.Schema); err != nil {
			if refusal := room.refused(""); refusal != nil {
				return rules, refusal
			}
			return rules, apierror.Invalid("", "The output format cannot be enforced: the schema %s. Change it.", err)
		}
	}

	rules.strict = map[item.ToolName]*constraint.Validator{}
	for _, called := range spec.Tools {
		name := tools.Named(called.Recipient)
		if !tools.IsStrict(in, name) || called.Schema == nil {
			continue
		}

		if rules.strict[name], err = rules.validator(&room, called.Schema); err != nil {
			if refusal := room.refused("tools"); refusal != nil {
				return rules, refusal
			}
			return rules, apierror.Invalid("tools",
				"The arguments of the strict tool %q cannot be enforced: the schema %s. Change it, or leave "+
					"out strict.", name.Name, err)
		}
	}

	rules.bytes = room.bytes
	return rules, nil
}

// laterSpec is the spec of the turns after the first one of a reply.
type laterSpec struct {
	// Nil: any output.
	format constraint.Format
	// See [engine.Request.Advised].
	advised  bool
	verifier verifier
}

// newLaterSpec returns the spec of the later turns, in which no call is required any
// more; nil: it is that of the first turn.
func newLaterSpec(
	rc *request.Context, in *request.Input, first *constraint.Spec, tools *toolset.Set,
) (*laterSpec, *apierror.Error) {
	if !first.Required {
		return nil, nil
	}

	choice := request.Choice{Allowed: in.Choice.Allowed}
	spec, err := toolset.NewSpec(rc, in, choice, tools)
	l := &laterSpec{}
	if err == nil {
		l.format = spec.Format(rc.Work)
		l.advised = l.format != nil && !spec.Restricts()
	}

	if err == nil && spec.Restricts() {
		l.verifier, err = newVerifier(rc, in, &spec, choice, tools)
	}
	return l, err
}

const (
	// validatorBytes is about what a validator takes for each object of a schema, in bytes:
	// much more than the object's text may have.
	validatorBytes = 1 << 10
	// valueBytes is the same for each other value: a validator keeps the whole schema.
	valueBytes = 64
)

// bytesOfValidator is about what the validator of a schema takes, without its compiled patterns.
func bytesOfValidator(schema json.RawMessage) int {
	return bytes.Count(schema, []byte("{"))*validatorBytes + constraint.Values(schema)*valueBytes
}

// roomTaken is room that was taken for one thing: of the request's memory, until its reply has
// ended.
type roomTaken struct {
	rc    *request.Context
	bytes int
	// Nil: there was room for all.
	refusal *apierror.Error
}

// take is a [constraint.Room].
func (r *roomTaken) take(n int) error {
	if r.refusal = r.rc.Room(n); r.refusal != nil {
		return r.refusal
	}
	r.bytes += n
	return nil
}

// refused returns the error of a request that had no room, or no steps; nil if it had.
func (r *roomTaken) refused(param string) *apierror.Error {
	if r.refusal != nil {
		return r.refusal
	}
	return r.rc.WorkRefused(param)
}

// giveBack returns the room of what was not made.
func (r *roomTaken) giveBack() {
	_ = r.rc.Room(-r.bytes)
	r.bytes = 0
}

// validator returns the validator of a strict schema; nil if the schema cannot be
// verified and an engine enforces all of it. If an engine does not, the reply is
// held.
func (v *verifier) validator(room *roomTaken, schema json.RawMessage) (*constraint.Validator, error) {
	if err := room.take(bytesOfValidator(schema)); err != nil {
		return nil, err
	}
	validator, err := constraint.NewValidator(room.rc.Work, schema, room.take)

	left := !v.alone && constraint.Unenforced(room.rc.Work, schema) != nil
	v.held = v.held || left

	// A schema that cannot be verified is no error if the engine enforces it.
	if !left && !v.alone && room.refusal == nil {
		err = nil
	}
	return validator, err
}

// answerFollows reports whether a text has the form of the answer, as far as can be
// verified without the engine's grammars. The error is that of the account.
func (v *verifier) answerFollows(account *work.Account, text []byte) (bool, error) {
	switch answer := v.answer.(type) {
	case constraint.AnswerJSON:
		if !json.Valid(text) || v.schema == nil {
			return json.Valid(text), nil
		}
		return v.schema.Accepts(account, text)
	case constraint.AnswerChoice:
		return slices.Contains(answer, string(text)), nil
	case constraint.AnswerRegex:
		return answer.Accepts(account, text)
	}
	return true, nil
}

// argumentsFollow reports whether a text is the arguments of a call: one JSON object, of
// the tool's schema if the tool is strict. The error is that of the account.
func (v *verifier) argumentsFollow(account *work.Account, tool item.ToolName, text []byte) (bool, error) {
	switch schema := v.strict[tool]; {
	case !json.Valid(text) || !bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")):
		return false, nil
	case schema == nil:
		return true, nil
	default:
		return schema.Accepts(account, text)
	}
}

// verifyText makes a check of a text that a reader has read. If no engine enforces the spec,
// the check has to be made, whatever it takes of what the request may still take.
func verifyText(rc *request.Context, v *verifier, check func(account *work.Account) (bool, error)) bool {
	if !v.alone && !v.held {
		return rc.Inline(check)
	}
	ok, _ := check(rc.Work.After())

	return ok
}

// codeViolation is the error code of output that violates its spec.
const codeViolation = "constraint_not_kept"

// follows reports whether a text has the form that the spec demands. The error is the
// account's.
func (v *verifier) follows(account *work.Account, t *checkedText) (bool, error) {
	if t.kind == item.Call {
		return v.argumentsFollow(account, t.tool, t.text)
	}
	return v.answerFollows(account, t.text)
}

// verification is how far the output of a choice has been verified.
type verification struct {
	// Of the part being read, if it is verified.
	text []byte
	// Of parts that have ended, for the check that the choice is read for.
	checked []checkedText
	// By a part that has ended, or by the name of a call.
	violated bool
}

// verifiesPart reports whether the text of the part being read is verified.
func (r *Reader) verifiesPart() bool {
	v := &r.plan.verifier
	if v.settled != Undecided {
		return false
	}
	return r.part.kind == item.Answer && v.answer != nil ||
		r.part.kind == item.Call && v.arguments && r.part.call != nil && !r.part.call.IsCode()
}

// verifyPart verifies the part, whose text is complete.
func (r *Reader) verifyPart() {
	rules := &r.plan.verifier
	var called item.ToolName
	if r.part.call != nil {
		called = r.part.call.Tool()
	}

	started := r.part.state != partUnseen
	switch {
	case r.part.kind == item.Answer && rules.required && rules.alone && started:
		r.verified.violated = true
	case !started || !r.verifiesPart():
	case r.check != nil:
		// The check decides when the output is complete, on a goroutine of its own.
		r.verified.checked = append(r.verified.checked, checkedText{r.part.kind, called, bytes.Clone(r.verified.text)})
	default:
		text := checkedText{r.part.kind, called, r.verified.text}
		check := func(account *work.Account) (bool, error) { return rules.follows(account, &text) }
		r.verified.violated = r.verified.violated || !verifyText(r.plan.rc, rules, check)
	}

	r.verified.text = r.verified.text[:0]
}

// verifyEnd verifies a choice that was not ended because of its length: there must
// be a call if one is required, and an answer if it has a form. After a stop
// condition of the client anything is valid.
func (r *Reader) verifyEnd() *apierror.Error {
	v := &r.plan.verifier
	if r.ending.matched != nil {
		return nil
	}

	missing := len(r.calls) == 0 && (v.required || v.answer != nil && !r.shown)
	if r.verified.violated || missing || v.settled == Unkept || v.settled == Unchecked {
		return r.violation()
	}

	if r.check != nil {
		r.check.texts = append(r.check.texts, r.verified.checked...)
	}
	return nil
}

// violation ends the choice because its output violates the spec.
func (r *Reader) violation() *apierror.Error {
	r.ending.finish = item.FinishError
	r.repaired(repairFailed)

	if r.plan.verifier.settled == Unchecked {
		return apierror.New(http.StatusBadGateway, codeViolation, "",
			"The model's output takes too much work to check against the schema or the expression of the "+
				"request. Make it simpler, or ask for a shorter answer.")
	}

	if r.plan.verifier.held {
		return apierror.New(http.StatusBadGateway, codeViolation, "",
			"The model's output does not follow the schema of the request, which has keywords that engines "+
				"cannot enforce. Try again, or describe in the messages what these keywords demand.")
	}

	if r.plan.verifier.alone {
		return apierror.New(http.StatusBadGateway, codeViolation, "",
			"The model's output does not follow the output format or tool choice of the request, and this "+
				"model's engine cannot enforce them. Try again, or describe the expected output in the messages.")
	}
	return apierror.New(http.StatusBadGateway, codeViolation, "",
		"The engine did not enforce the output format or tool choice of the request. Try again, or ask the "+
			"operator whether structured outputs are enabled in the engine.")
}
