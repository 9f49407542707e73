package chat

import (
	"cmp"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/fields"
)

func (d *decoder) readMessages(v jsontext.Field) *apierror.Error {
	return v.Elements(func(i int, v jsontext.Field) *apierror.Error {
		if i >= 2*d.rc.Limits.Items || len(d.input.Items) > d.rc.Limits.Items {
			return d.tooManyItems()
		}
		m, err := d.readMessage(v)
		if err != nil {
			return err
		}
		d.prefixed = m.prefix && m.role == "assistant"

		// An update is no message. Before the assistant has said something it is the effort from the
		// beginning on.
		if m.update {
			return d.readUpdate(m)
		}
		if m.role == "assistant" {
			d.input.EffortUpdates.Begin()
		}
		if m.config.Exists() {
			if err := d.readConfig(&m); err != nil {
				return err
			}
		}
		return d.addItems(m)
	})
}

// tooManyItems is the error of a conversation with more items than the limit, which is
// found before they are read: each can take far more memory than it has bytes.
func (d *decoder) tooManyItems() *apierror.Error {
	return apierror.Invalid("messages",
		"The conversation has more than %d messages, calls and results.", d.rc.Limits.Items)
}

// message is an element of messages.
type message struct {
	at      jsontext.Field
	role    string
	content jsontext.Field
	name    string // of the function, of a function message
	callID  string // of a tool message

	// Of the assistant. details are the reasoning, as other services send it back; prefix is
	// that the message is begun: the model goes on with it.
	refusal   string
	reasoning string
	details   string
	prefix    bool
	calls     []turn.Item

	// What later replies are to be like. update is that the message is OpenAI's item of the type
	// configuration_update, with settings as its reasoning; config is what Anthropic's messages of
	// the system have, and configured that it sets the effort.
	update     bool
	settings   jsontext.Field
	config     jsontext.Field
	configured bool
}

func (d *decoder) readMessage(at jsontext.Field) (m message, err *apierror.Error) {
	m.at = at
	nameAt := ""

	err = at.Fields(func(key string, v jsontext.Field) (err *apierror.Error) {
		switch key {
		case "role":
			m.role, err = v.Text()
		case "content":
			m.content = v
		case "refusal":
			m.refusal, err = v.Text()
		case "reasoning", "reasoning_content", "thinking":
			// A reply has two of these names, and clients send back one or both.
			switch {
			case v.Type == gjson.String:
				m.reasoning = cmp.Or(v.Str, m.reasoning)
			case key == "reasoning":
				m.settings = v
			default:
				d.ignored.Add(v.Path)
			}
		// The lists of OpenRouter and LiteLLM, which repeat the text of the field.
		case "reasoning_details", "thinking_blocks":
			m.details = textsOf(v)
		case "prefix", "partial":
			m.prefix, err = v.Switch()
		case "tool_calls":
			var calls []turn.Item
			calls, err = d.readCalls(v)
			m.calls = append(m.calls, calls...)
		case "tool_call_id":
			m.callID, err = v.Text()
		case "function_call":
			var call turn.Item
			call, err = d.readLegacyCall(v)
			m.calls = append(m.calls, call)
		case "name":
			m.name, nameAt = v.Str, v.Path
		case "output_config":
			m.config = v
		case "type":
			m.update = v.Str == "configuration_update"
			if !m.update {
				err = messageFields.Other(key, v, &d.ignored)
			}
		default:
			err = messageFields.Other(key, v, &d.ignored)
		}
		return err
	})

	d.finishMessage(&m, nameAt)
	return m, err
}

// finishMessage decides what depends on several members, which come in any order. nameAt is the
// path of the name; "": there is none.
func (d *decoder) finishMessage(m *message, nameAt string) {
	// What is no text is the reasoning of an update only.
	if m.settings.Exists() && !m.update {
		d.ignored.Add(m.settings.Path)
	}
	// Only the result of a function has a name that counts.
	if nameAt != "" && m.role != "function" {
		d.ignored.Add(nameAt)
	}
	if m.reasoning == "" {
		// A list may be all that a client kept.
		m.reasoning = m.details
	}
}

// textsOf returns the texts of a list of {"text":…}, {"summary":…} or {"thinking":…}, line by
// line: the reasoning as OpenRouter and LiteLLM send it back. What is sealed has no text.
func textsOf(v jsontext.Field) string {
	var lines jsontext.Joined
	v.ForEach(func(_, detail gjson.Result) bool {
		for _, name := range []string{"text", "summary", "thinking"} {
			if text := detail.Get(name); text.Type == gjson.String && text.Str != "" {
				lines.NewLine()
				lines.Add(text.Str)
			}
		}
		return true
	})
	return lines.String()
}

