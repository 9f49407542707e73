package enginesim

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Placeholders in a sequence: one filler word, or filler words without end.
const (
	fillerWord    = -1
	fillerForever = -2
)

// sequence is the planned output of the model.
type sequence struct {
	ids    []int32
	delays map[int]time.Duration // delay before the id at an index
}

func (p prompt) plan() sequence {
	// A prompt that is no conversation, such as a benchmark's random ids, needs an output of any length.
	if len(p.messages) == 0 {
		return sequence{ids: []int32{fillerForever}}
	}
	if s, ok := exactScript(p); ok {
		return sequence{ids: s}
	}
	return readScript(p).plan(p)
}

// planCandidates returns the possible outputs for a prompt, best first: the plan
// and, with a script of lines, its other forms.
func planCandidates(p prompt) []sequence {
	// A filter that goes on at another engine sends the reply so far as the end of the prompt.
	if continued := p.continuations(); len(continued) > 0 {
		return continued
	}

	plans := []sequence{p.plan()}
	if _, exact := exactScript(p); exact || len(p.messages) == 0 || len(p.begun) > 0 {
		return plans
	}

	s := readScript(p)
	for _, lead := range s.preludes() {
		for _, head := range s.headers(p) {
			plans = append(plans, s.withPauses(slices.Concat(lead, head), s.body()))
		}
	}
	return plans
}

// continuations returns what is left of the plans that begin with the reply in the
// prompt: another engine has begun it.
func (p prompt) continuations() []sequence {
	if len(p.reply) == 0 || p.settled == 0 {
		return nil
	}

	first := p
	first.messages, first.begun, first.reply = p.messages[:p.settled], nil, nil

	var rests []sequence
	for _, plan := range planCandidates(first) {
		if rest, ok := plan.behind(p.reply); ok {
			rests = append(rests, rest)
		}
	}
	return rests
}

// behind returns what is left of a sequence behind its beginning. ok is false if it
// has another beginning.
func (s sequence) behind(begin []harmony.Token) (rest sequence, ok bool) {
	n := len(begin)
	// Words of fillers are random, so any id may stand for one.
	for i, id := range begin {
		if i == len(s.ids) {
			return rest, false
		}
		if s.ids[i] == fillerForever {
			endsIt := func(id harmony.Token) bool { return id >= harmony.TokenStartOfText }
			if slices.ContainsFunc(begin[i:], endsIt) {
				return rest, false // somebody else has ended it
			}
			n = i
			break
		}

		if s.ids[i] != fillerWord && s.ids[i] != int32(id) {
			return rest, false
		}
	}

	rest.ids = s.ids[n:]
	for i, delay := range s.delays {
		if i >= n {
			if rest.delays == nil {
				rest.delays = map[int]time.Duration{}
			}
			rest.delays[i-n] = delay
		}
	}

	return rest, true
}

// exactScript returns the token script between @@ marks in the newest user message
// that has one. The number of tool results selects one of several scripts.
func exactScript(p prompt) ([]int32, bool) {
	for i, m := range slices.Backward(p.messages) {
		if m.role != "user" {
			continue
		}
		if parts := strings.Split(m.body, "@@"); len(parts) >= 3 {
			scripts := parts[1 : len(parts)-1]
			turn := len(p.results(i))
			if len(p.begun) > 0 {
				turn++ // what follows a reply that does not begin with the script
			}
			return scriptIDs(scripts[min(turn, len(scripts)-1)]), true
		}
	}
	return nil, false
}

// maxWords bounds the numbers in a script.
const maxWords = 1 << 20

// specialByName are the special tokens with names in scripts.
var specialByName = map[string]harmony.Token{
	"start":     harmony.TokenStart,
	"end":       harmony.TokenEnd,
	"message":   harmony.TokenMessage,
	"channel":   harmony.TokenChannel,
	"constrain": harmony.TokenConstrain,
	"return":    harmony.TokenReturn,
	"call":      harmony.TokenCall,
}

var scriptItem = regexp.MustCompile(`<(?:(start|end|message|channel|constrain|return|call|loop)|#(\d+)|rand (\d+))>`)

