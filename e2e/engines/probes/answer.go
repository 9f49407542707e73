package probes

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// reading is the reading of one answer.
type reading struct {
	engine Engine
	probe  *probe
	id     string       // of the request
	prompt int          // tokens
	begun  func() error // called once after the first message

	lines   []string                // of the answer, each once
	outputs map[int][]harmony.Token // by choice
	texts   map[int]string          // by choice
}

// read reads an answer to its end.
func (c *client) read(resp *http.Response, r *reading) (string, error) {
	defer resp.Body.Close()
	r.outputs, r.texts = map[int][]harmony.Token{}, map[int]string{}

	kind := resp.Header.Get("content-type")
	head := strings.TrimSpace(strconv.Itoa(resp.StatusCode) + " " + kind)
	var err error
	switch {
	case strings.HasPrefix(kind, "text/event-stream"):
		err = r.readEvents(resp.Body)
	case r.engine.service() != nil && resp.StatusCode == http.StatusOK:
		err = r.readFrames(resp)
	default:
		err = r.readWhole(resp.Body)
	}
	// The order in which choices end is the engine's.
	if len(r.outputs) > 1 {
		slices.Sort(r.lines)
	}
	return head + "\n" + r.text(), err
}

// text returns the lines of the answer, and what the model has said.
func (r *reading) text() string {
	lines := r.lines
	// llama.cpp's model has no player: its tokens are random.
	if r.probe.vague || r.engine.Kind == llamacpp {
		return joined(lines)
	}
	for _, i := range slices.Sorted(maps.Keys(r.outputs)) {
		lines = append(lines, fmt.Sprintf("tokens %d: %s", i, spelled(r.outputs[i])))
	}
	for _, i := range slices.Sorted(maps.Keys(r.texts)) {
		lines = append(lines, fmt.Sprintf("text %d: %q", i, r.texts[i]))
	}
	return joined(lines)
}

func joined(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return strings.Join(lines, "\n") + "\n"
}

// spelled spells tokens, with the names of special ones.
func spelled(ids []harmony.Token) string {
	var d harmony.Decoder
	var b []byte
	for _, id := range ids {
		if name, special := harmony.SpecialName(id); special {
			b = append(d.Flush(b), name...)
			continue
		}
		b, _ = d.Append(b, id)
	}
	return strconv.Quote(string(d.Flush(b)))
}

// add adds a line, unless the answer has it already.
func (r *reading) add(line string) error {
	if !slices.Contains(r.lines, line) {
		r.lines = append(r.lines, line)
	}
	if r.begun == nil {
		return nil
	}
	begun := r.begun
	r.begun = nil
	return begun()
}

func (r *reading) readWhole(body io.Reader) error {
	b, err := io.ReadAll(body)
	if err != nil {
		return r.add("cut")
	}
	if len(b) == 0 {
		return nil
	}
	return r.addJSON(b)
}

// addJSON adds a message that should be JSON.
func (r *reading) addJSON(b []byte) error {
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return r.add(r.shown(string(b)))
	}
	return r.add(r.message(v))
}

func (r *reading) readEvents(body io.Reader) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		line := lines.Text()
		if line == "" {
			continue
		}

		data, ok := strings.CutPrefix(line, "data: ")
		if !ok || data == "[DONE]" {
			if err := r.add(line); err != nil {
				return err
			}
			continue
		}
		if err := r.addJSON([]byte(data)); err != nil {
			return err
		}
	}

	// A line without an end, as of a connection that was cut.
	if lines.Err() != nil {
		return r.add("cut")
	}
	return nil
}

// message is a line of a message. It takes the output out of it.
func (r *reading) message(v any) string {
	list, many := v.([]any)
	if !many {
		list = []any{v}
	}
	for i, one := range list {
		object, ok := one.(map[string]any)
		if !ok {
			continue
		}
		choices, ok := object["choices"].([]any)
		if !ok {
			choices = []any{one}
		}
		for _, choice := range choices {
			r.takeOutput(choice, i)
		}
	}

	// Choices of one list are alike, but for their index.
	return r.shape("", v, r.completion(v))
}

// idNames and textNames are the members that have output.
var (
	idNames   = []string{"output_ids", "token_ids", "tokens"}
	textNames = []string{"text", "content"}
)

// takeOutput takes the tokens and the text of a choice out of its object.
func (r *reading) takeOutput(v any, index int) {
	object, ok := v.(map[string]any)
	if !ok {
		return
	}
	if n, ok := object["index"].(json.Number); ok {
		index, _ = strconv.Atoi(n.String())
	}

	cumulative := r.engine.Cumulative
	for _, name := range idNames {
		list, ok := object[name].([]any)
		if !ok {
			continue
		}
		if cumulative {
			r.outputs[index] = nil
		}
		for _, id := range list {
			n, _ := strconv.ParseUint(fmt.Sprint(id), 10, 32)
			r.outputs[index] = append(r.outputs[index], harmony.Token(n))
		}
	}

	for _, name := range textNames {
		text, ok := object[name].(string)
		if !ok {
			continue
		}
		if cumulative {
			r.texts[index] = ""
		}
		r.texts[index] += text
	}
}

// completion is the number of tokens so far of the choice of a message, or of all choices.
func (r *reading) completion(v any) int {
	if object, ok := v.(map[string]any); ok && r.engine.Kind == sglang {
		index := 0
		if n, ok := object["index"].(json.Number); ok {
			index, _ = strconv.Atoi(n.String())
		}
		return len(r.outputs[index])
	}
	n := 0
	for _, ids := range r.outputs {
		n += len(ids)
		if _, many := v.([]any); many {
			return n // every one has its own count, and all are alike
		}
	}
	return n
}

