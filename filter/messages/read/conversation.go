package read

import (
	"slices"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/messages/names"
	"github.com/envoy-harmony/envoy-harmony/filter/messages/toolset"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/fields"
)

func (d *decoder) readMessages(v jsontext.Field) *apierror.Error {
	role := ""
	err := v.Elements(func(_ int, v jsontext.Field) (err *apierror.Error) {
		role, err = d.readMessage(v)
		return err
	})
	if err != nil || role != "assistant" || len(d.input.Items) == 0 {
		return err
	}

	// A last message of the assistant that ends in text is begun: the reply goes on with it.
	if last := &d.input.Items[len(d.input.Items)-1]; last.Kind == turn.Unphased {
		last.Kind = turn.Answer
		d.input.Continue = true
	}
	return nil
}

// messageRoles are the kinds of the texts of messages, by their roles.
var messageRoles = map[string]turn.Kind{
	"user": turn.User, "assistant": turn.Unphased, "system": turn.Instructions,
}

// readMessage adds a message to the items of the conversation, and returns its role.
func (d *decoder) readMessage(at jsontext.Field) (role string, err *apierror.Error) {
	var content, config, clearing jsontext.Field
	err = at.Fields(func(key string, v jsontext.Field) (err *apierror.Error) {
		switch key {
		case "role":
			role, err = v.Text()
		case "content":
			content = v
		case "output_config":
			config = v
		case "clear_at":
			clearing = v
		default:
			err = messageFields.Other(key, v, &d.ignored)
		}
		return err
	})
	if err == nil {
		// A message without blocks takes memory too.
		err = d.countBlock()
	}
	if err != nil {
		return "", err
	}

	// The blocks are read only now: which ones may come depends on the role, which may follow them.
	m := message{d: d, at: at, kind: messageRoles[role]}
	if m.kind == 0 {
		return "", apierror.Invalid(at.Path+".role", "The role of a message must be user, assistant or system.")
	}
	configured, err := m.readSettings(config, clearing)
	if err == nil {
		err = m.readContent(content, configured)
	}
	if err == nil {
		m.end()
	}
	return role, err
}

// clear removes the texts that a message of the user clears.
func (d *decoder) clear() {
	if d.cleared == nil {
		return
	}

	// One pass, however many they are: each item is passed at most once for each message of the
	// user that follows a text to clear.
	later := d.input.Items[d.clearing:]
	kept := slices.DeleteFunc(later, func(i turn.Item) bool { return i.Kind == turn.Instructions && d.cleared[i.Path] })
	d.input.Items = d.input.Items[:d.clearing+len(kept)]
	d.cleared = nil
}

// countBlock counts a message or a content block of one, and bounds their number: each
// can take far more memory than it has bytes.
func (d *decoder) countBlock() *apierror.Error {
	d.blocks++
	if d.blocks > 2*d.rc.Limits.Items {
		return apierror.Invalid("messages",
			"The conversation has more than %d messages and content blocks.", 2*d.rc.Limits.Items)
	}
	return nil
}

// message is a message that is being read.
type message struct {
	d    *decoder
	at   jsontext.Field
	kind turn.Kind // of its texts

	// The text that is being read. image is that its last block was a placeholder, which is a
	// line of its own.
	text  jsontext.Joined
	image bool

	// What has been read before the text. The texts of a user's message come after its
	// results, which answer calls.
	items []turn.Item
	texts []turn.Item

	// begun is that the message has a text, clears that the next message of the user ends its
	// texts.
	begun  bool
	clears bool

	referred []string         // tools that it refers to
	changing *toolset.Joining // the tools that it changes; nil: none so far
	// served are the calls of tools that a server ran and that have no result yet, by their ids.
	served map[string]place
}

// place is where the result of a call is going to be.
type place struct {
	at    int              // among the items of the message: the call is before it
	joins *toolset.Joining // what a search has found; nil: the call is none
}

// readContent reads the content of the message. configured is that the message sets the effort,
// and may do no more than that.
func (m *message) readContent(content jsontext.Field, configured bool) *apierror.Error {
	switch {
	case !content.Exists() && configured:
		return nil
	case !content.Exists():
		return apierror.Invalid(m.at.Path+".content", "A message has no content. Send some.")
	case content.Type == gjson.String:
		m.addText(m.withoutBilling(content.Str), false)
		return nil
	case content.IsArray():
		return content.Elements(func(_ int, v jsontext.Field) *apierror.Error { return m.readBlock(v) })
	}
	return apierror.Invalid(content.Path, "The field %q must be a string or an array of content blocks.", content.Path)
}

