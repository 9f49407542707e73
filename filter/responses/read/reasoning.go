package read

import (
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/fields"
)

// reasoningEcho is what a response object repeats of reasoning. Of the members context
// and mode it says what holds, whatever was asked for.
type reasoningEcho struct {
	effort, summary string // summary may be ""
	context, mode   bool   // the request has the member
}

func (e reasoningEcho) append(dst []byte) []byte {
	dst = jsontext.AppendString(append(dst, `{"effort":`...), e.effort)
	dst = append(dst, `,"summary":`...)
	if e.summary == "" {
		dst = append(dst, `null`...)
	} else {
		dst = jsontext.AppendString(dst, e.summary)
	}

	// Some clients refuse members that they do not know: only who sends one gets it back.
	if e.context {
		dst = append(dst, `,"context":"current_turn"`...)
	}

	if e.mode {
		dst = append(dst, `,"mode":"standard"`...)
	}

	return append(dst, '}')
}

// readReasoningContext reads which turns' reasoning the model sees. Harmony has that
// of the current turn.
func (f *fieldReader) readReasoningContext(v jsontext.Field) *apierror.Error {
	if v.Str != "auto" && v.Str != "current_turn" {
		f.ignored.Add(v.Path)
	}
	f.echo.reasoning.context = true
	return nil
}

// readReasoningMode reads how the model reasons. There is one way.
func (f *fieldReader) readReasoningMode(v jsontext.Field) *apierror.Error {
	if v.Type != gjson.String || v.Str != "standard" {
		return apierror.Invalid(v.Path, "The model has one way to reason. Leave %s out, and use a higher effort.",
			v.Path)
	}
	f.echo.reasoning.mode = true
	return nil
}

// readModeration refuses what would have to be blocked. Scores are not made.
func (f *fieldReader) readModeration(v jsontext.Field) *apierror.Error {
	return fields.CheckModeration(v, &f.ignored)
}
