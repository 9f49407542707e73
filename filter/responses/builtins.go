package responses

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Builtin names a built-in tool of OpenAI's, as the configuration does.
type Builtin string

// The built-in tools. An MCP server does the work of each: see docs/responses.md.
const (
	WebSearch       Builtin = "web_search"
	CodeInterpreter Builtin = "code_interpreter"
	Container       Builtin = "container"
	FileSearch      Builtin = "file_search"
	ImageGeneration Builtin = "image_generation"
)

// builtin is how a built-in tool looks to the model and to the client.
type builtin struct {
	namespace string
	known     func() harmony.Namespace // what the model was trained with; nil: the server's own tools
	system    bool                     // it stands in the system message
	item      itemKind
}

var builtins = map[Builtin]*builtin{
	WebSearch:       {"browser", harmony.BrowserNamespace, true, searchItem},
	CodeInterpreter: {"python", harmony.PythonNamespace, true, codeItem},
	Container:       {"container", nil, true, serverItem},
	FileSearch:      {"file_search", nil, false, fileItem},
	ImageGeneration: {"image_generation", nil, false, imageItem},
}

// Tools are those that the server of a built-in tool has to have, for the model was
// trained with them; nil: the server may have what it will.
func (b Builtin) Tools() (names []string) {
	switch b {
	case CodeInterpreter:
		return []string{codeTool}
	case WebSearch:
		for _, t := range harmony.BrowserNamespace().Tools {
			names = append(names, t.Name)
		}
	}
	return names
}

// codeTool is the tool of the code interpreter's server, and codeArgument its one
// argument.
const (
	codeTool     = "python"
	codeArgument = "code"
)

// builtinOf is the built-in tool that a tool's type means. Clients write some
// with the day of their version, as web_search_preview_2025_03_11.
func builtinOf(kind string) Builtin {
	if strings.HasPrefix(kind, string(WebSearch)) {
		return WebSearch
	}
	return Builtin(kind)
}

// readBuiltin reads a built-in tool. One that no server does the work of is not
// offered to the model; most clients that send it can do without.
func (d *decoder) readBuiltin(kind string, v jsontext.Field) *apierror.Error {
	name := builtinOf(kind)
	b := builtins[name]
	label, configured := d.api.Builtins[name]
	if b == nil || !configured || d.api.Tools == nil {
		d.ignored.Add("tools." + clip(kind))
		return nil
	}
	server, ok := d.api.Tools.Server(label)
	if !ok {
		return nil // the configuration has been checked
	}
	for _, h := range d.hosted {
		if h.builtin == b {
			return apierror.Invalid(v.Path, "The tool %q stands twice among the tools.", clip(kind))
		}
	}
	server.Tenant = d.scope.Tenant
	if c := v.Get("container"); name == CodeInterpreter && c.Type == gjson.String {
		var err *apierror.Error
		if d.chosen, err = (jsontext.Field{Result: c, Path: v.Path + ".container"}).ShortText(); err != nil {
			return err
		}
	}
	d.hosted = append(d.hosted, &hosted{label: b.namespace, server: server, builtin: b, known: b.known != nil})
	if name == Container {
		return nil // clients know no such tool in a response
	}
	if len(d.echo.tools) > 0 {
		d.echo.tools = append(d.echo.tools, ',')
	}
	d.echo.tools = jsontext.AppendCompact(d.echo.tools, v.Raw)
	return nil
}

// offerBuiltin offers a built-in tool to the model.
func (d *decoder) offerBuiltin(h *hosted) {
	var space harmony.Namespace
	if h.builtin.known != nil {
		space = h.builtin.known()
	} else if space = h.namespace(); len(space.Tools) == 0 {
		return
	}
	if h.builtin.system {
		d.input.Builtins = append(d.input.Builtins, space)
	} else {
		d.input.Tools = append(d.input.Tools, space)
	}
}