// scriptIDs parses a token script: <start> and the other special tokens, <#12345>
// for an id, <rand N> for N filler words, <loop> for filler words without end, and
// text.
func scriptIDs(s string) []int32 {
	var ids []int32
	for {
		at := scriptItem.FindStringSubmatchIndex(s)
		if at == nil {
			return appendSigned(ids, encode(s))
		}

		group := func(n int) string {
			if at[2*n] < 0 {
				return ""
			}
			return s[at[2*n]:at[2*n+1]]
		}

		ids = appendSigned(ids, encode(s[:at[0]]))
		switch name := group(1); {
		case name == "loop":
			ids = append(ids, fillerForever)
		case name != "":
			ids = append(ids, int32(specialByName[name]))
		case group(2) != "":
			if id, err := strconv.ParseInt(group(2), 10, 32); err == nil {
				ids = append(ids, int32(id))
			}
		default:
			n, err := strconv.Atoi(group(3))
			if err != nil || n > maxWords {
				n = maxWords
			}
			for range n {
				ids = append(ids, fillerWord)
			}
		}

		s = s[at[1]:]
	}
}

func appendSigned(dst []int32, ids []harmony.Token) []int32 {
	dst = slices.Grow(dst, len(ids))
	for _, id := range ids {
		dst = append(dst, int32(id))
	}
	return dst
}

// call is a tool call of a script.
type call struct{ to, args string }

// script is what the lines of the last user message request.
type script struct {
	think      string
	nothink    bool
	commentary string
	calls      []call
	text       *string       // final answer
	pause      time.Duration // before each word of WORDS
}

func readScript(p prompt) script {
	s := script{think: "The user wants a reply."}
	last := p.last()
	user := ""
	if last >= 0 {
		user = p.messages[last].body
	}

	s.readLines(user, p, last)
	results := p.results(last)

	// Without directives the model is one that a demo can show: it calls the tool for the weather.
	if len(s.calls) == 0 && len(results) == 0 && s.text == nil && asksWeather.MatchString(user) {
		for _, t := range p.tools() {
			if weatherTool.MatchString(t.name) {
				s.calls = []call{{t.name, smallestArgument(t.argument)}}
				break
			}
		}
	}

	if s.text == nil {
		text := "Hello there friend."
		if schema := p.responseSchema(); len(results) > 0 {
			text = "RESULT: " + results[len(results)-1].body
		} else if schema != "" {
			if value, err := smallestInstance(schema); err == nil {
				text = value
			}
		}
		s.text = &text
	}

	// One call for each turn: those whose results are there have been made.
	s.calls = s.calls[min(len(results), len(s.calls)):]
	if len(s.calls) > 0 {
		s.calls[0].args = fillFromResults(s.calls[0].args, results)
	}
	if len(results) > 0 {
		s.commentary = ""
	}

	return s
}

// repeatedMark begins a line that applies only to a prompt that was seen before.
const repeatedMark = "AGAIN "

var (
	asksWeather = regexp.MustCompile(`(?i)weather|temperature`)
	weatherTool = regexp.MustCompile(`(?i)weather`)
	remember    = regexp.MustCompile(`REMEMBER (\S+)`)
)

// readLines parses the lines that are directives. JSON takes precedence over SAY
// and similar lines, and SAY over WORDS.
func (s *script) readLines(user string, p prompt, last int) {
	var say, js, words *string
	for line := range strings.SplitSeq(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(user), "\n") {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, repeatedMark); ok && p.repeated {
			line = strings.TrimSpace(rest)
		}

		word, value := line, ""
		if i := strings.IndexFunc(line, unicode.IsSpace); i >= 0 {
			word, value = line[:i], strings.TrimSpace(line[i:])
		}

		switch {
		case line == "NOTHINK":
			s.nothink = true
		case line == "RECALL":
			say = ptr("RECALL:" + strings.Join(p.remembered(), ","))
		case line == "LAST_ASSISTANT":
			say = ptr("LAST:" + p.lastAnswer(last))
		case line == "ECHO_TOOLS":
			say = ptr("TOOLS:" + strings.Join(p.toolNames(), ","))
		case line == "ECHO_SYSTEM":
			say = ptr("SYSTEM:" + strings.Join(p.instructions(), "|"))
		case value == "":
		case word == "SAY", word == "REFUSE":
			say = &value
		case word == "JSON":
			js = &value
		case word == "WORDS":
			words = &value
		case word == "THINK":
			s.think = value
		case word == "COMMENTARY":
			s.commentary = value
		case word == "CALL":
			s.calls = append(s.calls, readCall(value, p))
		}
	}

	switch {
	case js != nil:
		s.text = js
	case say != nil:
		s.text = say
	case words != nil:
		s.words(*words)
	}
}

