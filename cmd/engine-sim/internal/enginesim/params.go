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
		const what = "Input should be a valid number, unable to parse string as a number"
		return pydantic([]finding{{"int_parsing", name, what, strings.Trim(string(raw), `"`)}})
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

// finding is an entry of an engine's validation error.
type finding struct{ kind, where, what, input string }

// pydantic returns vLLM's validation error. Like the real one it repeats the input.
func pydantic(found []finding) *apiError {
	var b strings.Builder
	fmt.Fprintf(&b, "%d validation error", len(found))
	if len(found) > 1 {
		b.WriteByte('s')
	}
	b.WriteByte(':')

	for _, f := range found {
		fmt.Fprintf(&b, "\n  {'type': '%s', 'loc': 'body.%s', 'msg': '%s', 'input': '%s'}",
			f.kind, f.where, f.what, f.input)
	}
	return &apiError{
		status: http.StatusBadRequest, message: b.String(), kind: "Bad Request", param: "body." + found[0].where,
	}
}

func badJSON() *apiError {
	return pydantic([]finding{{"json_invalid", "0", "JSON decode error", "<dict of 0 items>"}})
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
			return nil, badJSON()
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
			return nil, badRequest("", fmt.Sprintf("Token id %d is out of vocabulary", id))
		}
	}

	return ids, nil
}

// lastID is the highest id of the vocabulary.
const lastID = 201087

// badPrompt returns a validation error with an entry for each element, like engines
// do.
func badPrompt(name string, raw []byte, bad int) *apiError {
	var elements []json.RawMessage
	if json.Unmarshal(raw, &elements) != nil || bad >= len(elements) {
		return pydantic([]finding{{"list_type", name, "Input should be a valid list", "?"}})
	}
	const what = "Input should be a valid integer, unable to parse string as an integer"
	found := []finding{
		{"int_parsing", name + "." + strconv.Itoa(bad), what, strings.Trim(string(elements[bad]), `"`)},
	}
	for i, e := range elements {
		place := name + "." + strconv.Itoa(i)
		found = append(found, finding{"list_type", place, "Input should be a valid list", string(e)})
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

// readSampling reads and checks the sampling parameters. Three of them have
// different names in each API.
func (p params) readSampling(s sampling, minName, maxName, seedName string) (sampling, *apiError) {
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

	switch {
	case s.temperature < s.coldest:
		return s, outOfRange("temperature", "non-negative", s.temperature)
	case s.topP <= 0 || s.topP > 1:
		return s, outOfRange("top_p", "in (0, 1]", s.topP)
	case s.n < 1:
		return s, badRequest("", fmt.Sprintf("n must be at least 1, got %d.", s.n))
	case s.maxTokens < 1:
		return s, badRequest(maxName, fmt.Sprintf("%s must be at least 1, got %d. (parameter=%s, value=%d)",
			maxName, s.maxTokens, maxName, s.maxTokens))
	case s.minTokens > s.maxTokens:
		return s, badRequest("", fmt.Sprintf("%s must be less than or equal to %s=%d, got %d.",
			minName, maxName, s.maxTokens, s.minTokens))
	}

	return s, nil
}

func outOfRange(name, want string, got float64) *apiError {
	// Python writes a float with a point.
	x := strconv.FormatFloat(got, 'f', -1, 64)
	if !strings.Contains(x, ".") {
		x += ".0"
	}
	return badRequest(name, fmt.Sprintf("%s must be %s, got %s. (parameter=%s, value=%s)", name, want, x, name, x))
}

func (s sampling) limits(room int) limits {
	stops := slices.Clone(s.stops)
	// Engines add the model's own end tokens to the stop ids of a request.
	if !s.ignoreEOS {
		stops = append(stops, eos...)
	}
	return limits{minTokens: s.minTokens, maxTokens: min(s.maxTokens, room), stops: stops, grammar: s.grammar}
}
