package responses

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// readInput notes the input: what stands before it is read first.
func (d *decoder) readInput(v jsontext.Field) *apierror.Error {
	if v.Type != gjson.String && !v.IsArray() {
		return apierror.Invalid(v.Path, "The field \"input\" must be a text or a list of items.")
	}
	d.given = v
	return nil
}

// addInput adds the items of the input.
func (d *decoder) addInput(ctx context.Context) *apierror.Error {
	v := d.given
	switch {
	case !v.Exists():
		return nil
	case v.Type == gjson.String:
		it := item{at: jsontext.Field{Result: gjson.Parse(`{"role":"user","content":""}`), Path: v.Path}, kind: "message", role: "user"}
		it.content = v
		d.keep(&it)
		return d.addItem(it)
	}
	d.reading = true
	if err := d.findReferences(ctx, v); err != nil {
		return err
	}
	return v.Elements(func(_ int, v jsontext.Field) *apierror.Error {
		it, err := readItem(v)
		if err == nil && it.kind == "item_reference" {
			it, err = d.resolve(it)
		}
		if err != nil {
			return err
		}
		if done, err := d.addCompat(&it); done || err != nil {
			return err
		}
		d.keep(&it)
		return d.addItem(it)
	})
}

func (d *decoder) add(items ...turn.Item) { d.input.Items = append(d.input.Items, items...) }

// item is one element of input: the members that some type of item has.
type item struct {
	at     jsontext.Field
	kind   string // its type
	id     string
	role   string
	phase  string
	callID string

	namespace string // of the tool called
	name      string
	server    string // of an MCP call
	encrypted string // encrypted_content

	content, summary  jsontext.Field
	arguments, output jsontext.Field
	input             jsontext.Field // of a custom tool
	failure           jsontext.Field // error of an MCP call
	told              gjson.Result   // of a stored item: what the model is told of it
	source            *reference     // nil: the item stands in the request itself, or in what it continues
}

// textMember is where a member that is a text goes, nil if there is none.
func (it *item) textMember(key string) *string {
	switch key {
	case "type":
		return &it.kind
	case "id":
		return &it.id
	case "role":
		return &it.role
	case "phase":
		return &it.phase
	case "call_id":
		return &it.callID
	case "namespace":
		return &it.namespace
	case "name":
		return &it.name
	case "server_label":
		return &it.server
	case "encrypted_content":
		return &it.encrypted
	}
	return nil
}

// valueMember is where a member of any form goes, nil if there is none.
func (it *item) valueMember(key string) *jsontext.Field {
	switch key {
	case "content":
		return &it.content
	case "summary":
		return &it.summary
	case "arguments":
		return &it.arguments
	case "output":
		return &it.output
	case "error":
		return &it.failure
	case "input":
		return &it.input
	}
	return nil
}

func readItem(at jsontext.Field) (it item, err *apierror.Error) {
	it.at = at
	err = at.Fields(func(key string, v jsontext.Field) (err *apierror.Error) {
		if dst := it.textMember(key); dst != nil {
			*dst, err = v.Text()
		} else if dst := it.valueMember(key); dst != nil {
			*dst = v
		}
		return err
	})
	switch {
	case it.kind != "":
	case it.role != "":
		it.kind = "message"
	case it.id != "":
		it.kind = "item_reference"
	case err == nil:
		err = apierror.Invalid(at.Path+".type", "An input item has no type.")
	}
	return it, err
}

// itemType is what becomes of one type of input item. Of its members exactly
// one is set.
type itemType struct {
	add     func(d *decoder, it item) *apierror.Error
	skipped bool // it has nothing for the model
	another bool // it stands for another item, which has been put in its place
}

// itemTypes is every type of item. Others are refused. The table of
// docs/compatibility.md has the same rows.
var itemTypes = map[string]itemType{
	"message":                 {add: (*decoder).addMessage},
	"reasoning":               {add: (*decoder).addReasoning},
	"function_call":           {add: (*decoder).addCall},
	"function_call_output":    {add: (*decoder).addOutput},
	"custom_tool_call":        {add: (*decoder).addCustomCall},
	"custom_tool_call_output": {add: (*decoder).addOutput},
	"mcp_call":                {add: (*decoder).addServerCall},
	"compaction":              {add: (*decoder).addCompaction},
	"compaction_trigger":      {add: (*decoder).addTrigger},

	"code_interpreter_call": {add: (*decoder).addContainer},
	"web_search_call":       {skipped: true},
	"file_search_call":      {skipped: true},
	"image_generation_call": {skipped: true},

	"mcp_list_tools":        {add: (*decoder).addList},
	"mcp_approval_request":  {add: (*decoder).addApprovalRequest},
	"mcp_approval_response": {add: (*decoder).addApproval},

	"item_reference": {another: true},
}