// addItems adds a message as items of the conversation.
func (d *decoder) addItems(m message) *apierror.Error {
	if len(m.calls) > 0 && m.role != "assistant" {
		return apierror.Invalid(m.at.Path+".tool_calls", "Only assistant messages can have tool calls.")
	}

	images := d.rc.Model.Images
	var kind turn.Kind
	switch m.role {
	case "system", "developer":
		kind = turn.Instructions
	case "user":
		kind = turn.User
	case "assistant":
		return d.addAssistant(m)
	case "tool":
		// A picture that a tool returns is never an error: the session could not go on.
		kind, images = turn.Result, turn.ImagesPlaceholder
		if m.callID == "" {
			return apierror.Invalid(m.at.Path+".tool_call_id",
				"A tool message has no tool_call_id. Send the id of its call.")
		}
	// The result of the first form of tools has no call_id: the name says whose result it is.
	case "function":
		kind, images = turn.Result, turn.ImagesPlaceholder
		if !m.content.Exists() { // null is what a function returns, too
			m.content.Type = gjson.String
		}
		var err *apierror.Error
		if m.callID, err = d.resultOf(&m); err != nil {
			return err
		}
	case "":
		return apierror.Invalid(m.at.Path+".role", "A message has no role. Send one.")
	default:
		return apierror.Invalid(m.at.Path+".role",
			"The role of a message must be system, developer, user, assistant, tool or function.")
	}

	switch {
	// A message may do no more than set the effort.
	case !m.content.Exists() && m.configured:
		return nil
	case !m.content.Exists():
		return apierror.Invalid(m.at.Path+".content", "A message has no content. Send some.")
	}
	text, err := d.readContent(m.content, images)
	// Claude Code puts a line that changes with every request before its instructions, and
	// no prefix would be found in the engine's cache.
	if kind == turn.Instructions && len(d.input.Items) == 0 {
		text = fields.WithoutBilling(text)
	}
	d.input.Items = append(d.input.Items, turn.Item{Kind: kind, Text: text, CallID: m.callID, Path: m.at.Path})
	return err
}

// addAssistant adds an assistant's message in the order of its generation:
// reasoning, text, calls. Text with calls is a preamble.
func (d *decoder) addAssistant(m message) *apierror.Error {
	text := m.refusal
	if m.content.Exists() {
		content, err := d.readContent(m.content, d.rc.Model.Images)
		if err != nil {
			return err
		}
		// A refusal beside content is its end.
		if text != "" {
			var joined jsontext.Joined
			joined.AddPart(content)
			joined.AddPart(text)
			content = joined.String()
		}
		text = content
	}

	// Content that is there may be empty: a reply without a text and calls has "".
	if text == "" && m.reasoning == "" && len(m.calls) == 0 && !m.content.Exists() {
		return apierror.Invalid(m.at.Path,
			"An assistant message has neither content nor tool calls. Send one of them.")
	}

	if m.reasoning != "" {
		d.input.Items = append(d.input.Items, turn.Item{Kind: turn.Reasoning, Text: m.reasoning, Path: m.at.Path})
	}
	// The channels follow from this: what precedes a call was commentary, the rest final.
	kind := turn.Answer
	if len(m.calls) > 0 {
		kind = turn.Preamble
	}
	d.input.Items = fields.AppendAssistant(d.input.Items, turn.Item{Kind: kind, Text: text, Path: m.at.Path})
	d.input.Items = append(d.input.Items, m.calls...)
	return nil
}

func (d *decoder) readCalls(v jsontext.Field) (calls []turn.Item, err *apierror.Error) {
	err = v.Elements(func(i int, v jsontext.Field) *apierror.Error {
		if i >= d.rc.Limits.Items {
			return d.tooManyItems()
		}
		call, err := d.readCall(v)
		calls = append(calls, call)
		return err
	})
	return calls, err
}

func (d *decoder) readCall(at jsontext.Field) (turn.Item, *apierror.Error) {
	call, kind := turn.Item{Kind: turn.Call, Path: at.Path}, "function"
	err := at.Fields(func(key string, v jsontext.Field) (err *apierror.Error) {
		switch key {
		case "id":
			call.CallID, err = v.Text()
		case "type":
			if v.Str != "function" && v.Str != "custom" {
				err = apierror.Invalid(v.Path,
					"Only tool calls of the types \"function\" and \"custom\" are supported.")
			}
		case "function":
			err = d.readCalledFunction(v, &call)
		case "custom":
			kind = key
			err = d.readCalledCustom(v, &call)
		// Clients that put a stream's deltas together send their index back.
		case "index":
		default:
			err = callFields.Other(key, v, &d.ignored)
		}
		return err
	})

	switch {
	case err != nil:
	case call.CallID == "":
		err = apierror.Invalid(at.Path+".id", "A tool call has no id. Send the one of the reply.")
	case call.Name == "":
		err = apierror.Invalid(at.Path+"."+kind+".name", "A tool call has no function name. Send the one of the reply.")
	}
	return call, err
}

