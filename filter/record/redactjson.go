package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// redactJSON returns JSON in which each text is replaced by its length, and each member
// name that is not the APIs' own by a number. What is no JSON becomes its length.
func redactJSON(p []byte) []byte {
	if len(p) == 0 {
		return nil
	}

	d := json.NewDecoder(bytes.NewReader(p))
	d.UseNumber()
	var value any
	if d.Decode(&value) != nil || d.More() {
		return fmt.Appendf(nil, "%q", lengthOf(string(p)))
	}

	short, err := json.Marshal(redactValue(value, ""))
	if err != nil {
		return fmt.Appendf(nil, "%q", lengthOf(string(p)))
	}
	return short
}

// lengthOf stands in place of a text.
func lengthOf(s string) string { return fmt.Sprintf("[%d bytes]", len(s)) }

func redactValue(v any, member string) any {
	switch v := v.(type) {
	case string:
		if keptWords[member][v] {
			return v
		}
		return lengthOf(v)
	case []any:
		for i := range v {
			v[i] = redactValue(v[i], member)
		}
		return v
	case map[string]any:
		c := make(map[string]any, len(v))
		n := 0
		for _, name := range slices.Sorted(maps.Keys(v)) {
			value := v[name]
			if !apiNames[name] {
				n++
				name = fmt.Sprintf("[%d bytes] %d", len(name), n)
			}
			c[name] = redactValue(value, name)
		}
		return c
	case json.Number:
		if !keptNumbers[member] {
			return "[number]"
		}
	}

	return v
}

// apiNames are the names of members that the APIs define.
var apiNames = words(`arguments budget_tokens cache_control cached_tokens call_id choice content conversation cache_salt
		chat_template_kwargs container context_management description developer effort enable_thinking
		encrypted_content end_turn format frequency_penalty function function_call functions id include input
		input_schema instructions items json_schema logit_bias logprobs max_completion_tokens max_output_tokens
		max_tokens max_tool_calls mcp_servers message messages metadata min_p min_tokens model n name namespace
		output parallel_tool_calls parameters phase presence_penalty previous_response_id priority
		prompt_cache_key prompt_cache_options reasoning reasoning_content reasoning_effort recipient
		repetition_penalty response_format role safety_identifier schema seed service_tier session status stop
		stop_sequences stop_token_ids store stream stream_options strict structured_outputs summary system
		temperature text think thinking thinking_budget tool_call_id tool_calls tool_choice tool_use_id tools
		top_k top_logprobs top_p truncation type user verbosity`)

// keptWords are the values of members that are words of the APIs.
var keptWords = map[string]map[string]bool{
	"role": words("assistant developer system tool user"),
	"type": words(`
		adaptive additional_tools allowed_tools apply_patch_call approximate array auto boolean code_interpreter
		compaction computer_call custom custom_tool_call custom_tool_call_output disabled enabled ephemeral
		file_search function function_call function_call_output image_url input_image input_text integer
		item_reference json_object json_schema local_shell_call mcp mcp_approval_request mcp_approval_response
		mcp_call mcp_list_tools message none null number object output_text reasoning reasoning_text
		redacted_thinking shell_call string summary_text text thinking tool tool_result tool_search_call
		tool_use web_search web_search_call`),
	"effort":           words("none minimal low medium high xhigh max"),
	"think":            words("none minimal low medium high xhigh max"),
	"reasoning_effort": words("none minimal low medium high xhigh max"),
	"tool_choice":      words("auto none required any"),
	"truncation":       words("auto disabled"),
	"status":           words("completed incomplete in_progress failed"),
	"phase":            words("commentary final_answer"),
	"verbosity":        words("low medium high"),
}

// keptNumbers are the members whose numbers set how a reply is made.
var keptNumbers = words(`
	budget_tokens frequency_penalty max_completion_tokens max_output_tokens max_tokens max_tool_calls min_p
		min_tokens n presence_penalty priority repetition_penalty stop_token_ids temperature thinking_budget
		thinking_budget_tokens thinking_token_budget top_k top_logprobs top_p`)

func words(list string) map[string]bool {
	set := map[string]bool{}
	for word := range strings.FieldsSeq(list) {
		set[word] = true
	}
	return set
}