func (d *decoder) addItem(it item) *apierror.Error {
	if err := d.checkTrigger(it); err != nil {
		return err
	}
	d.retain(&it)
	t, known := itemTypes[it.kind]
	if it.told.Exists() {
		d.addTold(&it)
	}
	switch {
	case !known:
		return apierror.Invalid(it.at.Path+".type", "Input items of this type are not supported. Leave the item out, or send what matters of it as a message.")
	case t.skipped || t.another:
		return nil
	}
	return t.add(d, it)
}

func (d *decoder) addMessage(it item) *apierror.Error {
	kind := turn.Answer
	switch it.role {
	case "system", "developer":
		kind = turn.Instructions
	case "user":
		kind = turn.User
	case "assistant":
		switch it.phase {
		case "commentary":
			kind = turn.Preamble
		case "final_answer":
		case "":
			kind = turn.Unphased
		default:
			return apierror.Invalid(it.at.Path+".phase", "The phase of a message must be commentary or final_answer.")
		}
	case "":
		return apierror.Invalid(it.at.Path+".role", "A message has no role.")
	default:
		return apierror.Invalid(it.at.Path+".role", "The role of a message must be system, developer, user or assistant.")
	}
	if !it.content.Exists() {
		return apierror.Invalid(it.at.Path+".content", "A message has no content.")
	}
	text, err := readContent(it.content, d.scope.Model.Images, false)
	d.add(turn.Item{Kind: kind, Text: text, Path: it.at.Path})
	return err
}

// addReasoning adds chain of thought: what was sealed here, or the content, or
// the summary, which is the same text in our own replies.
func (d *decoder) addReasoning(it item) *apierror.Error {
	text, err := d.unseal(it)
	for _, v := range []jsontext.Field{it.content, it.summary} {
		if v.Exists() && text == "" && err == nil {
			text, err = readContent(v, turn.ImagesReject, false)
		}
	}
	if text != "" {
		d.add(turn.Item{Kind: turn.Reasoning, Text: text, Path: it.at.Path})
	}
	return err
}

// unseal opens encrypted_content, "" if there is none. Content that is not of
// this service, or not this tenant's, is refused and never passed over: the
// client counts on it.
func (d *decoder) unseal(it item) (string, *apierror.Error) {
	if it.encrypted == "" {
		return "", nil
	}
	foreign := apierror.Invalid(it.at.Path+".encrypted_content", "The encrypted content is not of this service, or its key is gone. Leave it out, and the reasoning item if it has no content.")
	if d.api.Sealer == nil {
		return "", foreign
	}
	text, err := d.api.Sealer.Open(d.scope.Tenant, it.encrypted)
	if err != nil {
		return "", foreign.With(err)
	}
	return string(text), nil
}

// addCall adds a call of a function.
func (d *decoder) addCall(it item) *apierror.Error {
	arguments, err := readArguments(it.arguments)
	if err == nil {
		err = it.checkCall()
	}
	d.add(turn.Item{Kind: turn.Call, Text: arguments, CallID: it.callID, Namespace: it.namespace, Name: it.name, Path: it.at.Path})
	return err
}

// addCustomCall adds a call of a custom tool, as the model has made it: its
// text is the one argument of a function.
func (d *decoder) addCustomCall(it item) *apierror.Error {
	text := ""
	if it.input.Exists() {
		var err *apierror.Error
		if text, err = it.input.Text(); err != nil {
			return err
		}
	}
	arguments := append(jsontext.AppendString([]byte(`{"input":`), text), '}')
	d.add(turn.Item{Kind: turn.Call, Text: string(arguments), CallID: it.callID, Namespace: it.namespace, Name: it.name, Path: it.at.Path})
	return it.checkCall()
}

func (it *item) checkCall() *apierror.Error {
	switch {
	case it.callID == "":
		return apierror.Invalid(it.at.Path+".call_id", "A tool call has no call_id.")
	case it.name == "":
		return apierror.Invalid(it.at.Path+".name", "A tool call has no name.")
	}
	return nil
}

