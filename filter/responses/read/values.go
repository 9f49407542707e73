package read

import (
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/stored"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/fields"
)

// readInput notes the input. It is read after the stored items.
func (f *fieldReader) readInput(v jsontext.Field) *apierror.Error {
	if v.Type != gjson.String && !v.IsArray() {
		return apierror.Invalid(v.Path, "The field \"input\" must be a text or a list of items.")
	}
	f.items = v
	return nil
}

// readConversation reads the name of a conversation: its id, or an object with
// the id.
func (f *fieldReader) readConversation(v jsontext.Field) *apierror.Error {
	if v.IsObject() {
		v = jsontext.Field{Result: v.Get("id"), Path: v.Path + ".id"}
	}
	var err *apierror.Error
	f.conversation, err = v.ShortText()
	if err == nil && f.conversation == "" {
		return apierror.Invalid(v.Path,
			"The id of the conversation is empty. Leave conversation out, or make one with POST %s.",
			stored.ConversationsPath)
	}
	return err
}

func setText(dst **string, v jsontext.Field) *apierror.Error {
	s, err := v.ShortText()
	*dst = &s
	return err
}

func (f *fieldReader) readInstructions(v jsontext.Field) *apierror.Error {
	text, err := v.Text()
	f.instructions = text
	f.echo.instructions = &f.instructions
	return err
}

func (f *fieldReader) readPrevious(v jsontext.Field) (err *apierror.Error) {
	f.previous, err = v.ShortText()
	if err == nil && f.previous == "" {
		return apierror.Invalid(v.Path, "The field \"previous_response_id\" is empty. Leave it out.")
	}
	return err
}

// included are the values of include that have no effect, because no response has
// what they name.
var included = map[string]bool{
	"file_search_call.results":              true,
	"web_search_call.results":               true,
	"web_search_call.action.sources":        true,
	"computer_call_output.output.image_url": true,
	"message.input_image.image_url":         true,
}

func (f *fieldReader) readInclude(v jsontext.Field) *apierror.Error {
	return v.Elements(func(_ int, v jsontext.Field) *apierror.Error {
		value, err := v.Text()
		if err != nil {
			return err
		}

		switch {
		case value == includeLogprobs:
			f.input.Engine.Logprobs = true
		case value == "code_interpreter_call.outputs":
			f.options.Outputs = true
		case value == "usage.per_turn":
			f.options.UsagePerTurn = true
		case value == "reasoning.encrypted_content" && f.reader.Sealer != nil:
			f.sealer = f.reader.Sealer
		// Codex asks for it by itself: without a sealer it has no effect, and is no error.
		case value == "reasoning.encrypted_content", included[value]:
			f.ignored.Add("include." + value)
		default:
			return apierror.Invalid(v.Path, "The value is not one of those that \"include\" can have. Leave it out.")
		}

		return nil
	})
}

func (f *fieldReader) readTruncation(v jsontext.Field) *apierror.Error {
	if v.Str != "auto" && v.Str != "disabled" {
		return apierror.Invalid(v.Path, "The field \"truncation\" must be \"auto\" or \"disabled\".")
	}
	f.input.Truncate = v.Str == "auto"
	f.echo.truncation = strings.Clone(v.Str)
	return nil
}

func (f *fieldReader) readReasoning(v jsontext.Field) *apierror.Error {
	return reasoningFields.Decode(f, v, &f.ignored)
}

// readSummary reads whether the chain of thought is a summary, which is the whole of it.
func (f *fieldReader) readSummary(v jsontext.Field) *apierror.Error {
	switch v.Str {
	case "auto", "concise", "detailed":
		f.echo.reasoning.summary = strings.Clone(v.Str)
		f.options.Summary = true
		return nil
	}
	return apierror.Invalid(v.Path, "The field %q must be one of auto, concise and detailed.", v.Path)
}

func (f *fieldReader) readEffort(v jsontext.Field) *apierror.Error {
	f.echo.reasoning.effort = strings.Clone(v.Str)
	return fields.SetEffort(&f.input, v)
}

func (f *fieldReader) readText(v jsontext.Field) *apierror.Error {
	return textFields.Decode(f, v, &f.ignored)
}

func (f *fieldReader) readVerbosity(v jsontext.Field) *apierror.Error {
	f.echo.verbosity = strings.Clone(v.Str)
	return fields.SetVerbosity(&f.input, v)
}

// The bounds of metadata, as OpenAI has them.
const (
	maxMetadata      = 16
	maxMetadataKey   = 64
	maxMetadataValue = 512
)

func (f *fieldReader) readMetadata(v jsontext.Field) *apierror.Error {
	n := 0
	err := v.Entries(func(key string, v jsontext.Field) *apierror.Error {
		value, err := v.Text()
		n++
		switch {
		case err != nil:
			return apierror.Invalid(v.Path, "The values of \"metadata\" must be strings.")
		case n > maxMetadata:
			return apierror.Invalid("metadata", "The field \"metadata\" has more than %d entries.", maxMetadata)
		case utf8.RuneCountInString(key) > maxMetadataKey:
			return apierror.Invalid("metadata", "A key of \"metadata\" is longer than %d characters.", maxMetadataKey)
		case utf8.RuneCountInString(value) > maxMetadataValue:
			return apierror.Invalid(v.Path, "A value of \"metadata\" is longer than %d characters.", maxMetadataValue)
		}

		return nil
	})
	if err == nil {
		f.echo.metadata = jsontext.AppendCompact(nil, v.Raw)
	}

	return err
}
