package responsestest

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/tidwall/gjson"
)

// check returns what is wrong with a value.
type check func(v gjson.Result) error

// member is a member of an object.
type member struct {
	check    check
	optional bool
}

func must(c check) member { return member{check: c} }
func may(c check) member  { return member{check: c, optional: true} }

// object has these members and no others.
func object(members map[string]member) check {
	return func(v gjson.Result) error {
		if !v.IsObject() {
			return fmt.Errorf("%.60s is no object", v.Raw)
		}

		given := v.Map()
		// The types are closed: some clients reject members that they do not know.
		for name := range given {
			if _, known := members[name]; !known {
				return fmt.Errorf("unknown member %q", name)
			}
		}

		for name, m := range members {
			value, ok := given[name]
			if !ok {
				if m.optional {
					continue
				}
				return fmt.Errorf("member %q is missing", name)
			}
			if err := m.check(value); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}

		return nil
	}
}

// sent has these members, and others as a client has sent them.
func sent(members map[string]member) check {
	return func(v gjson.Result) error {
		if !v.IsObject() {
			return fmt.Errorf("%.60s is no object", v.Raw)
		}

		given := v.Map()
		for name, m := range members {
			if value, ok := given[name]; ok || !m.optional {
				if err := m.check(value); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
			}
		}

		return nil
	}
}

// oneOf is an object whose member "type" says which.
func oneOf(types map[string]check) check {
	return func(v gjson.Result) error {
		c, known := types[v.Get("type").Str]
		if !known {
			return fmt.Errorf("unknown type %q", v.Get("type").Str)
		}
		return c(v)
	}
}

func array(c check) check {
	return func(v gjson.Result) error {
		if !v.IsArray() {
			return fmt.Errorf("%.60s is no array", v.Raw)
		}
		for i, element := range v.Array() {
			if err := c(element); err != nil {
				return fmt.Errorf("[%d]: %w", i, err)
			}
		}
		return nil
	}
}

func nullable(c check) check {
	return func(v gjson.Result) error {
		if v.Type == gjson.Null {
			return nil
		}
		return c(v)
	}
}

func text(v gjson.Result) error {
	if v.Type != gjson.String {
		return fmt.Errorf("%.60s is no string", v.Raw)
	}
	return nil
}

func name(v gjson.Result) error {
	if v.Type != gjson.String || v.Str == "" {
		return fmt.Errorf("%.60s is no string with text", v.Raw)
	}
	return nil
}

func boolean(v gjson.Result) error {
	if !v.IsBool() {
		return fmt.Errorf("%.60s is no boolean", v.Raw)
	}
	return nil
}

func number(v gjson.Result) error {
	if v.Type != gjson.Number {
		return fmt.Errorf("%.60s is no number", v.Raw)
	}
	return nil
}

func count(v gjson.Result) error {
	if v.Type != gjson.Number || v.Num != math.Trunc(v.Num) || v.Num < 0 {
		return fmt.Errorf("%.60s is no count", v.Raw)
	}
	return nil
}

func anyObject(v gjson.Result) error {
	if !v.IsObject() {
		return fmt.Errorf("%.60s is no object", v.Raw)
	}
	return nil
}

func word(words ...string) check {
	return func(v gjson.Result) error {
		if v.Type != gjson.String || !slices.Contains(words, v.Str) {
			return fmt.Errorf("%.60s is not one of %q", v.Raw, words)
		}
		return nil
	}
}

// tokenLogprob is the entry of a token, which the parts of items and the events have
// in the same form.
var tokenLogprob = func() check {
	one := map[string]member{"token": must(text), "logprob": must(number), "bytes": must(array(count))}
	own := maps.Clone(one)
	own["top_logprobs"] = must(array(object(one)))
	return object(own)
}()