func ptr(s string) *string { return &s }

func readCall(value string, p prompt) call {
	to, args, _ := strings.Cut(value, " ")
	args = strings.TrimSpace(args)
	if to == "python" && p.builtin(to) {
		return call{to, args}
	}
	if !strings.Contains(to, ".") {
		to = "functions." + to
	}
	if args == "" {
		args = "{}"
	}
	return call{to, args}
}

var resultMember = regexp.MustCompile(`\$\{(\w+)\}`)

// fillFromResults replaces ${name} in a call's arguments by the member name of the
// last tool result that has it.
func fillFromResults(args string, results []message) string {
	return resultMember.ReplaceAllStringFunc(args, func(mark string) string {
		name := resultMember.FindStringSubmatch(mark)[1]
		for _, r := range slices.Backward(results) {
			if v := gjson.Get(r.body, name); v.Exists() {
				return v.String()
			}
		}
		return mark
	})
}

// words parses "n [ms]".
func (s *script) words(value string) {
	fields := strings.Fields(value)
	n, err := strconv.Atoi(fields[0])
	if err != nil {
		return
	}

	var b strings.Builder
	// The bound keeps a mistake in a test from filling the memory.
	for i := range min(n, maxWords) {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString("w" + strconv.Itoa(i+1))
	}
	s.text = ptr(b.String())

	// A pause above half a second would only make a test slow.
	if len(fields) > 1 {
		if ms, err := strconv.ParseFloat(fields[1], 64); err == nil && ms > 0 {
			s.pause = time.Duration(min(ms, 500) * float64(time.Millisecond))
		}
	}
}

func (p prompt) remembered() []string {
	var found []string
	for _, m := range p.messages {
		if m.role == "user" {
			for _, x := range remember.FindAllStringSubmatch(m.body, -1) {
				found = append(found, x[1])
			}
		}
	}
	return found
}

// lastAnswer returns the last final text before message i, or else the last
// preamble.
func (p prompt) lastAnswer(i int) string {
	answer, final := "", false
	for _, m := range p.messages[:max(i, 0)] {
		if m.role != "assistant" || m.to != "" || m.channel == harmony.ChannelAnalysis {
			continue
		}
		// A preamble counts only while there is no final text.
		isFinal := m.channel == harmony.ChannelFinal || m.channel == ""
		if isFinal || !final {
			answer, final = m.body, isFinal
		}
	}
	return answer
}