// readSettings reads what a message of the system says beside its content: the effort from
// there on, and how long the model sees its text. It reports whether there is an effort.
func (m *message) readSettings(config, clearing jsontext.Field) (configured bool, err *apierror.Error) {
	for _, v := range []jsontext.Field{config, clearing} {
		if v.Exists() && m.kind != turn.Instructions {
			return false, apierror.Invalid(v.Path, "Only a message of the role system may have this field.")
		}
	}

	if config.Exists() {
		configured, err = m.readConfig(config)
	}
	if err != nil {
		return false, err
	}

	switch {
	case !clearing.Exists() || clearing.Str == "never":
	case clearing.Str == "next_user_message":
		m.clears = true
	default:
		return false, apierror.Invalid(clearing.Path, "The field \"clear_at\" must be next_user_message or never.")
	}
	return configured, nil
}

// readConfig reads {"effort":…}, and reports whether there is one.
func (m *message) readConfig(config jsontext.Field) (configured bool, err *apierror.Error) {
	err = config.Fields(func(key string, v jsontext.Field) *apierror.Error {
		if key != "effort" {
			return messageConfigFields.Other(key, v, &m.d.ignored)
		}
		configured = true
		return fields.ReadEffortUpdate(&m.d.input.EffortUpdates, v)
	})
	return configured, err
}

// withoutBilling returns a text of the message without the billing line of Claude Code, which
// may begin a message of the system.
func (m *message) withoutBilling(text string) string {
	if m.kind != turn.Instructions || m.begun {
		return text
	}
	m.begun = true
	return fields.WithoutBilling(text)
}

// flush ends a text of the message.
func (m *message) flush() {
	text := m.text.String()
	m.text, m.image = jsontext.Joined{}, false
	if text == "" {
		return
	}
	item := turn.Item{Kind: m.kind, Text: text, Path: m.at.Path}
	if m.kind == turn.Unphased {
		m.items = fields.AppendAssistant(m.items, item)
	} else {
		m.texts = append(m.texts, item)
	}
}

// end adds the message to the conversation.
func (m *message) end() {
	m.flush()
	m.dropOpen()

	// A user's message without a text is a turn all the same.
	if len(m.items)+len(m.texts) == 0 && m.kind == turn.User {
		m.texts = append(m.texts, turn.Item{Kind: m.kind, Path: m.at.Path})
	}
	// The tools join after the results that name them, and before what the user says next.
	if len(m.referred) > 0 {
		m.join(m.referred)
	}

	if m.kind == turn.User {
		m.d.clear()
	}
	if m.clears && m.d.cleared == nil {
		m.d.clearing, m.d.cleared = len(m.d.input.Items), map[string]bool{}
	}
	if m.clears {
		m.d.cleared[m.at.Path] = true
	}

	if m.kind == turn.Unphased {
		m.d.input.EffortUpdates.Begin()
	}
	m.d.input.Items = append(append(m.d.input.Items, m.items...), m.texts...)
}

// add adds an item that is not a text.
func (m *message) add(items ...turn.Item) {
	if m.kind == turn.Unphased { // the order is that of the generation
		m.flush()
	}
	m.items = append(m.items, items...)
}

// readBlock reads a content block.
func (m *message) readBlock(v jsontext.Field) *apierror.Error {
	if err := m.d.countBlock(); err != nil {
		return err
	}

	kind := v.Get("type").Str
	assistant := m.kind == turn.Unphased
	switch {
	case kind == "tool_result" && m.kind == turn.User:
		return m.readResult(v)
	case kind == "tool_use" && assistant:
		return m.readCall(v)
	case kind == "thinking" && assistant, kind == "redacted_thinking" && assistant:
		return m.readThinking(kind, v)
	case kind == "tool_result", kind == "tool_use", kind == "thinking", kind == "redacted_thinking":
		return apierror.Invalid(v.Path+".type",
			"Blocks of type \"tool_result\" belong into messages of the user, those of type \"tool_use\", "+
				"\"thinking\" and \"redacted_thinking\" into messages of the assistant.")
	case kind == "tool_addition", kind == "tool_removal":
		return m.readChange(kind, v)
	case kind == "compaction":
		return m.readSummary(v)
	case isServed(kind):
		return m.readServed(kind, v)
	default:
		text, placeholder, err := m.d.readPart(kind, v, m.d.rc.Model.Images)
		m.addText(m.withoutBilling(text), placeholder)
		return err
	}
}

// addText adds a text to the one being read. A placeholder is a line of its own.
func (m *message) addText(text string, placeholder bool) {
	if placeholder || m.image {
		m.text.NewLine()
		m.text.Add(text)
	} else {
		m.text.AddPart(text)
	}
	// An empty text does not end the line of a placeholder.
	if text != "" {
		m.image = placeholder
	}
}

// join adds an item with the tools of these names, which join the conversation there.
func (m *message) join(tools []string) *toolset.Joining {
	item, joining := m.d.tools.Join(m.at.Path, tools)
	m.items = append(m.items, item)
	return joining
}

// readChange reads a block of the type tool_addition or tool_removal.
func (m *message) readChange(kind string, v jsontext.Field) *apierror.Error {
	if m.kind != turn.Instructions {
		return apierror.Invalid(v.Path+".type",
			"Blocks of type \"tool_addition\" and \"tool_removal\" belong into messages of the system.")
	}
	return m.addChange(kind, v, false)
}

