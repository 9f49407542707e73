package render

import (
	"strconv"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

// merged is one chunk of Chat Completions that says what several say: vLLM's answer to
// a chunk has one. A text is kept as it stands between the quotes of JSON. The members are
// taken by name: one that package chat writes, and that is not here, is lost.
type merged struct {
	id      string
	created int64
	model   string
	index   int
	choice  bool // there is one
	usage   bool // the usage is wanted

	// Raw values of the object: "" where there is none. prompt is prompt_token_ids, counts the
	// usage.
	fingerprint string
	prompt      string
	counts      string

	// The delta: texts are content, and the fields of reasoning.
	role  string
	texts []mergedText
	calls []mergedCall
	// callAt has the places of the calls by their index: a chunk can have thousands of calls.
	callAt map[string]int

	// The rest of the choice: entries and ids with commas between, raw values, which are ""
	// while the choice goes on.
	logprobs []byte
	tokens   []byte
	finish   string
	stop     string
}

type mergedText struct {
	name string
	text []byte
}

type mergedCall struct {
	index     string
	head      string // raw members id and type, each with a comma
	name      string // raw
	arguments []byte
}

// add adds a chunk.
func (m *merged) add(chunk gjson.Result) {
	// The last chunk that has a member counts: an earlier one may have been made before it was known.
	if v := chunk.Get("system_fingerprint"); v.Exists() {
		m.fingerprint = v.Raw
	}
	if v := chunk.Get("prompt_token_ids"); v.Exists() {
		m.prompt = v.Raw
	}
	if v := chunk.Get("usage"); v.IsObject() {
		m.counts = v.Raw
	}

	choice := chunk.Get("choices.0")
	choice.Get("delta").ForEach(func(key, v gjson.Result) bool {
		switch {
		case key.Str == "role":
			m.role = v.Raw
		case key.Str == "tool_calls":
			v.ForEach(func(_, call gjson.Result) bool {
				m.addCall(call)
				return true
			})
		// A null content, as in the chunk with the role, is no text.
		case v.Type == gjson.String:
			m.addText(key.Str, inside(v))
		}
		return true
	})

	m.logprobs = appendElements(m.logprobs, choice.Get("logprobs.content"))
	m.tokens = appendElements(m.tokens, choice.Get("token_ids"))
	if v := choice.Get("finish_reason"); v.Type == gjson.String {
		m.finish = v.Raw
	}
	if v := choice.Get("matched_stop"); v.Exists() {
		m.stop = v.Raw
	}
}

func (m *merged) addText(name, text string) {
	for i := range m.texts {
		if m.texts[i].name == name {
			m.texts[i].text = append(m.texts[i].text, text...)
			return
		}
	}
	m.texts = append(m.texts, mergedText{name, []byte(text)})
}

// addCall adds a call, or a piece of the arguments of the call with the same index.
func (m *merged) addCall(v gjson.Result) {
	index := v.Get("index").Raw
	arguments := inside(v.Get("function.arguments"))
	if i, ok := m.callAt[index]; ok {
		m.calls[i].arguments = append(m.calls[i].arguments, arguments...)
		return
	}

	// A call that began in an earlier chunk has neither an id nor a name here.
	call := mergedCall{index: index, name: v.Get("function.name").Raw, arguments: []byte(arguments)}
	if id := v.Get("id"); id.Exists() {
		call.head = `"id":` + id.Raw + `,"type":"function",`
	}
	if m.callAt == nil {
		m.callAt = map[string]int{}
	}
	m.callAt[index] = len(m.calls)
	m.calls = append(m.calls, call)
}

// inside returns what is between the quotes of a string.
func inside(v gjson.Result) string {
	if v.Type != gjson.String {
		return ""
	}
	return v.Raw[1 : len(v.Raw)-1]
}

// appendElements appends the elements of an array to others, with commas between.
func appendElements(dst []byte, array gjson.Result) []byte {
	array.ForEach(func(_, v gjson.Result) bool {
		if len(dst) > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, v.Raw...)
		return true
	})
	return dst
}

// append appends the chunk as JSON.
func (m *merged) append(dst []byte) []byte {
	dst = jsontext.AppendString(append(dst, `{"id":`...), m.id)
	dst = strconv.AppendInt(append(dst, `,"object":"chat.completion.chunk","created":`...), m.created, 10)
	dst = jsontext.AppendString(append(dst, `,"model":`...), m.model)
	dst = appendMember(dst, `,"system_fingerprint":`, m.fingerprint)
	dst = append(dst, `,"choices":[`...)
	if m.choice {
		dst = m.appendChoice(dst)
	}
	dst = append(dst, ']')
	dst = appendMember(dst, `,"prompt_token_ids":`, m.prompt)
	// vLLM's answer has a usage of null where the chunk had none.
	if !m.usage || m.counts == "" {
		m.counts = "null"
	}
	return append(appendMember(dst, `,"usage":`, m.counts), '}')
}

func (m *merged) appendChoice(dst []byte) []byte {
	dst = strconv.AppendInt(append(dst, `{"index":`...), int64(m.index), 10)

	dst = append(dst, `,"delta":{`...)
	// Any of the members may be the first: each is written with a comma.
	first := len(dst)
	dst = appendMember(dst, `,"role":`, m.role)
	for _, t := range m.texts {
		dst = jsontext.AppendString(append(dst, ','), t.name)
		dst = append(append(append(dst, `:"`...), t.text...), '"')
	}
	if len(m.calls) > 0 {
		dst = m.appendCalls(append(dst, `,"tool_calls":[`...))
	}
	if len(dst) > first {
		dst = append(dst[:first], dst[first+1:]...) // the first comma
	}
	dst = append(dst, '}')

	if len(m.logprobs) > 0 {
		dst = append(append(append(dst, `,"logprobs":{"content":[`...), m.logprobs...), `],"refusal":null}`...)
	}
	if m.finish == "" {
		m.finish = "null"
	}
	dst = appendMember(dst, `,"finish_reason":`, m.finish)
	dst = appendMember(dst, `,"matched_stop":`, m.stop)
	if len(m.tokens) > 0 {
		dst = append(append(append(dst, `,"token_ids":[`...), m.tokens...), ']')
	}
	return append(dst, '}')
}

func (m *merged) appendCalls(dst []byte) []byte {
	for i, c := range m.calls {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(append(dst, `{"index":`...), c.index...), ',')
		dst = append(append(dst, c.head...), `"function":{`...)
		if c.name != "" {
			dst = append(append(append(dst, `"name":`...), c.name...), ',')
		}
		dst = append(append(append(dst, `"arguments":"`...), c.arguments...), `"}}`...)
	}
	return append(dst, ']')
}

// appendMember appends a member of an object, unless it has no value.
func appendMember(dst []byte, name, raw string) []byte {
	if raw == "" {
		return dst
	}
	return append(append(dst, name...), raw...)
}
