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

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

// parseArguments returns the arguments of a tool call, and false if they are not a
// JSON object. Blank text is an empty object.
func parseArguments(text string) (json.RawMessage, bool) {
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

// parseTools parses one page of a tool list. It reads the raw answer, because a model
// sees a schema's members in the server's order.
func parseTools(page *mcp.ListToolsResult, answer *jsonrpc.Response) ([]Tool, error) {
	var raw json.RawMessage
	if answer != nil {
		raw = answer.Result
		// The SDK answered from its cache.
	} else {
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

// bytes returns how much of a tool counts for the bound on a list.
func (t *Tool) bytes() int {
	return len(t.Name) + len(t.Title) + len(t.Description) + len(t.InputSchema) + len(t.Annotations)
}

// hide redacts secrets in the texts of the tool.
func (t *Tool) hide(secrets *mask) {
	t.Title, t.Description = secrets.hide(t.Title), secrets.hide(t.Description)
	t.InputSchema, t.Annotations = secrets.hideJSON(t.InputSchema), secrets.hideJSON(t.Annotations)
}

// answered is the result of a tool call as MCP writes it.
type answered struct {
	Content    []json.RawMessage `json:"content"`
	Structured json.RawMessage   `json:"structuredContent"`
	IsError    bool              `json:"isError"`
	Type       string            `json:"resultType"`
}

// result parses the raw result of a tool call. A content part of an unknown form
// does not affect the others.
func (t *task) result(answer *jsonrpc.Response) (Result, error) {
	var call answered
	if answer == nil || !isObject(answer.Result) {
		return Result{}, errors.New("the result is not an object")
	}
	if err := json.Unmarshal(answer.Result, &call); err != nil {
		return Result{}, err
	}
	if call.Type == "input_required" {
		text := fmt.Sprintf("The tool %q asks for user input, which is not supported.", t.tool)
		return Result{Answered: true, Error: text}, nil
	}

	// An error quotes the request that failed, so that shorter values and the path of the URL are
	// hidden in it too. In a result they are part of ordinary text and links.
	secrets := t.server.mask(minSecretBytesInResults, t.server.queryValues()...)
	if call.IsError {
		secrets = t.server.mask(minSecretBytes, t.server.pathAndQuery()...)
	}

	shown := Result{Answered: true}
	if string(call.Structured) != "null" {
		shown.Structured = secrets.hideJSON(call.Structured)
	}
	content := contentList{}
	texts := make([]string, 0, len(call.Content))
	for _, raw := range call.Content {
		part, text := parsePart(raw)
		content.add(part, secrets)
		texts = append(texts, text)
	}

	// The structured result may be left out of r from here on, for lack of room: the text of a
	// result that has nothing else is made before.
	text := t.shownText(texts, shown.Structured, secrets)
	content.setOn(&shown)
	switch {
	case !call.IsError:
		shown.Text = text
	case text == "":
		shown.Error = "The tool failed without an error message."
	default:
		shown.Error = text
	}
	return shown, nil
}

// shownText returns what the model sees of a result: its texts, or the structured result where
// there are none, within the limit.
func (t *task) shownText(texts []string, structured json.RawMessage, secrets *mask) string {
	limit := t.client.o.MaxResultBytes

	// The texts can be much longer than what is shown: secrets are hidden in what is.
	whole := strings.Join(texts, "\n")
	text, longer := secrets.hideBeginning(whole, limit)
	if len(texts) == 0 {
		whole = string(jsontext.AppendShown(nil, string(structured)))
		text = whole
	}

	if longer || len(text) > limit {
		text = truncate(text, limit, len(whole))
	}
	return text
}

// contentList collects the parts of a result within maxContentBytes.
type contentList struct {
	parts []Part
	size  int
	// Number of parts that did not fit.
	dropped int
}

// add adds a part, whose secrets are redacted if it fits.
func (c *contentList) add(p Part, secrets *mask) {
	// Hiding takes time: parts that do not fit are not looked at.
	if c.size+p.size() <= maxContentBytes {
		p = p.hide(secrets)
	}
	// What is hidden may have become longer.
	if size := p.size(); c.size+size <= maxContentBytes {
		c.size += size
		c.parts = append(c.parts, p)
		return
	}
	c.dropped++
}

func (p *Part) size() int {
	return partBytes + len(p.Text) + len(p.MIME) + len(p.URI) + len(p.Name) + len(p.Data)
}

// setOn stores the parts in r, and removes the structured result if it does not fit
// as well.
func (c *contentList) setOn(r *Result) {
	if c.size+len(r.Structured) > maxContentBytes {
		r.Structured = nil
	}

	r.Content = c.parts
	if c.dropped > 0 {
		r.Content = append(r.Content, Part{Type: "text", Text: fmt.Sprintf(
			"[%d parts of the result are omitted: at most %d bytes are kept.]", c.dropped, maxContentBytes)})
	}
}

// hide returns the part with secrets redacted in its texts. Binary data is
// unchanged.
func (p Part) hide(secrets *mask) Part {
	for _, text := range []*string{&p.Text, &p.MIME, &p.URI, &p.Name} {
		*text = secrets.hide(*text)
	}
	return p
}

// parsePart parses a content part of MCP and returns it with the text that the model
// sees of it.
func parsePart(raw json.RawMessage) (part Part, modelText string) {
	var content struct {
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
	if json.Unmarshal(raw, &content) != nil {
		return Part{}, unknown
	}

	switch content.Type {
	case "text":
		return Part{Type: content.Type, Text: content.Text}, content.Text
	case "image", "audio":
		part = Part{Type: content.Type, MIME: content.MIME, Data: content.Data}
		return part, placeholder(part.Type, "", part.MIME, len(part.Data))
	case "resource_link":
		text := strings.TrimSpace(content.Name + " " + content.URI)
		if content.Description != "" {
			text += ": " + content.Description
		}
		part = Part{Type: content.Type, MIME: content.MIME, URI: content.URI, Name: content.Name}
		return part, "[resource " + text + "]"
	case "resource":
		resource := &content.Resource
		part = Part{
			Type: content.Type, Text: resource.Text, MIME: resource.MIME, URI: resource.URI, Data: resource.Blob,
		}
		if len(part.Data) > 0 {
			return part, placeholder("resource", part.URI, part.MIME, len(part.Data))
		}
		return part, part.Text
	}
	return Part{}, unknown
}

// placeholder returns the text that stands for binary content.
func placeholder(kind, uri, mime string, size int) string {
	words := slices.DeleteFunc([]string{kind, uri, mime}, func(word string) bool { return word == "" })
	return strings.ToValidUTF8(fmt.Sprintf("[%s, %d bytes]", strings.Join(words, " "), size), "\uFFFD")
}

// truncate limits a text to a number of bytes and appends a note about it. size is
// what the whole text has.
func truncate(text string, limit, size int) string {
	note := fmt.Sprintf("\n[The result is truncated: it has %d bytes, of which at most %d are shown.]", size, limit)

	end := min(len(text), max(limit-len(note), 0))
	for end > 0 && end < len(text) && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + note
}
