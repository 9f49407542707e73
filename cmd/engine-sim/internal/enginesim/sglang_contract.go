package enginesim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// This file is what SGLang refuses of a body before it looks at the values: FastAPI reads it first, then
// the schema that SGLang's two servers share. Both answer with a status, also to a stream.

// shape is a type of the schema.
type shape struct {
	words string   // for it, in errors
	kinds []string // of JSON that it takes; nil: all
	inner *shape   // of the elements
}

// The kinds of JSON, in the words of the schema.
const (
	kindNull, kindBoolean, kindInteger, kindFloat = "null", "boolean", "integer", "floating point"
	kindString, kindSequence, kindMap             = "string", "sequence", "map"
)

var (
	anInteger  = shape{"i64", []string{kindInteger}, nil}
	aNumber    = shape{"f64", []string{kindInteger, kindFloat}, nil}
	aBoolean   = shape{"a boolean", []string{kindBoolean}, nil}
	aText      = shape{"a string", []string{kindString}, nil}
	integers   = shape{"a sequence", []string{kindSequence}, &anInteger}
	biases     = shape{"a map", []string{kindMap}, &aNumber}
	anything   = shape{}
	textOrMany = shape{"a value or an array of values for StringOrList", []string{kindString, kindSequence}, nil}
)

// contract are members and their shapes, in the schema's order.
type contract []struct {
	name  string
	shape shape
}

// samplingContract are all sampling parameters. Others are refused.
var samplingContract = contract{
	{"max_new_tokens", anInteger},
	{"stop", textOrMany},
	{"stop_token_ids", integers},
	{"stop_regex", textOrMany},
	{"temperature", aNumber},
	{"top_p", aNumber},
	{"top_k", anInteger},
	{"min_p", aNumber},
	{"frequency_penalty", aNumber},
	{"presence_penalty", aNumber},
	{"repetition_penalty", aNumber},
	{"min_new_tokens", anInteger},
	{"n", anInteger},
	{"json_schema", aText},
	{"regex", aText},
	{"ebnf", aText},
	{"structural_tag", aText},
	{"ignore_eos", aBoolean},
	{"skip_special_tokens", aBoolean},
	{"spaces_between_special_tokens", aBoolean},
	{"no_stop_trim", aBoolean},
	{"stream_interval", anInteger},
	{"logit_bias", biases},
	{"sampling_seed", anInteger},
	{"custom_params", anything},
	{"beam_width", anInteger},
	{"watermark", anything},
	{"choice", anything},
}

// kindOf returns the kind of a JSON value, and the value in the words of the schema.
func kindOf(raw json.RawMessage) (kind, shown string) {
	switch text := string(raw); text[0] {
	case 'n':
		return kindNull, kindNull
	case 't', 'f':
		return kindBoolean, "boolean `" + text + "`"
	case '"':
		return kindString, "string " + text
	case '[':
		return kindSequence, kindSequence
	case '{':
		return kindMap, kindMap
	default:
		kind = kindInteger
		if strings.ContainsAny(text, ".eE") {
			kind = kindFloat
		}
		return kind, kind + " `" + text + "`"
	}
}

// fault says what is wrong with a value, "" if nothing is. null counts as absent.
func (s shape) fault(raw json.RawMessage) string {
	kind, shown := kindOf(raw)
	switch {
	case kind == kindNull || s.kinds == nil:
		return ""
	case !slices.Contains(s.kinds, kind):
		return "invalid type: " + shown + ", expected " + s.words
	case s.inner == nil:
		return ""
	}
	for _, element := range elementsOf(raw) {
		if fault := s.inner.fault(element); fault != "" {
			return fault
		}
	}
	return ""
}

// elementsOf are the values of a list or of an object.
func elementsOf(raw json.RawMessage) []json.RawMessage {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil {
		return list
	}
	var object map[string]json.RawMessage
	_ = json.Unmarshal(raw, &object) // nil without elements
	for _, element := range object {
		list = append(list, element)
	}
	return list
}

func (c contract) fault(p params) string {
	for _, member := range c {
		if raw := p[member.name]; len(raw) > 0 {
			if fault := member.shape.fault(raw); fault != "" {
				return fault
			}
		}
	}
	return ""
}

