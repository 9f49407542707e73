package enginesim

import (
	"regexp"
	"slices"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// message is one complete message of a prompt, as text.
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

// isTool says that the message is a tool's result.
func (m message) isTool() bool {
	switch m.role {
	case "user", "assistant", "system", "developer":
		return false
	}
	return true
}

// prompt is what the model sees: the messages before, and what the prompt has
// already begun of the model's own.
type prompt struct {
	messages []message
	tail     []harmony.Token // what follows the open <|start|>assistant
	open     bool            // there is an open <|start|>
	again    bool            // it has come before
}

// readPrompt reads tokens, never text: a user who writes <|end|> has written
// text.
func readPrompt(ids []harmony.Token) prompt {
	var p prompt
	for i := 0; i < len(ids); {
		if ids[i] != harmony.TokenStart {
			i++
			continue
		}
		body := indexFrom(ids, i+1, harmony.TokenMessage, harmony.TokenStart)
		if body < len(ids) && ids[body] == harmony.TokenStart {
			i = body
			continue
		}
		end := indexFrom(ids, body+1, harmony.TokenEnd, harmony.TokenCall, harmony.TokenReturn, harmony.TokenStart)
		if body >= len(ids) || end >= len(ids) {
			p.open, p.tail = true, withoutRole(ids[i+1:])
			return p
		}
		p.messages = append(p.messages, newMessage(show(ids[i+1:body]), show(ids[body+1:end])))
		i = end
		if ids[end] != harmony.TokenStart {
			i++
		}
	}
	return p
}

// indexFrom is the index of the first of some tokens at or after from,
// len(ids) where there is none.
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

// last is the index of the last user message, -1 if there is none.
func (p prompt) last() int {
	for i := len(p.messages) - 1; i >= 0; i-- {
		if p.messages[i].role == "user" {
			return i
		}
	}
	return -1
}

// results are the tool messages after message i.
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

// instructions are the client's own system and developer texts.
func (p prompt) instructions() []string {
	var texts []string
	for _, m := range p.messages {
		var text string
		switch m.role {
		case "system":
			text, _, _ = strings.Cut(m.body, "Knowledge cutoff:")
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

// beforeSection is text up to the last line that begins with mark.
func beforeSection(text, mark string) string {
	i := strings.LastIndex(text, mark)
	if i == 0 || i > 0 && text[i-1] == '\n' {
		return text[:i]
	}
	return text
}

// tool is a function that the prompt declares: its recipient and the
// TypeScript type of its argument, "" where it takes none.
type tool struct {
	name, argument string
	builtin        bool // the system message declares it
}

var (
	namespaceBegin = regexp.MustCompile(`(?m)^namespace (\S+) \{\n`)
	toolType       = regexp.MustCompile(`(?ms)^type (\S+) = \((?:_: (.*?))?\) => any;$`)
	pythonTitle    = regexp.MustCompile(`(?m)^## python$`)
)

// tools are in the order of the prompt.
func (p prompt) tools() []tool {
	var tools []tool
	for _, m := range p.messages {
		if m.role != "system" && m.role != "developer" {
			continue
		}
		for _, at := range namespaceBegin.FindAllStringSubmatchIndex(m.body, -1) {
			name, inside := m.body[at[2]:at[3]], m.body[at[1]-1:]
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

// builtin tells whether the system message declares the tool.
func (p prompt) builtin(name string) bool {
	return slices.ContainsFunc(p.tools(), func(t tool) bool { return t.builtin && t.name == name })
}

var formatTitle = regexp.MustCompile(`(?ms)^# Response Formats\n+## [^\n]*\n+(.*)`)

// responseSchema is the JSON Schema under "# Response Formats", "" where the
// prompt has none.
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
		return `{"type":"object"}`
	}
	return ""
}

// show is the text of ids, special tokens by their names.
func show(ids []harmony.Token) string {
	var d harmony.Decoder
	var b []byte
	for _, id := range ids {
		b, _ = d.Append(b, id)
	}
	return string(d.Flush(b))
}

func encode(text string) []harmony.Token { return harmony.AppendEncode(nil, text) }

// encodeHeader encodes text of our own, in which names of special tokens are
// special tokens.
func encodeHeader(text string) []harmony.Token { return harmony.AppendEncodeSpecial(nil, text) }
