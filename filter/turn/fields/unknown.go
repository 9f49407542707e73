package fields

import (
	"slices"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

// Items, blocks and content parts come in types that no table here names: of newer versions of the
// APIs, of other services, of clients themselves. One with a text is read as that text. One with
// other content is refused: without it the model would answer another conversation. What has
// neither only steers a client, and is ignored.

// carriers are the members in which such an object has content.
var carriers = []string{
	"arguments", "audio", "content", "data", "encrypted_content", "file", "file_data", "file_id", "file_url", "image",
	"image_url", "input", "input_audio", "output", "result", "results", "source", "summary", "text", "thinking",
	"video", "video_url",
}

// CheckUnread returns the error for an item or a block of a type that is not known, in which no
// text was found, if it has content of another form; else nil: it may be ignored.
func CheckUnread(v jsontext.Field) *apierror.Error {
	found := ""
	v.ForEach(func(name, value gjson.Result) bool {
		if slices.Contains(carriers, name.Str) && says(value) {
			found = name.Str
		}
		return found == ""
	})
	if found == "" {
		return nil
	}
	return apierror.Invalid(v.Path+".type",
		"The type %q is not known here, and its content (%s) cannot be read. Send it as text, or leave it out.",
		jsontext.Clip(v.Get("type").Str), found)
}

// says reports whether a value says anything.
func says(v gjson.Result) bool {
	return v.Type == gjson.String && v.Str != "" || (v.IsObject() || v.IsArray()) && !jsontext.Empty(v)
}

// ReadUnknownPart reads a content part of a type that is not known. A part is content in any case.
// known says which types are. Without a type nothing says that its text is meant for the model.
func ReadUnknownPart(v jsontext.Field, known string) (string, *apierror.Error) {
	kind := v.Get("type").Str
	if text := v.Get("text"); text.Type == gjson.String && kind != "" {
		return text.Str, nil
	}
	return "", apierror.Invalid(v.Path+".type",
		"Content parts of the type %q cannot be read here. Send %s, or a part with a text.",
		jsontext.Clip(kind), known)
}