// addContainer notes where the code of the conversation runs: it goes on there.
func (d *decoder) addContainer(it item) *apierror.Error {
	if id := it.at.Get("container_id"); id.Type == gjson.String && len(id.Str) <= jsontext.MaxShortText {
		d.facts.container = strings.Clone(id.Str)
	}
	return nil
}

// containerID is the name under which the built-in tools' servers keep what
// belongs to the conversation.
func (d *decoder) containerID() string {
	for _, h := range d.hosted {
		if h.builtin != nil {
			return cmp.Or(d.chosen, d.facts.container, d.scope.NewID(containerPrefix))
		}
	}
	return ""
}

// containerPrefix begins the ids of containers.
const containerPrefix = "cntr_"

// endBuiltin takes a call of a built-in tool that the model has completed.
func (r *Reply) endBuiltin(it *outputItem) {
	server := *it.hosted.server
	server.Session = r.call.container
	job := tools.Job{Server: &server, Tool: it.call.Name, Arguments: it.plainText()}
	if it.call.IsCode() {
		code := append(jsontext.AppendString([]byte(`{"`+codeArgument+`":`), job.Arguments), '}')
		job.Tool, job.Arguments = codeTool, string(code)
	}
	it.arguments = gjson.Parse(job.Arguments)
	switch it.kind {
	case codeItem:
		r.writeText(it)
		r.writeItemStep(it, "response.code_interpreter_call", ".interpreting")
	case serverItem:
		r.writeText(it)
	default:
		it.address = r.address(it)
		r.place(it)
		r.writeItemAdded(it)
		r.writeItemStep(it, it.kind.names().step, ".in_progress")
		doing := ".searching"
		if it.kind == imageItem {
			doing = ".generating"
		}
		r.writeItemStep(it, it.kind.names().step, doing)
	}
	r.begins(&work{item: it, job: job})
}

// completeBuiltin notes what a built-in tool has given: for the model, and for
// what the answer may cite.
func (r *Reply) completeBuiltin(it *outputItem) {
	text := it.result.Text
	if it.result.Error != "" {
		text = it.result.Error
	} else if it.kind == searchItem {
		r.pages.last = ""
		r.pages.add(it.result.Text, it.result.Structured)
		it.address = cmp.Or(r.pages.last, it.address)
	}
	call := turn.Item{Kind: turn.Call, Text: it.plainText(), CallID: it.call.ID, Namespace: it.call.Namespace, Name: it.hosted.toModel(it.call.Name), Builtin: it.call.Builtin}
	r.made[it.slot].items = []turn.Item{call, {Kind: turn.Result, Text: text, CallID: it.call.ID, Hosted: true}}
}

// appendBuiltin appends the JSON of an item about a built-in tool.
func (it *outputItem) appendBuiltin(dst []byte, status string, text []byte) []byte {
	switch it.kind {
	case searchItem:
		dst = it.appendHead(dst, "web_search_call", status)
		return append(it.appendAction(append(dst, `,"action":`...)), '}')
	case codeItem:
		dst = it.appendHead(dst, "code_interpreter_call", status)
		dst = jsontext.AppendString(append(dst, `,"container_id":`...), it.container)
		dst = append(append(append(dst, `,"code":"`...), text...), '"')
		return append(it.appendOutputs(append(dst, `,"outputs":`...)), '}')
	case fileItem:
		dst = it.appendHead(dst, "file_search_call", status)
		return append(it.appendQueries(append(dst, `,"queries":[`...)), `],"results":null}`...)
	}
	dst = it.appendHead(dst, "image_generation_call", status)
	return append(it.appendPicture(append(dst, `,"result":`...)), '}')
}

// appendAction appends what the browser was asked to do.
func (it *outputItem) appendAction(dst []byte) []byte {
	member := func(dst []byte, name, value string) []byte {
		return jsontext.AppendString(append(append(append(dst, `,"`...), name...), `":`...), value)
	}
	switch it.call.Name {
	case "open":
		dst = append(dst, `{"type":"open_page"`...)
		if it.address != "" {
			dst = member(dst, "url", it.address)
		}
		return append(dst, '}')
	case "find":
		dst = member(append(dst, `{"type":"find_in_page"`...), "pattern", it.arguments.Get("pattern").String())
		return append(member(dst, "url", it.address), '}')
	}
	query := it.arguments.Get("query").String()
	dst = member(append(dst, `{"type":"search"`...), "query", query)
	return append(jsontext.AppendString(append(dst, `,"queries":[`...), query), `]}`...)
}

