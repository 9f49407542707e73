package enginesim

import (
	"regexp"
	"slices"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// message is a complete message of a prompt as text.
type message struct {
	role, channel, to string
	body              string
}

var (
	channelMark   = regexp.MustCompile(`<\|channel\|>(\w+)`)
	recipientMark = regexp.MustCompile(`to=([^\s<]+)`)
)

func newMessage(header, body string) message {
	m := message{body: body}
	header = strings.TrimSpace(header)
	m.role = header
	if i := strings.IndexAny(header, " \n<"); i >= 0 {
		m.role = header[:i]
	}
	if found := channelMark.FindStringSubmatch(header); found != nil {
		m.channel = found[1]
	}
	if found := recipientMark.FindStringSubmatch(header); found != nil {
		m.to = found[1]
	}
	return m
}

// isTool reports whether the message is a tool's result.
func (m message) isTool() bool {
	switch m.role {
	case "user", "assistant", "system", "developer":
		return false
	}
	return true
}

// prompt is a parsed prompt: complete messages, and the beginning of the model's
// reply.
type prompt struct {
	messages []message
	begun    []harmony.Token // tokens after the open <|start|>assistant
	open     bool            // the prompt ends with an open <|start|>
	repeated bool            // the prompt was seen before
	form     int             // of the headers of calls, among those that models use
	// the model's reply so far: what follows the last message that is not the assistant's
	reply   []harmony.Token
	settled int // messages before the reply
}

// readPrompt parses tokens, not text: a user's text "<|end|>" is not a special
// token.
func readPrompt(ids []harmony.Token) (p prompt) {
	// The reply is known only at the end, and the loop below has several ends.
	replyAt := len(ids)
	defer func() {
		if replyAt < len(ids) && ids[replyAt] == harmony.TokenStart {
			p.reply = withoutRole(ids[replyAt+1:])
		}
	}()

	for i := 0; i < len(ids); {
		// Ids between messages belong to nothing, as for the model.
		if ids[i] != harmony.TokenStart {
			i++
			continue
		}

		body := indexFrom(ids, i+1, harmony.TokenMessage, harmony.TokenStart)
		// A start inside a header begins another message. The first one has no text.
		if body < len(ids) && ids[body] == harmony.TokenStart {
			i = body
			continue
		}

		end := indexFrom(ids, body+1, harmony.TokenEnd, harmony.TokenCall, harmony.TokenReturn, harmony.TokenStart)
		// No end: this is the message that the model goes on with.
		if body >= len(ids) || end >= len(ids) {
			p.open, p.begun = true, withoutRole(ids[i+1:])
			return p
		}

		p.messages = append(p.messages, newMessage(show(ids[i+1:body]), show(ids[body+1:end])))
		i = end
		// The beginning of the next message ends this one too, and must be read again.
		if ids[end] != harmony.TokenStart {
			i++
		}
		// What the assistant has written since the last other message may be
		// a reply that another engine has begun.
		if p.messages[len(p.messages)-1].role != "assistant" {
			replyAt, p.settled = i, len(p.messages)
		}
	}

	return p
}

// indexFrom returns the index of the first of some tokens at or after from,
// len(ids) if there is none.
func indexFrom(ids []harmony.Token, from int, tokens ...harmony.Token) int {
	for i := from; i < len(ids); i++ {
		if slices.Contains(tokens, ids[i]) {
			return i
		}
	}
	return len(ids)
}

func withoutRole(ids []harmony.Token) []harmony.Token {
	role := encode("assistant")
	if len(ids) >= len(role) && slices.Equal(ids[:len(role)], role) {
		return ids[len(role):]
	}
	return ids
}

// last returns the index of the last user message, -1 if there is none.
func (p prompt) last() int {
	for i := len(p.messages) - 1; i >= 0; i-- {
		if p.messages[i].role == "user" {
			return i
		}
	}
	return -1
}

// results returns the tool messages after message i.
func (p prompt) results(i int) []message {
	var results []message
	for _, m := range p.messages[i+1:] {
		if m.isTool() {
			results = append(results, m)
		}
	}
	return results
}

var instructionsTitle = regexp.MustCompile(`^# Instructions\n+`)

// instructions returns the client's system and developer texts.
func (p prompt) instructions() []string {
	var texts []string
	for _, m := range p.messages {
		var text string
		switch m.role {
		case "system":
			text, _, _ = strings.Cut(m.body, "Knowledge cutoff:")
			// What the template writes itself is no instruction of the client.
			text = strings.ReplaceAll(text, "You are ChatGPT, a large language model trained by OpenAI.", "")

		case "developer":
			text = beforeSection(beforeSection(m.body, "# Tools\n\n## "), "# Response Formats\n")
			text = instructionsTitle.ReplaceAllString(text, "")
		}

		if text = strings.TrimSpace(text); text != "" {
			texts = append(texts, text)
		}
	}
	return texts
}

// beforeSection returns text before the last line that begins with mark.
func beforeSection(text, mark string) string {
	i := strings.LastIndex(text, mark)
	if i == 0 || i > 0 && text[i-1] == '\n' {
		return text[:i]
	}
	return text
}

// tool is a function in the prompt: its recipient and the TypeScript type of its
// argument, "" if it has none.
type tool struct {
	name, argument string
	builtin        bool // declared in the system message
}

var (
	namespaceBegin = regexp.MustCompile(`(?m)^namespace (\S+) \{\n`)
	toolType       = regexp.MustCompile(`(?ms)^type (\S+) = \((?:_: (.*?))?\) => any;$`)
	pythonTitle    = regexp.MustCompile(`(?m)^## python$`)
)

// tools returns the tools in the order of the prompt.
func (p prompt) tools() []tool {
	var tools []tool
	for _, m := range p.messages {
		if m.role != "system" && m.role != "developer" {
			continue
		}
		for _, at := range namespaceBegin.FindAllStringSubmatchIndex(m.body, -1) {
			name, inside := m.body[at[2]:at[3]], m.body[at[1]-1:]
			// Text of a client may begin like a namespace and have no end.
			end := strings.Index(inside, "\n} // namespace "+name)
			if end < 0 {
				continue
			}
			for _, t := range toolType.FindAllStringSubmatch(inside[:end+1], -1) {
				tools = append(tools, tool{name + "." + t[1], t[2], m.role == "system"})
			}
		}

		if m.role == "system" && pythonTitle.MatchString(m.body) {
			tools = append(tools, tool{name: "python", builtin: true})
		}
	}
	return tools
}

// builtin reports whether the system message declares the tool.
func (p prompt) builtin(name string) bool {
	return slices.ContainsFunc(p.tools(), func(t tool) bool { return t.builtin && t.name == name })
}

var formatTitle = regexp.MustCompile(`(?ms)^# Response Formats\n+## [^\n]*\n+(.*)`)

// responseSchema returns the JSON Schema under "# Response Formats", "" if there is
// none.
func (p prompt) responseSchema() string {
	for _, m := range slices.Backward(p.messages) {
		if m.role != "developer" && m.role != "system" {
			continue
		}
		found := formatTitle.FindStringSubmatch(m.body)
		if found == nil {
			continue
		}
		for line := range strings.Lines(found[1]) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "{") && isJSON(line) {
				return line
			}
		}
		// The section is there, and holds no schema: any object.
		return `{"type":"object"}`
	}
	return ""
}

// show returns the text of ids, with the names of special tokens.
func show(ids []harmony.Token) string {
	var d harmony.Decoder
	var b []byte
	for _, id := range ids {
		// A decoder keeps the bytes of a character that several tokens share.
		b, _ = d.Append(b, id)
	}
	return string(d.Flush(b))
}

func encode(text string) []harmony.Token { return harmony.AppendEncode(nil, text) }

// encodeHeader encodes text in which names of special tokens stand for the tokens.
func encodeHeader(text string) []harmony.Token { return harmony.AppendEncodeSpecial(nil, text) }
