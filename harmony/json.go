package harmony

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// The JSON of a conversation, in the format of openai-harmony.
type (
	jsonConversation struct {
		Messages []jsonMessage `json:"messages"`
	}
	jsonMessage struct {
		Role        Role        `json:"role"`
		Name        string      `json:"name,omitempty"`
		Content     jsonContent `json:"content"`
		Channel     string      `json:"channel,omitempty"`
		Recipient   string      `json:"recipient,omitempty"`
		ContentType string      `json:"content_type,omitempty"`
	}
	jsonContent []Content
	jsonText    struct {
		Type string  `json:"type"`
		Text *string `json:"text"`
	}
	jsonSystem struct {
		Type            string                   `json:"type"`
		Identity        string                   `json:"model_identity,omitempty"`
		Effort          string                   `json:"reasoning_effort,omitempty"`
		StartDate       string                   `json:"conversation_start_date,omitempty"`
		KnowledgeCutoff string                   `json:"knowledge_cutoff,omitempty"`
		Channels        *jsonChannels            `json:"channel_config,omitempty"`
		Tools           map[string]jsonNamespace `json:"tools,omitempty"`
	}
	jsonChannels struct {
		Valid    []string `json:"valid_channels"`
		Required bool     `json:"channel_required"`
	}
	jsonDeveloper struct {
		Type            string                   `json:"type"`
		Instructions    string                   `json:"instructions,omitempty"`
		Tools           map[string]jsonNamespace `json:"tools,omitempty"`
		ResponseFormats []jsonFormat             `json:"response_formats,omitempty"`
	}
	jsonNamespace struct {
		Name        string     `json:"name"`
		Description string     `json:"description,omitempty"`
		Tools       []jsonTool `json:"tools"`
	}
	jsonTool struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters,omitempty"`
	}
	jsonFormat struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Schema      json.RawMessage `json:"schema"`
	}
)

// UnmarshalConversation parses a conversation in openai-harmony's JSON format:
//
//	{"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]}
//
// The content may also be a string instead of a list. System and developer
// content have the types system_content and developer_content. Developer
// content may have response_formats, a list of objects with name, description
// and schema, which the reference does not have. Empty strings are treated as
// absent.
func UnmarshalConversation(data []byte) ([]Message, error) {
	// A pointer tells a missing list, which is an error, from an empty one.
	var c struct {
		Messages *[]jsonMessage `json:"messages"`
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, fmt.Errorf("reading a conversation: %w", err)
	}
	if c.Messages == nil {
		return nil, errors.New(`reading a conversation: it has no "messages"`)
	}

	msgs := make([]Message, len(*c.Messages))
	for i, m := range *c.Messages {
		if m.Content == nil {
			return nil, fmt.Errorf(`reading a conversation: message %d has no "content"`, i)
		}

		msgs[i] = Message{
			Role: m.Role, Name: m.Name, Recipient: m.Recipient,
			Channel: m.Channel, ContentType: m.ContentType, Content: m.Content,
		}

		if !m.Role.known() {
			return nil, fmt.Errorf("reading a conversation: message %d: %w", i, unknownRole(m.Role))
		}
	}
	return msgs, nil
}

// MarshalConversation returns a conversation in the format that
// [UnmarshalConversation] parses. It does not check whether the conversation
// can be rendered.
func MarshalConversation(msgs []Message) ([]byte, error) {
	c := jsonConversation{Messages: make([]jsonMessage, len(msgs))}
	for i, m := range msgs {
		c.Messages[i] = jsonMessage{
			Role: m.Role, Name: m.Name, Recipient: m.Recipient,
			Channel: m.Channel, ContentType: m.ContentType, Content: m.Content,
		}
	}

	var b bytes.Buffer
	e := json.NewEncoder(&b)

	// Control tokens have < and > in their spelling, which people read in this JSON.
	e.SetEscapeHTML(false)
	if err := e.Encode(c); err != nil {
		return nil, fmt.Errorf("writing a conversation: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), nil
}

// UnmarshalJSON parses a string or a list of contents.
func (c *jsonContent) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		var s string
		if err := json.Unmarshal(data, &s); err != nil {
			return err
		}
		*c = jsonContent{Text(s)}
		return nil
	}

	var parts []json.RawMessage
	if err := json.Unmarshal(data, &parts); err != nil {
		return err
	}

	*c = make(jsonContent, len(parts))
	for i, part := range parts {
		var err error
		if (*c)[i], err = unmarshalContent(part); err != nil {
			return err
		}
	}
	return nil
}