var (
	itemStatus = word("in_progress", "completed", "incomplete")

	urlCitation = object(map[string]member{
		"type": must(word("url_citation")), "url": must(name), "title": must(text), "start_index": must(count), "end_index": must(count),
	})
	outputText    = object(map[string]member{"type": must(word("output_text")), "text": must(text), "annotations": must(array(urlCitation)), "logprobs": must(array(tokenLogprob))})
	reasoningText = object(map[string]member{"type": must(word("reasoning_text")), "text": must(text)})
	summaryText   = object(map[string]member{"type": must(word("summary_text")), "text": must(text)})

	outputItem  = oneOf(outputItems)
	outputItems = map[string]check{
		"message": object(map[string]member{
			"type": must(name), "id": must(name), "status": must(itemStatus), "role": must(word("assistant")),
			"phase": must(word("commentary", "final_answer")), "content": must(array(outputText)),
		}),
		"reasoning": object(map[string]member{
			"type": must(name), "id": must(name), "status": must(itemStatus),
			"summary": must(array(summaryText)), "content": may(array(reasoningText)), "encrypted_content": may(name),
		}),
		"function_call": object(map[string]member{
			"type": must(name), "id": must(name), "status": must(itemStatus),
			"call_id": must(name), "name": must(name), "namespace": may(name), "arguments": must(text),
		}),
		"custom_tool_call": object(map[string]member{
			"type": must(name), "id": must(name), "status": must(itemStatus),
			"call_id": must(name), "name": must(name), "namespace": may(name), "input": must(text),
		}),
		"shell_call":            shellCall,
		"local_shell_call":      localShellCall,
		"apply_patch_call":      applyPatchCall,
		"compaction":            begunCompaction,
		"mcp_list_tools":        listItem,
		"mcp_call":              serverCall,
		"mcp_approval_request":  approvalRequest,
		"web_search_call":       webSearchCall,
		"code_interpreter_call": codeCall,
		"file_search_call":      fileSearchCall,
		"image_generation_call": imageCall,
		"tool_search_call":      searchCallItem,
		"tool_search_output":    searchOutputItem,
	}

	compactionItem  = object(map[string]member{"type": must(name), "id": must(name), "encrypted_content": must(name)})
	begunCompaction = object(map[string]member{"type": must(name), "id": must(name), "encrypted_content": must(text)})

	usage = object(map[string]member{
		"input_tokens": must(count), "output_tokens": must(count), "total_tokens": must(count),
		"input_tokens_details": must(object(map[string]member{
			"cached_tokens": must(count), "cache_write_tokens": must(count),
			"input_tokens_per_turn": may(array(count)), "cached_tokens_per_turn": may(array(count)),
		})),
		"output_tokens_details": must(object(map[string]member{
			"reasoning_tokens": must(count), "tool_output_tokens": may(count),
			"output_tokens_per_turn": may(array(count)), "tool_output_tokens_per_turn": may(array(count)),
		})),
	})

	// anyTool is a tool as its client has sent it, of whatever type. Clients require
	// some members of functions.
	anyTool = func(v gjson.Result) error {
		switch v.Get("type").Str {
		case "":
			return errors.New("a tool has no type")
		case "function":
			return functionTool(v)
		case "mcp":
			return serverTool(v)
		case "namespace":
			return sent(map[string]member{"name": must(name), "tools": must(array(anyNested))})(v)
		}

		return anyObject(v)
	}
	anyNested    = func(v gjson.Result) error { return sent(map[string]member{"type": must(name)})(v) }
	functionTool = sent(map[string]member{
		"type": must(name), "name": must(name), "description": must(nullable(text)),
		"parameters": must(nullable(anyObject)), "strict": must(nullable(boolean)),
	})

	// openai-harmony's Message.from_dict reads it.
	harmonyMessage = object(map[string]member{
		"role": must(word("system", "developer", "user", "assistant", "tool")), "name": may(name), "recipient": may(name),
		"channel": may(name), "content_type": may(name),
		"content": must(array(object(map[string]member{"type": must(word("text")), "text": must(text)}))),
	})

	itemList = object(map[string]member{
		"object": must(word("list")), "data": must(array(anyObject)),
		"first_id": must(nullable(name)), "last_id": must(nullable(name)), "has_more": must(boolean),
	})

	conversation = object(map[string]member{
		"id": must(name), "object": must(word("conversation")), "created_at": must(count), "metadata": must(anyObject),
	})

	compaction = object(map[string]member{
		"id": must(name), "object": must(word("response.compaction")), "created_at": must(count),
		"output": must(array(anyObject)), "usage": must(usage),
	})

	format = oneOf(map[string]check{
		"text":        object(map[string]member{"type": must(name)}),
		"json_object": object(map[string]member{"type": must(name)}),
		"json_schema": object(map[string]member{
			"type": must(name), "name": must(name), "description": must(nullable(text)), "schema": must(anyObject), "strict": must(boolean),
		}),
	})

	toolChoiceName = object(map[string]member{"type": must(word("function", "custom")), "name": must(name), "namespace": may(name)})
	serverChoice   = object(map[string]member{"type": must(word("mcp")), "server_label": must(name), "name": may(name)})
	builtInChoice  = object(map[string]member{"type": must(name)})
	oneTool        = map[string]check{
		"function": toolChoiceName, "custom": toolChoiceName, "mcp": serverChoice,
		"shell": builtInChoice, "apply_patch": builtInChoice,
		"web_search": builtInChoice, "web_search_preview": builtInChoice, "code_interpreter": builtInChoice, "file_search": builtInChoice, "image_generation": builtInChoice,
	}
	allowedTool  = with(oneTool, "local_shell", builtInChoice)
	severalTools = object(map[string]member{"type": must(name), "mode": must(word("auto", "required")), "tools": must(array(oneOf(allowedTool)))})

	response = object(map[string]member{
		"id": must(name), "object": must(word("response")), "created_at": must(count), "completed_at": must(nullable(count)),
		"status":               must(word("queued", "in_progress", "completed", "incomplete", "failed", "cancelled")),
		"incomplete_details":   must(nullable(object(map[string]member{"reason": must(word("max_output_tokens", "content_filter"))}))),
		"model":                must(name),
		"previous_response_id": must(nullable(name)),
		"conversation":         must(nullable(object(map[string]member{"id": must(name)}))),
		"instructions":         must(nullable(text)),
		"output":               must(array(outputItem)),
		"error":                must(nullable(object(map[string]member{"code": must(name), "message": must(name)}))),
		"tools":                must(array(anyTool)),
		"tool_choice":          must(toolChoice),
		"truncation":           must(word("auto", "disabled")),
		"parallel_tool_calls":  must(boolean),
		"text": must(object(map[string]member{
			"format": must(format), "verbosity": may(word("low", "medium", "high")),
		})),
		"top_p": must(number), "temperature": must(number), "presence_penalty": must(number), "frequency_penalty": must(number), "top_logprobs": must(count),
		"reasoning": must(nullable(object(map[string]member{
			"effort": must(word("none", "minimal", "low", "medium", "high", "xhigh", "max")), "summary": must(nullable(word("auto", "concise", "detailed"))),
			"context": may(word("current_turn")), "mode": may(word("standard")),
		}))),
		"usage":          must(nullable(usage)),
		"input_messages": may(array(harmonyMessage)), "output_messages": may(array(harmonyMessage)),
		"max_output_tokens": must(nullable(count)), "max_tool_calls": must(nullable(count)),
		"store": must(boolean), "background": must(boolean), "service_tier": must(name), "metadata": must(anyObject),
		"safety_identifier": must(nullable(text)), "prompt_cache_key": must(nullable(text)),
		"prompt_cache_diagnostics": may(oneOf(map[string]check{
			"cache_miss": object(map[string]member{
				"type": must(name), "cache_missed_tokens": must(count), "comparison_reusable_tokens": may(count),
				"reason": must(word("model_changed", "prompt_cache_key_changed", "tools_changed", "text_format_changed", "reasoning_effort_changed",
					"verbosity_changed", "context_compacted", "input_changed", "service_tier_changed")),
			}),
			"cache_hit": onlyType, "comparison_response_not_found": onlyType, "unavailable": onlyType,
		})),
		"prompt_cache_options": may(object(map[string]member{"mode": must(word("implicit", "explicit")), "ttl": must(word("30m", "12h")), "comparison_response_id": may(name)})),
	})
)

