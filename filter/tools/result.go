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

// toolsOf reads a page of a listing, without the secrets that it must not tell. It
// is read from the answer as it came, for the order of a schema's members is what a
// model sees.
func toolsOf(page *mcp.ListToolsResult, answer *jsonrpc.Response, secrets []string) ([]Tool, error) {
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
		tool := Tool{Name: t.Name, Title: hide(t.Title, secrets), Description: hide(t.Description, secrets)}
		if isObject(t.InputSchema) {
			tool.InputSchema = hideJSON(t.InputSchema, secrets)
		}
		if isObject(t.Annotations) {
			tool.Annotations = hideJSON(t.Annotations, secrets)
		}
		tools = append(tools, tool)
	}
	return tools, nil
}

// result reads what a tool gave, as it came: a part that is not MCP's takes nothing
// from the others.
func (t *task) result(answer *jsonrpc.Response) (Result, error) {
	var got struct {
		Content    []json.RawMessage `json:"content"`
		Structured json.RawMessage   `json:"structuredContent"`
		IsError    bool              `json:"isError"`
		Type       string            `json:"resultType"`
	}
	if answer == nil || !isObject(answer.Result) {
		return Result{}, errors.New("the result is no object")
	}
	if err := json.Unmarshal(answer.Result, &got); err != nil {
		return Result{}, err
	}
	if got.Type == "input_required" {
		return Result{Answered: true, Error: fmt.Sprintf("The tool %q asks for input of a user, which it cannot get here.", t.tool)}, nil
	}
	secrets := t.server.secrets(leastGiven)
	if got.IsError {
		secrets = t.server.secrets(leastSecret, t.server.place()...)
	}
	r := Result{Answered: true}
	if string(got.Structured) != "null" {
		r.Structured = hideJSON(got.Structured, secrets)
	}
	kept := contents{}
	texts := make([]string, 0, len(got.Content))
	for _, raw := range got.Content {
		part, text := partOf(raw)
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
	return r, nil
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

// partOf reads a part, and gives what the model sees of it. Its members are those
// of MCP's content types.
func partOf(raw json.RawMessage) (p Part, seen string) {
	var c struct {
		Type        string `json:"type"`
		Text        string `json:"text"`
		Data        []byte `json:"data"`
		MIME        string `json:"mimeType"`
		URI         string `json:"uri"`
		Name        string `json:"name"`
		Description string `json:"description"`
		Resource    struct {
			URI  string `json:"uri"`
			MIME string `json:"mimeType"`
			Text string `json:"text"`
			Blob []byte `json:"blob"`
		} `json:"resource"`
	}
	const unknown = "[content of an unknown type]"
	if json.Unmarshal(raw, &c) != nil {
		return Part{}, unknown
	}
	switch c.Type {
	case "text":
		return Part{Type: c.Type, Text: c.Text}, c.Text
	case "image", "audio":
		return Part{Type: c.Type, MIME: c.MIME, Data: c.Data}, note(c.Type, "", c.MIME, len(c.Data))
	case "resource_link":
		text := strings.TrimSpace(c.Name + " " + c.URI)
		if c.Description != "" {
			text += ": " + c.Description
		}
		return Part{Type: c.Type, MIME: c.MIME, URI: c.URI, Name: c.Name}, "[resource " + text + "]"
	case "resource":
		p = Part{Type: c.Type, Text: c.Resource.Text, MIME: c.Resource.MIME, URI: c.Resource.URI, Data: c.Resource.Blob}
		if len(p.Data) > 0 {
			return p, note("resource", p.URI, p.MIME, len(p.Data))
		}
		return p, p.Text
	}
	return Part{}, unknown
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
