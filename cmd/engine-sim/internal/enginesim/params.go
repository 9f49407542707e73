package enginesim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// params are the members of a request, or of an object in it. null counts as
// absent.
type params map[string]json.RawMessage

// get unmarshals a member into v. v is unchanged if there is none.
func (p params) get(name string, v any) *apiError {
	raw := p[name]
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	if json.Unmarshal(raw, v) != nil {
		return pydantic([]finding{mismatch(name, raw, v)})
	}
	return nil
}

// has reports whether a member is present.
func (p params) has(name string) bool { return len(p[name]) > 0 && string(p[name]) != "null" }

// getGrammar reads the structural tag, a JSON text. The simulator supports no other
// grammar. vLLM's HTTP API has it in structured_outputs.
func (p params) getGrammar() (*grammar, *apiError) {
	if p.has("structured_outputs") {
		var inner params
		if err := p.get("structured_outputs", &inner); err != nil {
			return nil, err
		}
		for name := range inner {
			if name != "structural_tag" {
				return nil, badRequest(name, "The simulated engine does not support structured_outputs."+name+".")
			}
		}
		return inner.getGrammar()
	}

	if !p.has("structural_tag") {
		return nil, nil
	}

	var tag string
	if err := p.get("structural_tag", &tag); err != nil {
		return nil, err
	}
	return readGrammar(tag)
}

// field is the name of a member and its destination.
type field struct {
	name string
	into any
}

func (p params) getAll(fields ...field) *apiError {
	for _, f := range fields {
		if err := p.get(f.name, f.into); err != nil {
			return err
		}
	}
	return nil
}

// finding is an entry of an engine's validation error. where is "" for the body itself.
type finding struct{ kind, where, what, input, context string }

// place is the location of what was found.
func (f finding) place() string { return strings.TrimSuffix("body."+f.where, ".") }

// pydantic returns vLLM's validation error. Like the real one it repeats the input.
func pydantic(found []finding) *apiError {
	var b strings.Builder
	fmt.Fprintf(&b, "%d validation error", len(found))
	if len(found) > 1 {
		b.WriteByte('s')
	}
	b.WriteByte(':')

	for _, f := range found {
		fmt.Fprintf(&b, "\n  {'type': '%s', 'loc': '%s', 'msg': '%s', 'input': '%s'",
			f.kind, f.place(), f.what, f.input)
		if f.context != "" {
			b.WriteString(", 'ctx': {" + f.context + "}")
		}
		b.WriteByte('}')
	}
	return &apiError{
		status: http.StatusBadRequest, message: b.String(), kind: "Bad Request", param: found[0].place(), found: found,
	}
}

// takePrompt removes the prompt from the members and returns its ids.
func (p params) takePrompt(name string) ([]harmony.Token, *apiError) {
	raw := p[name]
	// What is left is recorded as the parameters of the request, and a prompt may be long.
	delete(p, name)
	if len(raw) == 0 || string(raw) == "null" {
		return nil, badRequest(name, fmt.Sprintf(
			"Either %s or prompt_embeds must be provided and non-empty. (parameter=%s)", name, name))
	}

	if raw[0] == '"' {
		var text string
		if json.Unmarshal(raw, &text) != nil {
			return nil, bodyFault(raw)
		}
		return harmony.AppendEncodeSpecial(nil, text), nil
	}

	ids, bad := parseIDs(raw)
	if bad >= 0 {
		return nil, badPrompt(name, raw, bad)
	}

	if len(ids) == 0 {
		return nil, badRequest("", "You must pass at least one prompt")
	}

	for _, id := range ids {
		if id > lastID {
			return nil, afterHeaders(badRequest("", fmt.Sprintf("Token id %d is out of vocabulary", id)))
		}
	}

	return ids, nil
}

// lastID is the highest id of the vocabulary.
const lastID = 201087