var onlyType = object(map[string]member{"type": must(name)})

func toolChoice(v gjson.Result) error {
	switch {
	case v.Get("type").Str == "allowed_tools":
		return severalTools(v)
	case v.IsObject():
		return oneOf(oneTool)(v)
	}
	return word("auto", "none", "required")(v)
}

// events are the members of every type of event, beside type and
// sequence_number.
var events = func() map[string]check {
	item := map[string]member{"item_id": must(name), "output_index": must(count)}
	with := func(more map[string]member, all ...map[string]member) check {
		members := map[string]member{"type": must(name), "sequence_number": must(count)}
		for _, set := range append(all, more) {
			for k, m := range set {
				members[k] = m
			}
		}
		return object(members)
	}
	content := map[string]member{"content_index": must(count)}
	summary := map[string]member{"summary_index": must(count)}
	whole := with(map[string]member{"response": must(response)})
	ofItem := with(map[string]member{"output_index": must(count), "item": must(outputItem)})
	part := with(map[string]member{"part": must(oneOf(map[string]check{"output_text": outputText, "reasoning_text": reasoningText}))}, item, content)
	summaryPart := with(map[string]member{"part": must(summaryText)}, item, summary)
	ofCommand := map[string]member{"output_index": must(count), "command_index": must(count)}
	all := map[string]check{
		commandEvent + "added": with(map[string]member{"command": must(text)}, ofCommand),
		commandEvent + "delta": with(map[string]member{"delta": must(name)}, ofCommand),
		commandEvent + "done":  with(map[string]member{"command": must(text)}, ofCommand),

		"response.created": whole, "response.queued": whole, "response.in_progress": whole, "response.completed": whole, "response.incomplete": whole, "response.failed": whole,
		"response.compaction.compacting": with(nil, item),
		"response.output_item.added":     ofItem, "response.output_item.done": ofItem,
		"response.content_part.added": part, "response.content_part.done": part,
		"response.output_text.delta":             with(map[string]member{"delta": must(name), "logprobs": must(array(tokenLogprob))}, item, content),
		"response.output_text.done":              with(map[string]member{"text": must(text), "logprobs": must(array(tokenLogprob))}, item, content),
		"response.reasoning_text.delta":          with(map[string]member{"delta": must(name)}, item, content),
		"response.reasoning_text.done":           with(map[string]member{"text": must(text)}, item, content),
		"response.reasoning.delta":               with(map[string]member{"delta": must(name)}, item, content),
		"response.reasoning.done":                with(map[string]member{"text": must(text)}, item, content),
		"response.reasoning_summary_part.added":  summaryPart,
		"response.reasoning_summary_part.done":   summaryPart,
		"response.reasoning_summary_text.delta":  with(map[string]member{"delta": must(name)}, item, summary),
		"response.reasoning_summary_text.done":   with(map[string]member{"text": must(text)}, item, summary),
		"response.function_call_arguments.delta": with(map[string]member{"delta": must(name)}, item),
		"response.function_call_arguments.done":  with(map[string]member{"name": must(name), "arguments": must(text)}, item),
		"response.custom_tool_call_input.delta":  with(map[string]member{"delta": must(name)}, item),
		"response.custom_tool_call_input.done":   with(map[string]member{"input": must(text)}, item),
		"response.output_text.annotation.added":  with(map[string]member{"annotation_index": must(count), "annotation": must(urlCitation)}, item, content),

		"response.mcp_call_arguments.delta":         with(map[string]member{"delta": must(name)}, item),
		"response.mcp_call_arguments.done":          with(map[string]member{"arguments": must(text)}, item),
		"response.code_interpreter_call_code.delta": with(map[string]member{"delta": must(name)}, item),
		"response.code_interpreter_call_code.done":  with(map[string]member{"code": must(text)}, item),
	}

	for kind := range outputItems {
		t := newToolEvents(kind)
		if t == nil {
			continue
		}

		if t.fails {
			t.steps = append(t.steps, failed)
		}

		for _, step := range t.steps {
			if step != theText {
				all[t.event+"."+step] = with(nil, item)
			}
		}
	}

	return all
}()