func (d *decoder) readCalledFunction(at jsontext.Field, call *turn.Item) *apierror.Error {
	return at.Fields(func(key string, v jsontext.Field) (err *apierror.Error) {
		switch key {
		case "name":
			call.Name, err = v.Text()
		case "arguments":
			call.Text, err = fields.ReadArguments(v)
		default:
			err = calledFields.Other(key, v, &d.ignored)
		}
		return err
	})
}

// readCalledCustom reads a call of a custom tool as the model made it.
func (d *decoder) readCalledCustom(at jsontext.Field, call *turn.Item) *apierror.Error {
	// A call without input is one with an empty text, not one without arguments.
	call.Text = fields.CustomArguments("")
	return at.Fields(func(key string, v jsontext.Field) (err *apierror.Error) {
		switch key {
		case "name":
			call.Name, err = v.Text()
		case "input":
			var text string
			text, err = v.Text()
			call.Text = fields.CustomArguments(text)
		default:
			err = calledCustomFields.Other(key, v, &d.ignored)
		}
		return err
	})
}

// readContent reads a message's content: a string, or an array of parts, whose
// texts are joined by [jsontext.Joined.AddPart].
func (d *decoder) readContent(v jsontext.Field, images string) (string, *apierror.Error) {
	if !v.IsArray() {
		if v.Type != gjson.String {
			return "", apierror.Invalid(v.Path, "The field %q must be a string or an array of parts.", v.Path)
		}
		return v.Str, nil
	}

	var text jsontext.Joined
	image := false // the last part was an image
	err := v.Elements(func(_ int, v jsontext.Field) *apierror.Error {
		// A part takes far more memory than it has bytes.
		d.parts++
		if d.parts > 2*d.rc.Limits.Items {
			return apierror.Invalid("messages",
				"The conversation has more than %d content parts.", 2*d.rc.Limits.Items)
		}

		part, isImage, err := d.readPart(v, images)
		// Within a line the placeholder would read as a part of the user's sentence.
		if isImage || image {
			text.NewLine()
		}
		image = isImage
		text.AddPart(part)
		return err
	})
	return text.String(), err
}

// imageMembers are the members of the types of pictures that may say what the picture is,
// the usual one first. Clients mix the forms of the three APIs.
var imageMembers = map[string][]string{
	"image_url":   {"image_url.url", "image_url"},
	"input_image": {"image_url", "image_url.url", "file_id"},
	"image": {
		"image", "image.url", "image_url", "image_url.url", "url", "data",
		"source.data", "source.url", "source.file_id",
	},
}

// readPart reads a content part as text. image reports that it stands for a picture, on
// a line of its own.
func (d *decoder) readPart(v jsontext.Field, images string) (text string, image bool, err *apierror.Error) {
	kind := v.Get("type").Str
	switch kind {
	// Clients of Responses that switch to this API keep the names of its parts.
	case "text", "input_text", "output_text":
		kind = "text"
	case "refusal":
	case "image_url", "input_image", "image":
		text, err := d.readImage(kind, v, images)
		return text, true, err
	default:
		text, err := fields.ReadUnknownPart(v, "text, refusal or image_url")
		return text, false, err
	}

	if err := partFields.Others(v, &d.ignored); err != nil {
		return "", false, err
	}
	part := v.Get(kind)
	if part.Type != gjson.String {
		return "", false, apierror.Invalid(v.Path+"."+kind, "The field %q must be a string.", v.Path+"."+kind)
	}
	return part.Str, false, nil
}

// readImage returns the text that stands for a picture.
func (d *decoder) readImage(kind string, v jsontext.Field, images string) (string, *apierror.Error) {
	if err := v.RequireText(imageMembers[kind]...); err != nil {
		return "", err
	}
	if images == turn.ImagesReject {
		return "", apierror.Invalid(v.Path, "This model cannot see images. Leave them out.")
	}

	if err := partFields.Others(v, &d.ignored); err != nil {
		return "", err
	}
	picture := jsontext.Field{Result: v.Get(kind), Path: v.Path + "." + kind}
	return turn.ImagePlaceholder, pictureFields.Others(picture, &d.ignored)
}