// addChange adds a change of tools at its place. made is that the filter has written the block,
// for a compaction.
func (m *message) addChange(kind string, v jsontext.Field, made bool) *apierror.Error {
	change, err := m.d.tools.ReadChange(kind, v, made)
	if err != nil || change == nil {
		return err
	}

	// The changes of a message that follow one another are one.
	if !m.changing.Add(change) {
		m.changing = m.join(nil)
		m.changing.Add(change)
	}
	return nil
}

// readCall reads {"type":"tool_use","id":…,"name":…,"input":…}.
func (m *message) readCall(at jsontext.Field) *apierror.Error {
	call := turn.Item{Kind: turn.Call, Path: at.Path}

	err := at.Fields(func(key string, v jsontext.Field) (err *apierror.Error) {
		switch key {
		case "id":
			call.CallID, err = m.d.readCallID(v)
		case "name":
			call.Name, err = v.Text()
		case "input":
			call.Text, err = fields.ReadArguments(v)
		case "toolset_name":
			call.Namespace, err = v.ShortText()
		// The reply and the SDKs' types have these; none changes what the model sees.
		case "type", "cache_control", "caller":
		default:
			err = callFields.Other(key, v, &m.d.ignored)
		}
		return err
	})

	switch {
	case err != nil:
		return err
	case call.CallID == "":
		return apierror.Invalid(at.Path+".id", "A tool_use block has no id. Send the one of the reply.")
	case call.Name == "":
		return apierror.Invalid(at.Path+".name", "A tool_use block has no name. Send the one of the reply.")
	}

	m.add(call)
	return nil
}

// readCallID reads the id of a call, which is the same with both prefixes.
func (d *decoder) readCallID(v jsontext.Field) (string, *apierror.Error) {
	sent, err := v.Text()
	id := names.CallID(sent)
	d.noteID(id, sent)
	return id, err
}

// noteID notes how the client spells the id of a call.
func (d *decoder) noteID(callID, sent string) {
	if sent == names.Shown(callID) {
		return
	}
	if d.sentIDs == nil {
		d.sentIDs = map[string]string{}
	}
	d.sentIDs[callID] = sent
}

// sentID returns the id of a call as the client has sent it.
func (d *decoder) sentID(callID string) string {
	if sent, ok := d.sentIDs[callID]; ok {
		return sent
	}
	return names.Shown(callID)
}

// failed stands before the output of a tool that has failed.
const failed = "The tool call failed.\n"

// readResult reads {"type":"tool_result","tool_use_id":…,"content":…,"is_error":…}.
func (m *message) readResult(at jsontext.Field) *apierror.Error {
	result := turn.Item{Kind: turn.Result, Path: at.Path}
	isError := false

	err := at.Fields(func(key string, v jsontext.Field) (err *apierror.Error) {
		switch key {
		case "tool_use_id":
			result.CallID, err = m.d.readCallID(v)
		case "content":
			result.Text, err = m.readResultContent(v)
		case "is_error":
			isError, err = v.Switch()
		// The call says of which toolset its tool is.
		case "type", "cache_control", "toolset_name":
		default:
			err = resultFields.Other(key, v, &m.d.ignored)
		}
		return err
	})

	switch {
	case err != nil:
		return err
	case result.CallID == "":
		return apierror.Invalid(at.Path+".tool_use_id",
			"A tool_result block has no tool_use_id. Send the id of its call.")
	}

	// The model has no other sign of it: Harmony's messages of tools have a text only.
	if isError {
		result.Text = failed + result.Text
	}
	m.add(result)
	return nil
}

// readResultContent reads the output of a tool: a string, or content blocks. Its
// pictures are always placeholders: an error would end the session.
func (m *message) readResultContent(v jsontext.Field) (string, *apierror.Error) {
	if v.Type == gjson.String {
		return v.Str, nil
	}
	if !v.IsArray() {
		return "", apierror.Invalid(v.Path, "The field %q must be a string or an array of content blocks.", v.Path)
	}

	// A message of its own joins the texts as those of a message are, and adds no items.
	result := message{d: m.d}
	err := v.Elements(func(_ int, v jsontext.Field) *apierror.Error {
		if err := m.d.countBlock(); err != nil {
			return err
		}

		kind := v.Get("type").Str
		if kind == "tool_reference" {
			if err := v.RequireText("tool_name"); err != nil {
				return err
			}
			name := v.Get("tool_name").Str
			m.refer(name)
			result.addText("Loaded the tool "+name+".", true)
			return nil
		}

		text, placeholder, err := m.d.readPart(kind, v, turn.ImagesPlaceholder)
		result.addText(text, placeholder)
		return err
	})
	return result.text.String(), err
}

// refer notes that the message refers to a tool.
func (m *message) refer(name string) {
	if m.d.tools.Refers(name) {
		m.referred = append(m.referred, name)
	}
}
