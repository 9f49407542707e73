package read

import (
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
)

// itemMembers are the members of the types of items that clients write themselves. Items of
// other types repeat what a response had.
var itemMembers = map[string]jsontext.Members{
	"message": {
		"type": {}, "id": {}, "status": {}, "role": {}, "phase": {}, "content": {},
		"tools": {Refused: "Tools are those of the request. Send them as its field tools, or as an item of the " +
			"type additional_tools."},
		"name":   {Ignored: noPlace},
		"author": {Ignored: noPlace},
		"internal_chat_message_metadata_passthrough": {Ignored: ownNotes},
	},
	"reasoning": {
		"type":              {},
		"id":                {},
		"status":            {},
		"summary":           {},
		"content":           {},
		"encrypted_content": {},
	},
	"function_call":           callMembers("arguments"),
	"function_call_output":    outputMembers,
	"custom_tool_call":        callMembers("input"),
	"custom_tool_call_output": outputMembers,
}

// callMembers are the members of a call. text has what the model wrote.
func callMembers(text string) jsontext.Members {
	return jsontext.Members{
		"type": {}, "id": {}, "status": {}, "call_id": {}, "namespace": {}, "name": {}, text: {},
		"caller": {}, "created_by": {},
		"async":      {Ignored: "how the client runs the tool"},
		"background": {Ignored: "how the client runs the tool"},
	}
}

var outputMembers = jsontext.Members{
	"namespace": {Ignored: "the tool is that of the call"},
	"type":      {}, "id": {}, "status": {}, "call_id": {}, "name": {}, "output": {}, "caller": {}, "created_by": {},
	"async":      {Ignored: "how the client runs the tool"},
	"background": {Ignored: "how the client runs the tool"},
}

const (
	noPlace   = "Harmony's messages have no place for it: no server shows it to gpt-oss"
	ownNotes  = "what a service or a client notes about it"
	shortText = "a short text stands for it, whatever it shows"
	ownCache  = "engines cache prefixes by themselves"
)

// partMembers are the members of the types of content parts. A picture or a file is
// replaced by a placeholder, so that how it should be seen has no effect.
var partMembers = map[string]jsontext.Members{
	"input_text":     textMembers,
	"text":           textMembers,
	"reasoning_text": textMembers,
	"summary_text":   textMembers,
	"output_text":    {"type": {}, "text": {}, "annotations": {}, "logprobs": {}},
	"refusal":        {"type": {}, "refusal": {}},
	"input_image": {
		"type": {}, "image_url": {}, "file_id": {},
		"detail":                  {Ignored: shortText},
		"prompt_cache_breakpoint": {Ignored: ownCache},
	},
	"input_file": {
		"type": {}, "file_data": {}, "file_id": {}, "file_url": {}, "filename": {},
		"detail":                  {Ignored: shortText},
		"prompt_cache_breakpoint": {Ignored: ownCache},
	},
}

var textMembers = jsontext.Members{"type": {}, "text": {}, "prompt_cache_breakpoint": {Ignored: ownCache}}

// maxSearched is how many bytes of a request are searched for such members: the search
// copies texts with escapes.
const maxSearched = 1 << 20

// ignoreMembers lists the members of an item of the request's own input that have no
// effect, and those of its parts.
func (r *itemReader) ignoreMembers(it *item.Item) *apierror.Error {
	known := itemMembers[it.Kind]
	// Stored items were listed when they were sent: the header is about this request.
	if known == nil || r.ignored == nil || !r.ownInput {
		return nil
	}

	err := ignoreOthers(r, it.At, known)
	for _, content := range []jsontext.Field{it.Content, it.Summary, it.Output} {
		if !content.IsArray() {
			continue
		}
		content.ForEach(func(_, part gjson.Result) bool {
			if known := partMembers[part.Get("type").Str]; known != nil && err == nil {
				err = ignoreOthers(r, jsontext.Field{Result: part, Path: content.Path}, known)
			}
			return err == nil
		})
	}

	return err
}

// ignoreOthers lists the members of a value that are not known, if it is not too large.
func ignoreOthers(r *itemReader, v jsontext.Field, known jsontext.Members) *apierror.Error {
	if r.searched+len(v.Raw) > maxSearched {
		return nil
	}
	r.searched += len(v.Raw)
	return known.Others(v, r.ignored)
}
