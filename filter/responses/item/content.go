package item

import (
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/fields"
)

// filePlaceholder replaces a file in a tool's output.
const filePlaceholder = "[A file was here. This model cannot read files.]"

// maxParts bounds the content parts of one item: a placeholder can have more bytes than
// the part that it stands for.
const maxParts = 40_000

// ReadContent reads a text or a list of parts. The texts of parts are joined by
// [jsontext.Joined.AddPart]; a placeholder is on a line of its own. images is one of
// turn's settings for images; files says that a placeholder can stand for a file
// too.
func ReadContent(v jsontext.Field, images string, files bool) (string, *apierror.Error) {
	if !v.IsArray() {
		if v.Type != gjson.String {
			return "", apierror.Invalid(v.Path, "The field %q must be a string or an array of parts.", v.Path)
		}
		return v.Str, nil
	}

	var text jsontext.Joined
	// The last part was one.
	placeholder := false
	err := v.Elements(func(i int, v jsontext.Field) *apierror.Error {
		if i >= maxParts {
			return apierror.Invalid(v.Path, "A message has more than %d content parts.", maxParts)
		}
		part, isPlaceholder, err := readPart(v, images, files)
		// A placeholder within a line would read as text of the user.
		if isPlaceholder || placeholder {
			text.NewLine()
		}
		placeholder = isPlaceholder
		text.AddPart(part)
		return err
	})

	return text.String(), err
}

func readPart(v jsontext.Field, images string, files bool) (text string, placeholder bool, err *apierror.Error) {
	member := "text"
	switch v.Get("type").Str {
	case "input_text", "output_text", "text", "reasoning_text", "summary_text":
	case "refusal":
		member = "refusal"
	case "input_image", "image_url", "computer_screenshot":
		if err := v.RequireText("image_url", "image_url.url", "file_id"); err != nil {
			return "", true, err
		}
		// Only now: a malformed part is an error whatever the setting.
		if images == turn.ImagesReject {
			return "", true, apierror.Invalid(v.Path, "This model cannot see images. Leave them out.")
		}
		return turn.ImagePlaceholder, true, nil
	case "input_file":
		if !files {
			return "", true, apierror.Invalid(v.Path, "This model cannot read files. Send their text as input_text.")
		}
		if err := v.RequireText("file_data", "file_id", "file_url"); err != nil {
			return "", true, err
		}
		return filePlaceholder, true, nil
	default:
		text, err := fields.ReadUnknownPart(v, "input_text, output_text, refusal or input_image")
		return text, false, err
	}

	part := v.Get(member)
	if part.Type != gjson.String {
		return "", false, apierror.Invalid(v.Path+"."+member, "The field %q must be a string.", v.Path+"."+member)
	}

	return part.Str, false, nil
}

// ErrorText is why an MCP call failed: a text, or one of OpenAI's error objects,
// which have a message or the content that the tool returned.
func ErrorText(v gjson.Result) string {
	switch {
	case v.Type == gjson.String:
		return v.Str
	case !v.IsObject():
		return shown(v)
	}

	var texts jsontext.Joined
	found := false
	for part := range jsontext.List(v.Get("content")) {
		if text := part.Get("text"); text.Exists() {
			texts.NewLine()
			texts.Add(text.Str)
			found = true
		}
	}

	switch message := v.Get("message").Str; {
	// What the tool has returned says more than a message about it.
	case found:
		return texts.String()
	case message != "":
		return message
	}

	return shown(v)
}

// shown is a value as the model sees it.
func shown(v gjson.Result) string { return string(jsontext.AppendShown(nil, v.Raw)) }