// address is that of the page which a call of the browser is about, "" while only
// the browser knows it.
func (r *Reply) address(it *outputItem) string {
	id, cursor := it.arguments.Get("id"), it.arguments.Get("cursor")
	switch {
	case id.Type == gjson.String:
		return id.Str
	case id.Exists():
		return ""
	case cursor.Exists() && cursor.Int() >= 0:
		return r.pages.shown[int(cursor.Int())].url
	}
	return r.pages.last
}

// appendOutputs appends what code has put out, if the client wants it.
func (it *outputItem) appendOutputs(dst []byte) []byte {
	if it.result == nil || !it.outputs {
		return append(dst, `null`...)
	}
	text := it.result.Text
	if it.result.Error != "" {
		text = it.result.Error
	}
	dst = jsontext.AppendString(append(dst, `[{"type":"logs","logs":`...), text)
	dst = append(dst, '}')
	for _, p := range it.result.Content {
		if p.Type == "image" {
			dst = append(append(dst, `,{"type":"image","url":`...), pictureURL(&p)...)
			dst = append(dst, '}')
		}
	}
	return append(dst, ']')
}

// pictureURL is a picture as a data URL, in quotes.
func pictureURL(p *tools.Part) []byte {
	return jsontext.AppendString(nil, "data:"+p.MIME+";base64,"+base64.StdEncoding.EncodeToString(p.Data))
}

// appendQueries appends what files were searched for.
func (it *outputItem) appendQueries(dst []byte) []byte {
	queries := it.arguments.Get("queries")
	if !queries.IsArray() {
		return jsontext.AppendString(dst, it.arguments.Get("query").String())
	}
	for i, q := range queries.Array() {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = jsontext.AppendString(dst, q.String())
	}
	return dst
}

// appendPicture appends the first picture that there is, in base64.
func (it *outputItem) appendPicture(dst []byte) []byte {
	if it.result != nil {
		for _, p := range it.result.Content {
			if p.Type == "image" {
				return jsontext.AppendString(dst, base64.StdEncoding.EncodeToString(p.Data))
			}
		}
	}
	return append(dst, `null`...)
}

// cite looks for citations in the next piece of an answer.
func (r *Reply) cite(it *outputItem, p []byte) {
	if len(r.pages.shown) == 0 {
		return
	}
	if it.citations == nil {
		it.citations = &citations{pages: &r.pages}
	}
	r.found = it.citations.appendFound(r.found, p)
}

// writeFound writes the events of the citations that have been found, behind the
// text that has them.
func (r *Reply) writeFound() {
	it := r.item
	for i := range r.found {
		annotation := r.found[i].json()
		if r.call.options.stream {
			r.beginItemEvent(it, "response.output_text", ".annotation.added")
			r.dst = strconv.AppendInt(append(r.dst, `,"content_index":0,"annotation_index":`...), int64(len(it.annotations)), 10)
			r.dst = append(append(r.dst, `,"annotation":`...), annotation...)
			r.endEvent()
		}
		it.annotations = append(it.annotations, annotation)
	}
	r.found = r.found[:0]
}

// json is the citation as an annotation.
func (c *citation) json() json.RawMessage {
	dst := strconv.AppendInt([]byte(`{"type":"url_citation","start_index":`), int64(c.start), 10)
	dst = strconv.AppendInt(append(dst, `,"end_index":`...), int64(c.end), 10)
	dst = jsontext.AppendString(append(dst, `,"url":`...), c.url)
	return append(jsontext.AppendString(append(dst, `,"title":`...), c.title), '}')
}
