package read

import (
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/request"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/fields"
)

// itemReader turns items, of a request or stored, into what the model sees and
// what this service has to know of the conversation.
type itemReader struct {
	reader *Reader
	rc     *turn.RequestContext

	// ignored takes the items and members without an effect; nil: they are not listed.
	// searched counts the bytes that were searched for such members.
	ignored  *jsontext.Ignored
	searched int

	// What the model sees. before replaces the items that precede items; nil: none do. whole
	// reads the items that it replaces.
	before *turn.Prefix
	items  []turn.Item
	whole  func() ([]turn.Item, *apierror.Error)

	// What this service has to know of the conversation.
	state serverState
	tools toolItems
	// storedBytes are those of the stored items that the request brings in.
	storedBytes int

	// What is about the request's own input. approvals are the requests for approval by id,
	// verdicts what the input says of them, and repeated those that have been answered.
	ownInput  bool
	approvals map[string]item.Item
	verdicts  []request.Verdict
	repeated  []request.Verdict

	compacting compacting

	// open are the calls without an output; nil: they have not been needed yet.
	open *openCalls
}

// itemType is what becomes of one type of input item. Exactly one of its members
// is set.
type itemType struct {
	add     func(r *itemReader, it item.Item) *apierror.Error
	another bool // it is a reference, which the item that it names has replaced
}

// itemTypes are the types of items. Of others the model sees the text. The table of
// docs/compatibility.md has the same rows.
var itemTypes = map[string]itemType{
	"message":                 {add: (*itemReader).addMessage},
	"reasoning":               {add: (*itemReader).addReasoning},
	"function_call":           {add: (*itemReader).addCall},
	"function_call_output":    {add: (*itemReader).addOutput},
	"custom_tool_call":        {add: (*itemReader).addCustomCall},
	"custom_tool_call_output": {add: (*itemReader).addOutput},
	"mcp_call":                {add: (*itemReader).addMCPCall},
	"compaction":              {add: (*itemReader).addCompaction},
	"compaction_summary":      {add: (*itemReader).addCompaction}, // its name in older versions of Codex
	"compaction_trigger":      {add: (*itemReader).addTrigger},
	"additional_tools": {add: func(r *itemReader, it item.Item) *apierror.Error {
		return r.tools.addTools(r,
			it)
	}},
	"tool_search_call":   {add: func(r *itemReader, it item.Item) *apierror.Error { return r.tools.addSearch(r, it) }},
	"tool_search_output": {add: func(r *itemReader, it item.Item) *apierror.Error { return r.tools.addFound(r, it) }},

	"code_interpreter_call": {add: (*itemReader).addContainer},
	"web_search_call":       {add: (*itemReader).addNothing},
	"file_search_call":      {add: (*itemReader).addNothing},
	"image_generation_call": {add: (*itemReader).addNothing},

	"mcp_list_tools":        {add: (*itemReader).addList},
	"mcp_approval_request":  {add: (*itemReader).addApprovalRequest},
	"mcp_approval_response": {add: (*itemReader).addVerdict},

	"shell_call":              {add: (*itemReader).addActionCall},
	"shell_call_output":       {add: (*itemReader).addOutput},
	"local_shell_call":        {add: (*itemReader).addActionCall},
	"local_shell_call_output": {add: (*itemReader).addOutput},
	"apply_patch_call":        {add: (*itemReader).addActionCall},
	"apply_patch_call_output": {add: (*itemReader).addOutput},
	"computer_call":           {add: (*itemReader).addActionCall},
	"computer_call_output":    {add: (*itemReader).addOutput},
	"agent_message":           {add: (*itemReader).addAgentMessage},
	"program":                 {add: (*itemReader).addProgram},
	"program_output":          {add: (*itemReader).addOther},
	"configuration_update":    {add: (*itemReader).addConfiguration},
	"context_compaction":      {add: (*itemReader).addContextCompaction},

	"item_reference": {another: true},
}

// add adds an item.
func (r *itemReader) add(it item.Item) *apierror.Error {
	if err := r.checkTrigger(it); err != nil {
		return err
	}

	r.retain(&it)
	if err := r.ignoreMembers(&it); err != nil {
		return err
	}

	t, known := itemTypes[it.Kind]
	// The item of a built-in tool does not have what the model saw: it is stored beside the item.
	if it.ModelView.Exists() {
		r.addModelView(&it)
		// Such a call has nothing else.
		if it.Kind == "mcp_call" {
			return nil
		}
	}

	switch {
	case !known:
		return r.addOther(it)
	case t.another:
		return nil
	}

	return t.add(r, it)
}

