package messages

import (
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// documentPlaceholder replaces a document that is not text, on a line of its own.
const documentPlaceholder = "[A document was here. This model cannot read it.]"

// readPart reads a content block as text. placeholder reports that the text is a line
// of its own.
func (d *decoder) readPart(kind string, v jsontext.Field, images string) (text string, placeholder bool, err *apierror.Error) {
	switch kind {
	case "text":
		text, err = readText(v)
		return text, false, err
	case "image":
		if images == turn.ImagesReject {
			return "", true, apierror.Invalid(v.Path, "This model cannot see images. Leave them out.")
		}
		return turn.ImagePlaceholder, true, nil
	case "document":
		return readDocument(v), true, nil
	case "search_result":
		return readSearchResult(v), true, nil
	case "":
		return "", false, apierror.Invalid(v.Path+".type", "A content block has no type. Send one.")
	}
	for _, member := range []string{"text", "content"} {
		if text := v.Get(member); text.Type == gjson.String {
			return text.Str, true, nil
		}
	}
	d.ignoreKind("messages.content.", kind)
	return "", false, nil
}

// readDocument returns what the model sees of a document: its title, what the client
// says about it, and its text.
func readDocument(v jsontext.Field) string {
	var lines jsontext.Joined
	addLines(&lines, v.Get("title").Str, v.Get("context").Str)
	source := v.Get("source")
	text := ""
	switch source.Get("type").Str {
	case "text":
		text = source.Get("data").Str
	case "content":
		text = textsOf(source.Get("content"))
	}
	if text == "" {
		text = documentPlaceholder
	}
	addLines(&lines, text)
	return lines.String()
}

// readSearchResult returns what the model sees of a search result: its title, its
// source and its texts.
func readSearchResult(v jsontext.Field) string {
	var lines jsontext.Joined
	addLines(&lines, v.Get("title").Str, v.Get("source").Str, textsOf(v.Get("content")))
	return lines.String()
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
func textsOf(v gjson.Result) string {
	if v.Type == gjson.String {
		return v.Str
	}
	var lines jsontext.Joined
	v.ForEach(func(_, block gjson.Result) bool {
		switch text := block.Get("text"); {
		case text.Type == gjson.String:
			addLines(&lines, text.Str)
		case block.Get("type").Str == "image":
			addLines(&lines, turn.ImagePlaceholder)
		}
		return true
	})
	return lines.String()
}