// verbatim are the members whose values are shown. Others are shown by their type.
var verbatim = []string{
	"index", "code", "status_code", "matched", "matched_stop", "length", "type", "message", "object", "finish_reason",
	"stop_reason", "err_type", "output_mode", "stop_type", "detail", "msg", "param", "error", "retryable", "owned_by",
	"max_model_len", "max_context_length", "max_req_input_len", "eos_ids", "vocab_size", "model_type", "architectures",
	"is_generation", "healthy", "stopping_word", "loc", "ctx", "served_model_name", "default_sampling_params", "status",
}

// aDuration is a member that says when things were, or how long they took. Many are there
// only with metrics.
var aDuration = regexp.MustCompile(`^created$|_(ms|ts|time|latency|throughput|second)$`)

// shape writes JSON with what differs from run to run replaced by what it is.
func (r *reading) shape(name string, v any, completion int) string {
	switch v := v.(type) {
	case map[string]any:
		// Names of tokens are keys where log probabilities are. llama.cpp repeats all settings.
		if name == "top_logprobs" || name == "input" || name == "generation_settings" {
			return "{…}"
		}
		var parts []string
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if aDuration.MatchString(key) {
				continue
			}
			parts = append(parts, key+":"+r.shape(key, v[key], completion))
		}
		return "{" + strings.Join(parts, " ") + "}"

	case []any:
		return r.listShape(name, v, completion)
	case string:
		return r.stringShape(name, v)
	case json.Number:
		return r.numberShape(name, v, completion)
	}
	return strings.ReplaceAll(fmt.Sprint(v), "<nil>", "null")
}

func (r *reading) listShape(name string, list []any, completion int) string {
	if len(list) == 0 {
		return "[]"
	}
	var parts []string
	for _, one := range list {
		if strings.HasPrefix(name, "output_t") {
			one = likely(one)
		}
		// Many alike are shown once.
		if part := r.shape(name, one, completion); !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
	}
	const most = 4 // a validation error may have one for every way to read the prompt
	if len(parts) > most {
		parts = append(parts[:most], "…")
	}
	return "[" + strings.Join(parts, " ") + "]"
}

// likely is an entry of SGLang's log probabilities, [value, id, text], with a number in place of the null
// of an impossible token: which tokens are impossible is the model's affair.
func likely(v any) any {
	entry, ok := v.([]any)
	if ok && len(entry) == 3 && entry[0] == nil {
		return []any{json.Number("0.0"), entry[1], entry[2]}
	}
	return v
}

func (r *reading) stringShape(name, s string) string {
	switch {
	case s == r.id && s != "":
		return "ID"
	case slices.Contains(verbatim, name):
		return strconv.Quote(r.shown(s))
	case s == "":
		return `""`
	case r.id != "" && strings.Contains(s, r.id):
		return strconv.Quote(r.shown(s))
	}
	return "text"
}

func (r *reading) numberShape(name string, n json.Number, completion int) string {
	if slices.Contains(verbatim, name) {
		return n.String()
	}

	// Counts are shown by what they should be: a wrong one is a number in the file.
	switch name {
	case "prompt_tokens", "tokens_evaluated":
		if n.String() == strconv.Itoa(r.prompt) {
			return "PROMPT"
		}
		return n.String()
	case "completion_tokens":
		switch {
		case n.String() == strconv.Itoa(completion):
			return "OUTPUT"
		case r.probe.vague:
			return "int"
		}
		return n.String()
	case "total_tokens":
		if n.String() == strconv.Itoa(r.prompt+completion) {
			return "PROMPT+OUTPUT"
		}
	case "cached_tokens":
		if n.String() == "0" {
			return "0"
		}
		return "some"
	}

	if strings.ContainsAny(n.String(), ".eE") {
		return "float"
	}
	return "int"
}

var (
	aTime    = regexp.MustCompile(`\[?\d\d:\d\d:\d\d\]?`)
	aHex     = regexp.MustCompile(`\b[0-9a-f]{32}\b`)
	aLine    = regexp.MustCompile(`(\.cc|\.h|\.py):\d+`)
	aLong    = regexp.MustCompile(`\[\d+(?:, ?\d+){7,}\]`)
	aPointer = regexp.MustCompile(`0x[0-9a-f]{6,}`)
	// Where the engine is installed, and the line of its code in a traceback.
	aPackage = regexp.MustCompile(`/[^\s"']*/site-packages/`)
	aCodeRow = regexp.MustCompile(`(\.py\\?"), line \d+`)
)

// shown is a text without what differs from run to run.
func (r *reading) shown(s string) string {
	if r.id != "" {
		s = strings.ReplaceAll(s, r.id, "ID")
	}
	s = aTime.ReplaceAllString(s, "TIME")
	s = aHex.ReplaceAllString(s, "HEX")
	s = aLine.ReplaceAllString(s, "$1:LINE")
	s = aLong.ReplaceAllString(s, "[IDS]")
	s = aPointer.ReplaceAllString(s, "POINTER")
	s = aPackage.ReplaceAllString(s, "PACKAGES/")
	s = aCodeRow.ReplaceAllString(s, "$1, line LINE")
	const most = 600
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// addStatus adds the status of a call.
func (r *reading) addStatus(header http.Header) error {
	message := header.Get("grpc-message")
	if text, err := url.PathUnescape(message); err == nil {
		message = text
	}
	return r.add(strings.TrimSpace("grpc-status " + header.Get("grpc-status") + " " + r.shown(message)))
}
