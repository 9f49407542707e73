package fields

import (
	"errors"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
	"github.com/envoy-harmony/envoy-harmony/filter/work"
)

// Custom tools take text. The model sees each as a function with one string, because its
// format has only functions; Unwrapper finds the text in what it writes.

// CustomParameters is the schema of a custom tool as the model sees it.
const CustomParameters = `{"type":"object","properties":{"input":{"type":"string"}},"required":["input"]}`

// CustomArguments returns the arguments of a custom tool's call as the model wrote them.
func CustomArguments(text string) string {
	return string(jsontext.Writer(nil).Open().Text("input", text).Close())
}

// CustomFormat is the form of a custom tool's text.
type CustomFormat struct {
	// Shown follows the tool's description: a grammar is shown to the model.
	Shown string
	// Grammar is that of the arguments, which the engine enforces; "": none is.
	Grammar constraint.Grammar
	// Cost is the grammar's, of [constraint.MaxInputCost].
	Cost int
}

// ReadCustomFormat reads the definition and the syntax of a custom tool's grammar. It is
// enforced if the engine's grammar can be made of it, and enforces reports that the engine
// takes one more of such a cost; otherwise nothing is enforced, which is no error.
func ReadCustomFormat(
	v jsontext.Field, tool string, account *work.Account, enforces func(cost int) bool,
) (format CustomFormat, _ *apierror.Error) {
	for _, member := range []string{"definition", "syntax"} {
		if err := v.RequireText(member); err != nil {
			return format, err
		}
	}

	definition, syntax := v.Get("definition").Str, v.Get("syntax").Str
	format.Shown = "\n\nThe input follows this " + syntax + " grammar:\n" + definition

	err := constraint.ErrUnenforceable
	switch {
	// Nothing is done with the grammar then, and it is not read.
	case !enforces(0):
	case syntax == "lark":
		format.Grammar, format.Cost, err = constraint.InputLark(account, definition)
	case syntax == "regex":
		format.Grammar, format.Cost, err = constraint.InputRegex(account, definition)
	}

	if err != nil && !errors.Is(err, constraint.ErrUnenforceable) {
		what := "grammar"
		if syntax == "regex" {
			what = "regular expression"
		}
		// What took too much work was not found to be wrong.
		if refusal := request.WorkError(v.Path+".definition", account.Err()); refusal != nil {
			return format, refusal
		}
		return format, apierror.Invalid(v.Path+".definition",
			"The %s of the custom tool %q %s. Correct it.", what, tool, err)
	}

	if err != nil || !enforces(format.Cost) {
		format.Grammar, format.Cost = "", 0
	}
	return format, nil
}