// addOutput adds what a tool has answered.
func (d *decoder) addOutput(it item) *apierror.Error {
	switch {
	case it.callID == "":
		return apierror.Invalid(it.at.Path+".call_id", "A tool's output has no call_id.")
	case !it.output.Exists():
		return apierror.Invalid(it.at.Path+".output", "A tool's output is missing. Send an empty text if there is none.")
	}
	text, err := readContent(it.output, turn.ImagesPlaceholder, true)
	d.add(turn.Item{Kind: turn.Result, Text: text, CallID: it.callID, Path: it.at.Path})
	return err
}

// addServerCall adds a call that a server made of an MCP tool, with its output
// or its error.
func (d *decoder) addServerCall(it item) *apierror.Error {
	if it.id == "" {
		return apierror.Invalid(it.at.Path+".id", "An MCP call has no id.")
	}
	it.callID = callPrefix + strings.TrimPrefix(it.id, serverItem.names().prefix) // under which its reasoning is kept
	if request := it.at.Get("approval_request_id").Str; request != "" {
		d.noteSettled(strings.Clone(request))
		d.verdicts = slices.DeleteFunc(d.verdicts, func(v verdict) bool { return v.request == request })
	}
	if isCutCall(store.Item{JSON: []byte(it.at.Raw)}) {
		return nil
	}
	if it.namespace = it.server; it.namespace == "" {
		return apierror.Invalid(it.at.Path+".server_label", "An MCP call has no server_label.")
	}
	if seen, ok := d.facts.numbered[toolName{it.namespace, it.name}]; ok {
		it.name = seen
	}
	if err := d.addCall(it); err != nil {
		return err
	}
	var text string
	switch {
	case it.at.Get("status").Str == statusIncomplete:
		text = "The outcome of this call is not known: the response ended while it was made."
	case it.failure.Exists() && it.failure.Type != gjson.Null:
		text = failureText(it.failure.Result)
	case it.output.Exists():
		var err *apierror.Error
		if text, err = it.output.Text(); err != nil {
			return err
		}
	}
	d.add(turn.Item{Kind: turn.Result, Text: text, CallID: it.callID, Hosted: true, Path: it.at.Path})
	return nil
}

// failureText is what went wrong with an MCP call: a text, or one of OpenAI's
// objects, which have a message or what the tool has told.
func failureText(v gjson.Result) string {
	if !v.IsObject() {
		return v.String()
	}
	texts := []string{}
	for _, part := range v.Get("content.#.text").Array() {
		texts = append(texts, part.Str)
	}
	switch message := v.Get("message").Str; {
	case len(texts) > 0:
		return strings.Join(texts, "\n")
	case message != "":
		return message
	}
	return v.Raw
}

// readArguments reads a call's arguments: a string, which stays as it is, or,
// from some clients, the object itself. Without any the call takes nothing.
func readArguments(v jsontext.Field) (string, *apierror.Error) {
	switch {
	case !v.Exists():
		return "{}", nil
	case !v.IsObject():
		return v.Text()
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, []byte(v.Raw)); err != nil {
		return "", apierror.Invalid(v.Path, "The arguments of a tool call are not valid JSON.")
	}
	return compact.String(), nil
}

// filePlaceholder stands in a tool's output in place of a file.
const filePlaceholder = "[A file was here. This model cannot read files.]"

// readContent reads a text or a list of parts, whose texts follow each other as
// they are; a placeholder stands on a line of its own. files says that it can
// stand for a file too.
func readContent(v jsontext.Field, images string, files bool) (string, *apierror.Error) {
	if !v.IsArray() {
		if v.Type != gjson.String {
			return "", apierror.Invalid(v.Path, "The field %q must be a string or an array of parts.", v.Path)
		}
		return v.Str, nil
	}
	var text jsontext.Joined
	placeholder := false // the last part was one
	err := v.Elements(func(_ int, v jsontext.Field) *apierror.Error {
		part, isPlaceholder, err := readPart(v, images, files)
		if isPlaceholder || placeholder {
			text.NewLine()
		}
		placeholder = isPlaceholder
		text.Add(part)
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
		if images == turn.ImagesReject {
			return "", true, apierror.Invalid(v.Path, "This model cannot see images. Leave them out.")
		}
		return turn.ImagePlaceholder, true, nil
	case "input_file":
		if !files {
			return "", true, apierror.Invalid(v.Path, "This model cannot read files. Send their text as input_text.")
		}
		return filePlaceholder, true, nil
	default:
		return "", false, apierror.Invalid(v.Path+".type", "Only content parts of type input_text, output_text, refusal and input_image are supported.")
	}
	part := v.Get(member)
	if part.Type != gjson.String {
		return "", false, apierror.Invalid(v.Path+"."+member, "The field %q must be a string.", v.Path+"."+member)
	}
	return part.Str, false, nil
}
