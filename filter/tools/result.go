package tools

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// objectOf gives the arguments of a call. Nothing counts as an empty object.
func objectOf(text string) (json.RawMessage, bool) {
	raw := bytes.TrimSpace([]byte(text))
	if len(raw) == 0 {
		return json.RawMessage("{}"), true
	}
	return raw, isObject(raw)
}

func isObject(raw []byte) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) > 0 && raw[0] == '{' && json.Valid(raw)
}

// toolsOf reads a page of a listing. It is read from the answer as it came, for
// the order of a schema's members is what a model sees.
func toolsOf(page *mcp.ListToolsResult, answer *jsonrpc.Response) ([]Tool, error) {
	var raw json.RawMessage
	if answer != nil {
		raw = answer.Result
	} else { // the SDK has remembered it
		var err error
		if raw, err = json.Marshal(page); err != nil {
			return nil, err
		}
	}
	var list struct {
		Tools []struct {
			Name        string          `json:"name"`
			Title       string          `json:"title"`
			Description string          `json:"description"`
			InputSchema json.RawMessage `json:"inputSchema"`
			Annotations json.RawMessage `json:"annotations"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, err
	}
	tools := make([]Tool, 0, len(list.Tools))
	for _, t := range list.Tools {
		if t.Name == "" {
			return nil, errors.New("a tool has no name")
		}
		tool := Tool{Name: t.Name, Title: t.Title, Description: t.Description}
		if isObject(t.InputSchema) {
			tool.InputSchema = t.InputSchema
		}
		if isObject(t.Annotations) {
			tool.Annotations = t.Annotations
		}
		tools = append(tools, tool)
	}
	return tools, nil
}

// result reads what a tool gave.
func (t *task) result(got *mcp.CallToolResult, answer *jsonrpc.Response) Result {
	if got.NeedsInput() {
		return Result{Error: fmt.Sprintf("The tool %q asks for input of a user, which it cannot get here.", t.tool)}
	}
	secrets := t.secretsIn(got)
	r := Result{Structured: hideJSON(structured(answer), secrets)}
	kept := contents{}
	texts := make([]string, 0, len(got.Content))
	for _, content := range got.Content {
		part, text := partOf(content)
		kept.add(part.hide(secrets))
		texts = append(texts, hide(text, secrets))
	}
	text := strings.Join(texts, "\n")
	if len(got.Content) == 0 {
		text = string(r.Structured)
	}
	kept.bound(&r)
	switch {
	case !got.IsError:
		r.Text = cut(text, t.client.o.MaxResultBytes)
	case text == "":
		r.Error = "The tool has failed and does not say why."
	default:
		r.Error = cut(text, t.client.o.MaxResultBytes)
	}
	return r
}

// secretsIn are the secrets that a result may have in it and must not. What a
// request's own server gives is the request's own.
func (t *task) secretsIn(got *mcp.CallToolResult) []string {
	switch {
	case got.IsError:
		return t.server.secrets(leastSecret, t.server.place()...)
	case t.server.Trusted:
		return t.server.secrets(leastGiven)
	}
	return nil
}

// contents is the parts of a result, as far as they fit.
type contents struct {
	parts   []Part
	size    int
	dropped int // parts that did not fit
}

func (c *contents) add(p Part) {
	size := partBytes + len(p.Text) + len(p.MIME) + len(p.URI) + len(p.Name) + len(p.Data)
	if c.size+size > maxContentBytes {
		c.dropped++
		return
	}
	c.size += size
	c.parts = append(c.parts, p)
}

// bound gives r its parts, and takes from it what is too much beside them.
func (c *contents) bound(r *Result) {
	if c.size+len(r.Structured) > maxContentBytes {
		r.Structured = nil
	}
	r.Content = c.parts
	if c.dropped > 0 {
		r.Content = append(r.Content, Part{Type: "text", Text: fmt.Sprintf("[%d parts of the result are left out: more than %d bytes are not kept.]", c.dropped, maxContentBytes)})
	}
}

// hide is the part without secrets. Pictures and other data stay as they are.
func (p Part) hide(secrets []string) Part {
	for _, text := range []*string{&p.Text, &p.MIME, &p.URI, &p.Name} {
		*text = hide(*text, secrets)
	}
	return p
}

func structured(answer *jsonrpc.Response) json.RawMessage {
	var result struct {
		Structured json.RawMessage `json:"structuredContent"`
	}
	if answer == nil || json.Unmarshal(answer.Result, &result) != nil || string(result.Structured) == "null" {
		return nil
	}
	return result.Structured
}

// partOf reads a part, and gives what the model sees of it.
func partOf(content mcp.Content) (p Part, seen string) {
	switch c := content.(type) {
	case *mcp.TextContent:
		p = Part{Type: "text", Text: strings.ToValidUTF8(c.Text, "\uFFFD")}
		return p, p.Text
	case *mcp.ImageContent:
		return Part{Type: "image", MIME: c.MIMEType, Data: c.Data}, note("image", "", c.MIMEType, len(c.Data))
	case *mcp.AudioContent:
		return Part{Type: "audio", MIME: c.MIMEType, Data: c.Data}, note("audio", "", c.MIMEType, len(c.Data))
	case *mcp.ResourceLink:
		p = Part{Type: "resource_link", MIME: c.MIMEType, URI: c.URI, Name: c.Name}
		text := strings.TrimSpace(c.Name + " " + c.URI)
		if c.Description != "" {
			text += ": " + c.Description
		}
		return p, strings.ToValidUTF8("[resource "+text+"]", "\uFFFD")
	case *mcp.EmbeddedResource:
		if c.Resource == nil {
			return Part{Type: "resource"}, "[resource]"
		}
		p = Part{Type: "resource", Text: strings.ToValidUTF8(c.Resource.Text, "\uFFFD"), MIME: c.Resource.MIMEType, URI: c.Resource.URI, Data: c.Resource.Blob}
		if len(p.Data) > 0 {
			return p, note("resource", p.URI, p.MIME, len(p.Data))
		}
		return p, p.Text
	}
	return Part{}, "[content of an unknown type]"
}

// note stands for what is no text.
func note(kind, uri, mime string, size int) string {
	words := slices.DeleteFunc([]string{kind, uri, mime}, func(word string) bool { return word == "" })
	return strings.ToValidUTF8(fmt.Sprintf("[%s, %d bytes]", strings.Join(words, " "), size), "\uFFFD")
}

// cut bounds a text and says that it did.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	note := fmt.Sprintf("\n[The result is cut here: it has %d bytes, of which at most %d are shown.]", len(text), limit)
	end := max(limit-len(note), 0)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + note
}
