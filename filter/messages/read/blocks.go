package read

import (
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/messages/names"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/fields"
)

// documentPlaceholder replaces a document that is not text, on a line of its own.
const documentPlaceholder = "[A document was here. This model cannot read it.]"

// readPart reads a content block as text. placeholder reports that the text is a line
// of its own.
func (d *decoder) readPart(kind string, v jsontext.Field, images string) (
	text string, placeholder bool, err *apierror.Error,
) {
	switch kind {
	case "text":
		text, err = readText(v)
		return text, false, err
	case "image":
		if err := readSource(v); err != nil {
			return "", true, err
		}
		if images == turn.ImagesReject {
			return "", true, apierror.Invalid(v.Path, "This model cannot see images. Leave them out.")
		}
		return turn.ImagePlaceholder, true, nil
	case "document":
		text, err = readDocument(v)
		return text, true, err
	case "search_result":
		text, err = readSearchResult(v)
		return text, true, err
	case "browser_state":
		text, err = readBrowserState(v)
		return text, true, err
	// The model sees nothing of a file in a container: only its id is checked.
	case "container_upload":
		names.IgnoreKind(&d.ignored, "messages.content.", kind)
		return "", false, v.RequireText("file_id")
	case "":
		err = withoutType(v)
	}
	if err != nil {
		return "", false, err
	}

	// The text of a type that is not known here.
	for _, member := range []string{"text", "content"} {
		if text := v.Get(member); text.Type == gjson.String {
			return text.Str, true, nil
		}
	}
	names.IgnoreKind(&d.ignored, "messages.content.", kind)
	return "", false, fields.CheckUnread(v)
}

func withoutType(v jsontext.Field) *apierror.Error {
	return apierror.Invalid(v.Path+".type", "A content block has no type. Send one.")
}

// readSource checks the source of a picture or a document. Of a type that is not known here
// nothing more is required.
func readSource(v jsontext.Field) *apierror.Error {
	switch v.Get("source.type").Str {
	case "base64":
		return v.RequireText("source.data")
	case "url":
		return v.RequireText("source.url")
	case "file":
		return v.RequireText("source.file_id")
	}
	return v.RequireText("source.type")
}

// readDocument returns what the model sees of a document: its title, what the client
// says about it, and its text. A text may be empty, as files are.
func readDocument(v jsontext.Field) (string, *apierror.Error) {
	var lines jsontext.Joined
	addLines(&lines, v.Get("title").Str, v.Get("context").Str)

	text, err := "", (*apierror.Error)(nil)
	switch v.Get("source.type").Str {
	case "text":
		text, err = jsontext.Field{Result: v.Get("source.data"), Path: v.Path + ".source.data"}.Text()
	case "content":
		text, err = textsOf(jsontext.Field{Result: v.Get("source.content"), Path: v.Path + ".source.content"})
	default:
		err = readSource(v)
	}

	// The model learns that something was there: a file or an address has no text here.
	if text == "" {
		text = documentPlaceholder
	}
	addLines(&lines, text)
	return lines.String(), err
}

// readSearchResult returns what the model sees of a search result: its title, its
// source and its texts.
func readSearchResult(v jsontext.Field) (string, *apierror.Error) {
	// The API requires both, which may be empty.
	for _, member := range []string{"title", "source"} {
		if v.Get(member).Type != gjson.String {
			return "", apierror.Invalid(v.Path+"."+member, "The field %q must be a string.", v.Path+"."+member)
		}
	}
	text, err := textsOf(jsontext.Field{Result: v.Get("content"), Path: v.Path + ".content"})
	var lines jsontext.Joined
	addLines(&lines, v.Get("title").Str, v.Get("source").Str, text)
	return lines.String(), err
}

// changeMembers are the members of a change of the browser that the model sees, in order.
var changeMembers = []string{"tab_id", "download_id", "url", "path", "size_bytes", "error"}

// readBrowserState returns what the model sees of the client's browser after a call: its tabs,
// and what else the call has changed, each on a line.
func readBrowserState(v jsontext.Field) (string, *apierror.Error) {
	var lines jsontext.Joined
	addLines(&lines, "Open tabs:")
	tabs := jsontext.Field{Result: v.Get("tabs"), Path: v.Path + ".tabs"}
	err := tabs.Elements(func(_ int, v jsontext.Field) *apierror.Error {
		active := ""
		if v.Get("active").Bool() {
			active = " (active)"
		}
		addLines(&lines, "- "+v.Get("tab_id").String()+active+": "+v.Get("title").String()+" "+v.Get("url").String())
		return v.RequireText("tab_id")
	})
	if err != nil {
		return "", err
	}

	v.Get("state_changes").ForEach(func(_, change gjson.Result) bool {
		line := []string{change.Get("type").String() + ":"}
		for _, member := range changeMembers {
			if value := change.Get(member).String(); value != "" {
				line = append(line, value)
			}
		}
		addLines(&lines, strings.Join(line, " "))
		return true
	})
	return lines.String(), nil
}

// addLines adds texts that are not empty, each on a line of its own.
func addLines(lines *jsontext.Joined, texts ...string) {
	for _, text := range texts {
		if text != "" {
			lines.NewLine()
			lines.Add(text)
		}
	}
}

// textsOf returns a string, or the texts of an array of blocks, line by line.
// Pictures are placeholders.
func textsOf(v jsontext.Field) (string, *apierror.Error) {
	if v.Type == gjson.String {
		return v.Str, nil
	}
	if !v.IsArray() {
		return "", apierror.Invalid(v.Path, "The field %q must be a string or an array of content blocks.", v.Path)
	}

	var lines jsontext.Joined
	err := v.Elements(func(_ int, block jsontext.Field) *apierror.Error {
		// A text counts in a block of any type, also of one that the API gets later.
		switch text := block.Get("text"); {
		case text.Type == gjson.String:
			addLines(&lines, text.Str)
		case block.Get("type").Str == "text":
			return apierror.Invalid(block.Path+".text", "The field %q must be a string.", block.Path+".text")
		case block.Get("type").Str == "image":
			addLines(&lines, turn.ImagePlaceholder)
			return readSource(block)
		case block.Get("type").Str == "":
			return withoutType(block)
		default:
			return fields.CheckUnread(block)
		}
		return nil
	})
	return lines.String(), err
}
