package enginesim

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// checkRanges refuses what vLLM refuses of the parameters that the model does not use.
func (p params) checkRanges() *apiError {
	topK, minP, frequency, presence, repetition := 0, 0.0, 0.0, 0.0, 1.0
	if err := p.getAll(
		field{"top_k", &topK}, field{"min_p", &minP}, field{"frequency_penalty", &frequency},
		field{"presence_penalty", &presence}, field{"repetition_penalty", &repetition},
	); err != nil {
		return err
	}

	message := ""
	switch {
	case presence < -2 || presence > 2:
		message = "presence_penalty must be in [-2, 2], got " + pythonFloat(presence)
	case frequency < -2 || frequency > 2:
		message = "frequency_penalty must be in [-2, 2], got " + pythonFloat(frequency)
	case repetition <= 0:
		message = "repetition_penalty must be greater than zero, got " + pythonFloat(repetition)
	case topK < -1:
		message = fmt.Sprintf("top_k must be 0 (disable), or at least 1, got %d", topK)
	case minP < 0 || minP > 1:
		message = "min_p must be in [0, 1], got " + pythonFloat(minP)
	default:
		return nil
	}
	return badRequest("", message+".")
}

// biases are the names of tokens in a logit_bias, in order.
func (p params) biases() []string {
	var bias map[string]json.RawMessage
	_ = json.Unmarshal(p["logit_bias"], &bias) // nil without one
	return slices.Sorted(maps.Keys(bias))
}

// checkBias refuses tokens outside the vocabulary. vLLM's engine does so, after the headers.
func (p params) checkBias() *apiError {
	var outside []string
	for _, name := range p.biases() {
		if id, err := strconv.Atoi(name); err == nil && (id < 0 || id >= vocabularySize) {
			outside = append(outside, name)
		}
	}
	if len(outside) == 0 {
		return nil
	}
	list := strings.Join(outside, ", ")
	return afterHeaders(badRequest("logit_bias", fmt.Sprintf("token_id(s) [%s] in logit_bias contain out-of-vocab "+
		"token ids. Vocabulary size: %d (parameter=logit_bias, value=[%s])", list, vocabularySize, list)))
}

// badBiases are the names in a logit_bias that are no numbers.
func (p params) badBiases() []string {
	return slices.DeleteFunc(p.biases(), func(name string) bool {
		_, err := strconv.Atoi(name)
		return err == nil
	})
}

// afterHeaders marks an error that vLLM finds only when it has begun to stream.
func afterHeaders(err *apiError) *apiError {
	err.late = true
	return err
}

// refusedTag is the error of a structural tag in the words of an API.
func refusedTag(err, other *apiError) *apiError {
	if err != nil && err.message == invalidTag {
		return other
	}
	return err
}

// emptySalt is the error of a cache_salt that is no text.
func (p params) emptySalt() *apiError {
	if string(p["cache_salt"]) != `""` {
		return nil
	}
	return badRequest("cache_salt",
		"Parameter 'cache_salt' must be a non-empty string if provided. (parameter=cache_salt)")
}

// firstOf returns the first error.
func firstOf(errs ...*apiError) *apiError {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// inputShape is how pydantic shows an input in an error.
func inputShape(raw json.RawMessage) string {
	var v any
	_ = json.Unmarshal(raw, &v) // nil shows as None
	switch v := v.(type) {
	case nil:
		return "None"
	case string:
		return v
	case []any:
		return fmt.Sprintf("<list of %d items>", len(v))
	case map[string]any:
		return fmt.Sprintf("<dict of %d items>", len(v))
	}
	return string(raw)
}

// noInteger is the finding of what should be an integer.
func noInteger(where string, raw json.RawMessage) finding {
	kind, what := "int_type", "Input should be a valid integer"
	if len(raw) > 0 && raw[0] == '"' {
		kind, what = "int_parsing", what+", unable to parse string as an integer"
	}
	return finding{kind: kind, where: where, what: what, input: inputShape(raw)}
}

// textType is the kind of what should be a text.
const textType = "string_type"

// mismatch is the finding of a member of the wrong type.
func mismatch(name string, raw json.RawMessage, into any) finding {
	switch into.(type) {
	case *string:
		return finding{kind: textType, where: name, what: "Input should be a valid string", input: inputShape(raw)}
	case *float64:
		const what = "Input should be a valid number, unable to parse string as a number"
		return finding{kind: "float_parsing", where: name, what: what, input: inputShape(raw)}
	case *[]uint32:
		var elements []json.RawMessage
		if _, bad := parseIDs(raw); json.Unmarshal(raw, &elements) == nil && bad >= 0 && bad < len(elements) {
			return noInteger(name+"."+strconv.Itoa(bad), elements[bad])
		}
	}
	return noInteger(name, raw)
}

// bodyFault is FastAPI's error of a body that is no object.
func bodyFault(body []byte) *apiError {
	var v any
	err := json.Unmarshal(body, &v)
	switch {
	case len(body) == 0:
		return pydantic([]finding{{kind: "missing", what: "Field required", input: "None"}})
	case err == nil:
		const what = "Input should be a valid dictionary or object to extract fields from"
		return pydantic([]finding{{kind: "model_attributes_type", what: what, input: inputShape(body)}})
	}
	// Python's parser names the place where the value at fault begins.
	at := 1 + strings.LastIndexAny(string(body), ":,[{")
	return pydantic([]finding{{
		kind: "json_invalid", where: strconv.Itoa(at), what: "JSON decode error", input: "<dict of 0 items>",
		context: "'error': 'Expecting value'",
	}})
}

// unlessZero returns the members without those of these names that are 0.
func (p params) unlessZero(names []string) params {
	list := maps.Clone(p)
	maps.DeleteFunc(list, func(name string, raw json.RawMessage) bool {
		return string(raw) == "0" && slices.Contains(names, name)
	})
	return list
}

// checkVLLMGRPC is what vLLM's gRPC server refuses besides an error that all engines have.
func checkVLLMGRPC(err *apiError, p params, limit, size int) *apiError {
	if size == 0 {
		return badRequest("", "The decoder prompt cannot be empty")
	}
	return firstOf(refusedTag(err, badRequest("", invalidGrammar)), p.checkRanges(), checkDecoder(limit, size))
}