// badPrompt returns a validation error with an entry for each way in which vLLM tries to read the
// prompt: as ids, as lists of ids, as a text, and as texts.
func badPrompt(name string, raw []byte, bad int) *apiError {
	var elements []json.RawMessage
	if json.Unmarshal(raw, &elements) != nil || bad >= len(elements) {
		return pydantic([]finding{{kind: "list_type", where: name, what: "Input should be a valid list", input: "?"}})
	}
	const text = "Input should be a valid string"
	at := func(i int) string { return name + "." + strconv.Itoa(i) }

	found := []finding{noInteger(at(bad), elements[bad])}
	for i, e := range elements {
		found = append(found, finding{"list_type", at(i), "Input should be a valid list", inputShape(e), ""})
	}
	found = append(found, finding{"string_type", name, text, inputShape(raw), ""})
	for i, e := range elements {
		if e[0] != '"' {
			found = append(found, finding{"string_type", at(i), text, inputShape(e), ""})
		}
	}
	return pydantic(found)
}

// sampling are the parameters that all engines have.
type sampling struct {
	temperature float64
	coldest     float64 // the lowest temperature
	topP        float64
	n           int
	minTokens   int
	maxTokens   int
	stops       []harmony.Token
	ignoreEOS   bool
	seed        int64
	interval    int
	grammar     *grammar
}

// readSampling reads and checks the sampling parameters.
func (p params) readSampling(s sampling, minName, maxName, seedName string) (sampling, *apiError) {
	s, err := p.takeSampling(s, minName, maxName, seedName)
	if err == nil {
		err = s.check(minName, maxName)
	}
	return s, err
}

// takeSampling reads the sampling parameters. Three of them have different names in each API.
func (p params) takeSampling(s sampling, minName, maxName, seedName string) (sampling, *apiError) {
	if err := p.getAll(
		field{"temperature", &s.temperature}, field{"top_p", &s.topP}, field{"n", &s.n}, field{minName, &s.minTokens},
		field{maxName, &s.maxTokens}, field{"stop_token_ids", &s.stops}, field{"ignore_eos", &s.ignoreEOS},
		field{seedName, &s.seed}, field{"stream_interval", &s.interval},
	); err != nil {
		return s, err
	}

	var err *apiError
	if s.grammar, err = p.getGrammar(); err != nil {
		return s, err
	}

	// A parameter that changes the output and is ignored here would make a test pass for a wrong reason.
	for _, name := range []string{"response_format", "json_schema", "regex", "ebnf", "stop"} {
		if raw := p[name]; len(raw) > 0 && string(raw) != "null" && string(raw) != "[]" {
			return s, badRequest(name, "The simulated engine does not support "+name+".")
		}
	}

	return s, nil
}

func (s sampling) check(minName, maxName string) *apiError {
	switch {
	case s.temperature < s.coldest:
		return outOfRange("temperature", "non-negative", s.temperature)
	case s.topP <= 0 || s.topP > 1:
		return outOfRange("top_p", "in (0, 1]", s.topP)
	case s.n < 1:
		return badRequest("", fmt.Sprintf("n must be at least 1, got %d.", s.n))
	case s.maxTokens < 1:
		return tooFewTokens(maxName, s.maxTokens)
	case s.minTokens > s.maxTokens:
		return badRequest("", fmt.Sprintf("%s must be less than or equal to %s=%d, got %d.",
			minName, maxName, s.maxTokens, s.minTokens))
	}
	return nil
}

func outOfRange(name, want string, got float64) *apiError {
	x := pythonFloat(got)
	return badRequest(name, fmt.Sprintf("%s must be %s, got %s. (parameter=%s, value=%s)", name, want, x, name, x))
}

func tooFewTokens(name string, got int) *apiError {
	return badRequest(name, fmt.Sprintf("%s must be at least 1, got %d. (parameter=%[1]s, value=%[2]d)", name, got))
}

// pythonFloat writes a float as Python does, with a point.
func pythonFloat(v float64) string {
	x := strconv.FormatFloat(v, 'f', -1, 64)
	if !strings.Contains(x, ".") {
		x += ".0"
	}
	return x
}

func (s sampling) limits(room int) limits {
	stops := slices.Clone(s.stops)
	// Engines add the model's own end tokens to the stop ids of a request.
	if !s.ignoreEOS {
		stops = append(stops, eos...)
	}
	return limits{
		minTokens: s.minTokens, maxTokens: min(s.maxTokens, room), stops: stops, ignoreEOS: s.ignoreEOS,
		grammar: s.grammar,
	}
}