// unknown says which member is not in the contract, "" if all are.
func (c contract) unknown(p params) string {
	names := make([]string, len(c))
	for i, member := range c {
		names[i] = member.name
	}
	for name := range p {
		if !slices.Contains(names, name) {
			return "unknown field `" + name + "`, expected one of `" + strings.Join(names, "`, `") + "`"
		}
	}
	return ""
}

// checkContract refuses sampling parameters that the schema does not take.
func (p params) checkContract() *apiError {
	fault := samplingContract.unknown(p)
	if fault == "" {
		fault = samplingContract.fault(p)
	}
	if fault == "" {
		return nil
	}
	return early(fault, append(appendQuoted([]byte(`{"error":`), fault), '}'))
}

// early is an error with a body of its own.
func early(message string, body []byte) *apiError {
	return &apiError{status: http.StatusBadRequest, message: message, body: body}
}

// fromFastAPI is the error of a body that is no request, with the place in the server's own code. The findings
// have their places, inputs and contexts as Python shows them.
func fromFastAPI(found ...finding) *apiError {
	shown := make([]string, len(found))
	for i, f := range found {
		shown[i] = fmt.Sprintf("{'type': '%s', 'loc': ('body',%s), 'msg': '%s', 'input': %s",
			f.kind, f.where, f.what, f.input)
		if f.context != "" {
			shown[i] += ", 'ctx': {" + f.context + "}"
		}
		shown[i] += "}"
	}

	count := strconv.Itoa(len(found)) + " validation error"
	if len(found) > 1 {
		count += "s"
	}
	message := count + ":\n  " + strings.Join(shown, "\n  ") +
		"\n\n  File \"/usr/lib/python3/site-packages/sglang/srt/entrypoints/http_server.py\", line 933, " +
		"in generate_request\n    POST /generate [" + strings.Join(shown, ", ") + "]"
	body := appendQuoted([]byte(`{"object":"error","message":`), message)
	return early(message, append(body, `,"type":"Bad Request","param":null,"code":400}`...))
}

// ofMember is the error of a member beside the sampling parameters that has the wrong type.
func ofMember(err *apiError, p params) *apiError {
	if err == nil {
		return nil
	}
	var found []finding
	for _, f := range err.found {
		f.input, f.where = pythonOf(p[f.where]), " '"+f.where+"'"
		if f.kind != textType {
			found = append(found, f)
			continue
		}
		// Every text may be a list of texts too.
		list := f
		list.kind, list.where, list.what = "list_type", f.where+", 'list[str]'", "Input should be a valid list"
		f.where += ", 'str'"
		found = append(found, f, list)
	}
	return fromFastAPI(found...)
}

// pythonOf writes JSON as Python shows it.
func pythonOf(raw []byte) string {
	return strings.NewReplacer(`"`, "'", ":", ": ", ",", ", ").Replace(string(raw))
}

// parse parses a body as FastAPI does.
func (sglangAPI) parse(body []byte) (map[string]json.RawMessage, *apiError) {
	var members map[string]json.RawMessage
	switch {
	case len(body) == 0:
		return nil, fromFastAPI(finding{kind: "missing", what: "Field required", input: "None"})
	case !json.Valid(body):
		return nil, fromFastAPI(finding{
			"json_invalid", " " + strconv.Itoa(len(body)), "JSON decode error", "{}",
			"'error': 'unexpected end of data'",
		})
	case json.Unmarshal(body, &members) != nil:
		return nil, fromFastAPI(finding{
			"dataclass_type", "", "Input should be a dictionary or an instance of GenerateReqInput",
			pythonOf(body), "'class_name': 'GenerateReqInput'",
		})
	}
	return members, nil
}

// pythonTypes are the names that Python has for kinds of JSON.
var pythonTypes = map[string]string{
	kindNull: "NoneType", kindBoolean: "bool", kindFloat: "float", kindString: "str", kindMap: "dict",
}

// checkElements refuses a prompt whose elements are no ids.
func (p params) checkElements() *apiError {
	const name = "input_ids"
	raw := p[name]
	_, bad := parseIDs(raw)
	elements := elementsOf(raw)
	if bad < 0 || bad >= len(elements) {
		return nil
	}
	kind, _ := kindOf(elements[bad])
	python, no := pythonTypes[kind]
	if !no {
		return nil
	}
	const what = "elements must be int or list; got "
	return fromFastAPI(finding{
		"value_error", " '" + name + "'", "Value error, " + what + python, pythonOf(raw),
		"'error': ValueError('" + what + python + "')",
	})
}