const (
	// stepBytes is how many bytes of a stored item are read in one step of the request's
	// work: they are parsed several times, and their texts copied.
	stepBytes = 8
	// referredStepBytes is the same for an item that the input refers to, which can be the
	// one that takes longest, many times.
	referredStepBytes = 2
)

// addStored adds a stored item. A few bytes of a request can name many of them, so that
// reading them is work that is counted.
func (r *itemReader) addStored(i store.Item, path string) *apierror.Error {
	if err := r.rc.Spend(path, 1+len(i.JSON)/stepBytes); err != nil {
		return err
	}
	it, err := item.ReadStored(i, path)
	if err != nil {
		return err
	}
	return r.add(it)
}

// addAllStored adds stored items.
func (r *itemReader) addAllStored(items []store.Item, path string) *apierror.Error {
	// Only the last compaction of a list has an effect: see compacting.superseded.
	last := len(items) - 1
	for last >= 0 && !item.IsCompaction(items[last]) {
		last--
	}

	for i := range items {
		r.compacting.superseded = i < last
		if err := r.addStored(items[i], path); err != nil {
			return err
		}
	}

	return nil
}

// addResponses adds the items of stored responses, without calls that were cut.
func (r *itemReader) addResponses(responses ...*store.Response) *apierror.Error {
	var items []store.Item
	for _, response := range responses {
		items = append(append(items, response.Input...), item.WithoutCutCalls(response.Output)...)
	}

	return r.addAllStored(items, "previous_response_id")
}

func (r *itemReader) addTurn(items ...turn.Item) {
	if slices.ContainsFunc(items, func(i turn.Item) bool { return i.Kind.OfModel() }) {
		r.state.config.efforts.Begin()
	}
	r.items = append(r.items, items...)
	if r.open != nil {
		r.open.add(items...)
	}
}

func (r *itemReader) addMessage(it item.Item) *apierror.Error {
	kind := turn.Answer
	switch it.Role {
	case "system", "developer":
		kind = turn.Instructions
	case "user":
		kind = turn.User
	case "assistant":
		switch it.Phase {
		case "commentary":
			kind = turn.Preamble
		case "final_answer":
		case "":
			// Clients drop the phase: what follows in the turn decides whether the text was a preamble.
			kind = turn.Unphased
		default:
			return apierror.Invalid(it.At.Path+".phase", "The phase of a message must be commentary or final_answer.")
		}
	case "":
		return apierror.Invalid(it.At.Path+".role", "A message has no role.")
	default:
		return apierror.Invalid(it.At.Path+".role",
			"The role of a message must be system, developer, user or assistant.")
	}

	if !it.Content.Exists() {
		return apierror.Invalid(it.At.Path+".content", "A message has no content.")
	}

	text, err := item.ReadContent(it.Content, r.rc.Model.Images, false)
	// Claude Code begins its instructions with a line for billing, which differs in each request and
	// would be the end of every cached prefix.
	if kind == turn.Instructions && len(r.items) == 0 && r.before.Len() == 0 {
		text = fields.WithoutBilling(text)
	}

	if message := (turn.Item{Kind: kind, Text: text, Path: it.At.Path}); it.Role == "assistant" {
		r.state.config.efforts.Begin()
		r.items = fields.AppendAssistant(r.items, message)
	} else {
		r.addTurn(message)
	}

	return err
}

// addReasoning adds chain of thought: what was sealed here, or the content, or the
// summary, which is the same text in our own replies.
func (r *itemReader) addReasoning(it item.Item) *apierror.Error {
	text, err := r.openReasoning(it)
	for _, v := range []jsontext.Field{it.Content, it.Summary} {
		if v.Exists() && text == "" && err == nil {
			text, err = item.ReadContent(v, turn.ImagesReject, false)
		}
	}
	if text != "" {
		r.addTurn(turn.Item{Kind: turn.Reasoning, Text: text, Path: it.At.Path})
	}
	return err
}

// addCall adds a call of a function.
func (r *itemReader) addCall(it item.Item) *apierror.Error {
	arguments, err := fields.ReadArguments(it.Arguments)
	if err == nil {
		err = it.CheckCall()
	}
	r.addTurn(turn.Item{
		Kind:      turn.Call,
		Text:      arguments,
		CallID:    it.CallID,
		Namespace: it.Namespace,
		Name:      it.Name,
		Path:      it.At.Path,
	})
	return err
}

