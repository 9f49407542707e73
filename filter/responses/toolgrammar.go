package responses

import (
	"errors"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// maxToolGrammars bounds the grammars of custom tools that an engine has to compile
// for one request.
const maxToolGrammars = 8

// readFormat reads the form of a custom tool's text. A grammar is shown to the
// model. It is enforced if the engine's grammar can be made of it; otherwise the
// field counts as ignored.
func (r *toolReader) readFormat(v jsontext.Field, t *tool) *apierror.Error {
	if !v.IsObject() {
		return apierror.Invalid(v.Path, "The field %q must be an object.", v.Path)
	}
	if v.Get("type").Str == "text" {
		return nil
	}
	definition, syntax := v.Get("definition").Str, v.Get("syntax").Str
	if definition != "" {
		t.grammar = "\n\nThe input follows this " + syntax + " grammar:\n" + definition
	}
	var cost int
	var err error
	switch {
	case !r.enforcesGrammar(t, 0): // then nothing is done with it, and it is not read
		err = constraint.ErrUnenforceable
	case v.Get("type").Str == "grammar" && syntax == "lark":
		t.input, cost, err = constraint.InputLark(r.rc.Work, definition)
	case v.Get("type").Str == "grammar" && syntax == "regex":
		t.input, cost, err = constraint.InputRegex(r.rc.Work, definition)
	default:
		err = constraint.ErrUnenforceable
	}
	if err != nil && !errors.Is(err, constraint.ErrUnenforceable) {
		what := "grammar"
		if syntax == "regex" {
			what = "regular expression"
		}
		if refusal := turn.WorkError(v.Path+".definition", r.rc.Work.Err()); refusal != nil {
			return refusal
		}
		return apierror.Invalid(v.Path+".definition", "The %s of the custom tool %q %s. Correct it.", what, t.Name, err)
	}
	if err != nil || !r.enforcesGrammar(t, cost) {
		t.input = ""
		r.ignored.Add(v.Path)
		return nil
	}
	r.grammars += cost
	return nil
}

// enforcesGrammar reports whether the engine gets the grammar of a tool: not if it
// takes none, if it has enough of them, or if the tool is offered later.
func (r *toolReader) enforcesGrammar(t *tool, cost int) bool {
	return !r.rc.Checked && r.echo != nil && !t.deferred && len(r.input.Grammars) < maxToolGrammars && r.grammars+cost <= constraint.MaxInputCost
}

func (r *toolReader) enforceGrammar(name turn.ToolName, grammar constraint.Grammar) {
	if r.input.Grammars == nil {
		r.input.Grammars = map[turn.ToolName]constraint.Grammar{}
	}
	r.input.Grammars[name] = grammar
}
