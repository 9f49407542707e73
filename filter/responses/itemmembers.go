package responses

import (
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
)

// itemMembers are the members of the types of items that clients write themselves. All
// others of these items have no effect. Items of other types repeat what a response
// had.
var itemMembers = map[string][]string{
	"message":                 {"type", "id", "status", "role", "phase", "content"},
	"reasoning":               {"type", "id", "status", "summary", "content", "encrypted_content"},
	"function_call":           {"type", "id", "status", "call_id", "namespace", "name", "arguments", "caller", "created_by"},
	"function_call_output":    {"type", "id", "status", "call_id", "name", "output", "caller", "created_by"},
	"custom_tool_call":        {"type", "id", "status", "call_id", "namespace", "name", "input", "caller", "created_by"},
	"custom_tool_call_output": {"type", "id", "status", "call_id", "name", "output", "caller", "created_by"},
}

// partMembers are the members of the types of content parts. A picture or a file is
// replaced by a placeholder, so that how it should be seen has no effect.
var partMembers = map[string][]string{
	"input_text":     {"type", "text"},
	"text":           {"type", "text"},
	"reasoning_text": {"type", "text"},
	"summary_text":   {"type", "text"},
	"output_text":    {"type", "text", "annotations", "logprobs"},
	"refusal":        {"type", "refusal"},
	"input_image":    {"type", "image_url", "file_id"},
	"input_file":     {"type", "file_data", "file_id", "file_url", "filename"},
}

// maxSearched is how many bytes of a request are searched for such members: the search
// copies texts with escapes.
const maxSearched = 1 << 20

// ignoreMembers lists the members of an item of the request's own input that have no
// effect, and those of its parts.
func (r *itemReader) ignoreMembers(it *item.Item) {
	known := itemMembers[it.Kind]
	if known == nil || r.ignored == nil || !r.ownInput {
		return
	}
	ignoreOthers(r, it.At, known)
	for _, content := range []jsontext.Field{it.Content, it.Summary, it.Output} {
		if !content.IsArray() {
			continue
		}
		content.ForEach(func(_, part gjson.Result) bool {
			if known := partMembers[part.Get("type").Str]; known != nil {
				ignoreOthers(r, jsontext.Field{Result: part, Path: content.Path}, known)
			}
			return true
		})
	}
}

// ignoreOthers lists the members of a value that are not known, if it is not too large.
func ignoreOthers(r *itemReader, v jsontext.Field, known []string) {
	if r.searched+len(v.Raw) <= maxSearched {
		r.searched += len(v.Raw)
		r.ignored.AddOthers(v, known...)
	}
}