// addCustomCall adds a call of a custom tool as the model made it: the text is the
// one argument of a function.
func (r *itemReader) addCustomCall(it item.Item) *apierror.Error {
	text := ""
	if it.Input.Exists() {
		var err *apierror.Error
		if text, err = it.Input.Text(); err != nil {
			return err
		}
	}
	r.addTurn(turn.Item{
		Kind:      turn.Call,
		Text:      fields.CustomArguments(text),
		CallID:    it.CallID,
		Namespace: it.Namespace,
		Name:      it.Name,
		Path:      it.At.Path,
	})
	return it.CheckCall()
}

// addOutput adds the output of a tool. One without a call_id is that of the oldest call
// without an output, of the tool that it names if it names one.
func (r *itemReader) addOutput(it item.Item) *apierror.Error {
	if it.CallID == "" {
		if it.CallID = r.openNow().first(it.Name); it.CallID == "" {
			return apierror.Invalid(it.At.Path+".call_id",
				"A tool's output has no call_id, and no call before it waits for an output.")
		}
	}
	text, err := it.ReadOutput()
	r.addTurn(turn.Item{Kind: turn.Result, Text: text, CallID: it.CallID, Path: it.At.Path})
	return err
}

// addMCPCall adds a call of an MCP server's tool that was made here, with its
// output or its error.
func (r *itemReader) addMCPCall(it item.Item) *apierror.Error {
	if it.ID == "" {
		return apierror.Invalid(it.At.Path+".id", "An MCP call has no id.")
	}

	// Under which its reasoning is kept.
	it.CallID = item.CallPrefix + strings.TrimPrefix(it.ID, item.MCPCall.Names().Prefix)
	if id := it.At.Get("approval_request_id").Str; id != "" {
		r.state.noteAnswered(strings.Clone(id))
		r.verdicts = slices.DeleteFunc(r.verdicts, func(v request.Verdict) bool { return v.RequestID == id })
	}

	// The model is not shown half a call: it would answer to what it never asked for.
	if item.IsCutCall(store.Item{JSON: []byte(it.At.Raw)}) {
		return nil
	}
	if it.Namespace = it.Server; it.Namespace == "" {
		return apierror.Invalid(it.At.Path+".server_label", "An MCP call has no server_label.")
	}

	// The item has the server's name; the model must read the one that it was offered.
	if seen, ok := r.state.numbered[turn.ToolName{Namespace: it.Namespace, Name: it.Name}]; ok {
		it.Name = seen
	}

	if err := r.addCall(it); err != nil {
		return err
	}

	text, err := mcpOutput(&it)
	if err != nil {
		return err
	}

	r.addTurn(turn.Item{Kind: turn.Result, Text: text, CallID: it.CallID, Hosted: true, Path: it.At.Path})

	return nil
}

// mcpOutput is what the model sees of the outcome of an MCP call.
func mcpOutput(it *item.Item) (string, *apierror.Error) {
	switch {
	case it.At.Get("status").Str == item.StatusIncomplete:
		return "The outcome of this call is not known: the response ended while it was made.", nil
	case it.Error.Exists() && it.Error.Type != gjson.Null:
		return item.ErrorText(it.Error.Result), nil
	case it.Output.Exists():
		return it.Output.Text()
	}
	return "", nil
}

// addNothing adds an item that says nothing to the model: what the model sees of it is beside it.
func (r *itemReader) addNothing(item.Item) *apierror.Error { return nil }

// addContainer notes where the code of the conversation runs: later code runs
// there too.
func (r *itemReader) addContainer(it item.Item) *apierror.Error {
	if id := it.At.Get("container_id"); id.Type == gjson.String && len(id.Str) <= jsontext.MaxShortText {
		r.state.container = strings.Clone(id.Str)
	}
	return nil
}

// addModelView adds what the model sees in the place of a stored item.
func (r *itemReader) addModelView(it *item.Item) {
	v := it.ModelView
	call := turn.Item{
		Kind: turn.Call, Text: v.Get("input").Str, CallID: item.HostedCallID(it.ID),
		Namespace: v.Get("namespace").Str, Name: v.Get("name").Str, Builtin: v.Get("builtin").Bool(), Path: it.At.Path,
	}
	r.state.container = strings.Clone(v.Get("container").Str)
	if call.Builtin && call.Namespace == hosted.NamespaceOf(tools.WebSearch) {
		r.state.pages.Add(v.Get("output").Str, nil)
	}

	r.addTurn(call, turn.Item{
		Kind:   turn.Result,
		Text:   v.Get("output").Str,
		CallID: call.CallID,
		Hosted: true,
		Path:   it.At.Path,
	})
}