func unmarshalContent(data []byte) (Content, error) {
	var kind struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(data, &kind); err != nil {
		return nil, err
	}

	switch kind.Type {
	case "text":
		var t jsonText
		if err := json.Unmarshal(data, &t); err != nil {
			return nil, err
		}
		if t.Text == nil {
			return nil, errors.New(`text content has no "text"`)
		}
		return Text(*t.Text), nil
	case "system_content":
		var s jsonSystem
		if err := json.Unmarshal(data, &s); err != nil {
			return nil, err
		}
		return s.content()
	case "developer_content":
		var d jsonDeveloper
		if err := json.Unmarshal(data, &d); err != nil {
			return nil, err
		}
		return d.content()
	}
	return nil, fmt.Errorf("content of type %q: use text, system_content or developer_content", kind.Type)
}

// jsonEfforts maps the efforts in the reference's JSON.
var jsonEfforts = map[string]Effort{"": "", "Low": EffortLow, "Medium": EffortMedium, "High": EffortHigh}

func (s *jsonSystem) content() (Content, error) {
	effort, ok := jsonEfforts[s.Effort]
	if !ok {
		return nil, fmt.Errorf("reasoning_effort %q: use Low, Medium or High", s.Effort)
	}

	tools, err := namespaces(s.Tools)
	c := &SystemContent{
		Identity: s.Identity, KnowledgeCutoff: s.KnowledgeCutoff, StartDate: s.StartDate,
		Effort: effort, Tools: tools,
	}

	if s.Channels != nil {
		c.Channels, c.ChannelRequired = s.Channels.Valid, s.Channels.Required
	}
	return c, err
}

func (d *jsonDeveloper) content() (Content, error) {
	tools, err := namespaces(d.Tools)
	c := &DeveloperContent{Instructions: d.Instructions, Tools: tools}

	for _, f := range d.ResponseFormats {
		c.ResponseFormats = append(c.ResponseFormats, ResponseFormat(f))
	}

	return c, err
}

func namespaces(byName map[string]jsonNamespace) ([]Namespace, error) {
	if len(byName) == 0 {
		return nil, nil
	}

	list := make([]Namespace, 0, len(byName))

	// In an order of their own: equal conversations must become equal tokens.
	for _, key := range slices.Sorted(maps.Keys(byName)) {
		ns := byName[key]
		if ns.Name != key {
			return nil, fmt.Errorf("tools: the namespace under %q is named %q: use one name", key, ns.Name)
		}

		tools := make([]Tool, len(ns.Tools))
		for i, t := range ns.Tools {
			tools[i] = Tool(t)
		}
		list = append(list, Namespace{Name: ns.Name, Description: ns.Description, Tools: tools})
	}
	return list, nil
}

// MarshalJSON returns a list of contents.
func (c jsonContent) MarshalJSON() ([]byte, error) {
	parts := make([]any, len(c))
	for i, part := range c {
		switch part := part.(type) {
		case Text:
			s := string(part)
			parts[i] = jsonText{"text", &s}
		case *SystemContent:
			if part != nil {
				parts[i] = part.json()
			}
		case *DeveloperContent:
			if part != nil {
				parts[i] = part.json()
			}
		}

		// A nil pointer, or a type that this package does not have.
		if parts[i] == nil {
			return nil, unknownContent(part)
		}
	}

	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(parts)
	return b.Bytes(), err
}

func (s *SystemContent) json() jsonSystem {
	j := jsonSystem{
		Type: "system_content", Identity: s.Identity, KnowledgeCutoff: s.KnowledgeCutoff,
		StartDate: s.StartDate, Tools: jsonNamespaces(s.Tools),
	}

	for name, effort := range jsonEfforts {
		if effort == s.Effort {
			j.Effort = name
		}
	}

	if len(s.Channels) > 0 {
		j.Channels = &jsonChannels{s.Channels, s.ChannelRequired}
	}
	return j
}

func (d *DeveloperContent) json() jsonDeveloper {
	j := jsonDeveloper{Type: "developer_content", Instructions: d.Instructions, Tools: jsonNamespaces(d.Tools)}
	for _, f := range d.ResponseFormats {
		j.ResponseFormats = append(j.ResponseFormats, jsonFormat(f))
	}
	return j
}

func jsonNamespaces(list []Namespace) map[string]jsonNamespace {
	if len(list) == 0 {
		return nil
	}

	byName := make(map[string]jsonNamespace, len(list))
	for _, ns := range list {
		tools := make([]jsonTool, len(ns.Tools))
		for i, t := range ns.Tools {
			tools[i] = jsonTool(t)
		}
		byName[ns.Name] = jsonNamespace{ns.Name, ns.Description, tools}
	}
	return byName
}