func (p prompt) toolNames() []string {
	tools := p.tools()
	names := make([]string, 0, len(tools))
	for _, t := range tools {
		names = append(names, strings.TrimPrefix(t.name, "functions."))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// plan returns the script as tokens. If the prompt has begun the reply, the first
// form with that beginning is continued.
func (s script) plan(p prompt) sequence {
	body := s.body()

	// Nothing is begun: the best form from its beginning.
	if len(p.begun) == 0 {
		var begin []harmony.Token
		if !p.open {
			begin = encodeHeader("<|start|>assistant")
		}
		return s.withPauses(slices.Concat(begin, s.preludes()[0], s.headers(p)[0]), body)
	}

	// The filter has begun the reply, for instance with a header that forces a
	// call. The form that begins so goes on there.
	for _, lead := range s.preludes() {
		for _, head := range s.headers(p) {
			before := slices.Concat(lead, head)
			if whole := slices.Concat(before, body); hasPrefix(whole, p.begun) {
				if len(p.begun) <= len(before) {
					return s.withPauses(before[len(p.begun):], body)
				}
				return s.withPauses(nil, body[len(p.begun)-len(before):])
			}
		}
	}

	if hasPrefix(body, p.begun) {
		return s.withPauses(nil, body[len(p.begun):])
	}

	return s.afterHeader(p, body)
}

func hasPrefix(ids, prefix []harmony.Token) bool {
	return len(ids) >= len(prefix) && slices.Equal(ids[:len(prefix)], prefix)
}

// body returns the content of the last message with its end token.
func (s script) body() []harmony.Token {
	if len(s.calls) > 0 {
		return append(encode(s.calls[0].args), harmony.TokenCall)
	}
	return append(encode(*s.text), harmony.TokenReturn)
}

// preludes returns what may precede the last message, best first.
func (s script) preludes() [][]harmony.Token {
	analysis := encodeHeader("<|channel|>analysis<|message|>")
	analysis = harmony.AppendEncode(analysis, s.think)
	analysis = append(analysis, encodeHeader("<|end|><|start|>assistant")...)

	// The other form is for grammars that require it.
	if s.nothink {
		return [][]harmony.Token{nil, analysis}
	}
	return [][]harmony.Token{analysis, nil}
}

// callForms is how many forms of the header of a call there are. gpt-oss uses the first three,
// and the last is that of OpenAI's library.
const callForms = 4

// headers returns the possible headers of the last message, best first.
func (s script) headers(p prompt) [][]harmony.Token {
	texts := []string{
		"<|channel|>final<|message|>",
		"<|channel|>final <|constrain|>json<|message|>",
		"<|channel|>final json<|message|>",
	}

	// Grammars of engines and of the filter allow different ones of these forms.
	if len(s.calls) > 0 {
		to := s.calls[0].to
		forms := [callForms]string{
			"<|channel|>commentary to=" + to + " <|constrain|>json<|message|>",
			" to=" + to + "<|channel|>commentary <|constrain|>json<|message|>",
			"<|channel|>commentary to=" + to + " json<|message|>",
			" to=" + to + "<|channel|>commentary json<|message|>",
		}
		texts = slices.Concat(forms[p.form:], forms[:p.form])
		if p.builtin(to) {
			texts = []string{
				"<|channel|>analysis to=" + to + " code<|message|>",
				" to=" + to + "<|channel|>analysis code<|message|>",
			}
		}
	} else if p.responseSchema() != "" {
		// With a response schema the model marks its answer as JSON.
		texts = append(texts[1:], texts[0])
	}

	heads := make([][]harmony.Token, len(texts), 2*len(texts))
	for i, text := range texts {
		heads[i] = encodeHeader(text)
	}

	if len(s.calls) == 0 || s.commentary == "" {
		return heads
	}

	// A grammar may have no place for a preamble, so the forms without it follow.
	preamble := encodeHeader("<|channel|>commentary<|message|>")
	preamble = harmony.AppendEncode(preamble, s.commentary)
	preamble = append(preamble, encodeHeader("<|end|><|start|>assistant")...)
	for i, head := range heads {
		heads = append(heads, head)
		heads[i] = slices.Concat(preamble, head)
	}
	return heads
}

// afterHeader continues a header in the prompt that no form of the script has.
func (s script) afterHeader(p prompt, body []harmony.Token) sequence {
	end := slices.Index(p.begun, harmony.TokenMessage)
	if end < 0 {
		return s.withPauses(slices.Concat(s.preludes()[0], s.headers(p)[0]), body)
	}

	header := newMessage("assistant"+show(p.begun[:end]), "")
	switch {
	case header.to != "":
		// The header forces a call, whatever the script says.
		args := encode(s.argumentsFor(header.to, p))
		return sequence{ids: appendSigned(nil, append(args, harmony.TokenCall))}

	case header.channel == harmony.ChannelAnalysis:
		thought := append(encode(s.think), encodeHeader("<|end|><|start|>assistant")...)
		return s.withPauses(slices.Concat(thought, s.headers(p)[0]), body)
	}

	return s.withPauses(nil, body)
}

func (s script) argumentsFor(to string, p prompt) string {
	for _, c := range s.calls {
		if c.to == to {
			return c.args
		}
	}

	// A forced call that the script does not have gets the smallest arguments of its tool.
	for _, t := range p.tools() {
		if t.name == to {
			return smallestArgument(t.argument)
		}
	}
	return "{}"
}

// withPauses joins the last content to what precedes it, and adds the script's
// pause before each word of the content.
func (s script) withPauses(before, body []harmony.Token) sequence {
	seq := sequence{ids: appendSigned(appendSigned(nil, before), body)}
	if s.pause == 0 || len(s.calls) > 0 {
		return seq
	}

	seq.delays = map[int]time.Duration{}
	for i, id := range body {
		if strings.HasPrefix(strings.TrimLeft(show([]harmony.Token{id}), " "), "w") {
			seq.delays[len(before)+i] = s.pause
		}
	}

	return seq
}
