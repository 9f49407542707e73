package read

import (
	"testing"

	"github.com/openai/openai-go/v3/responses"
)

// TestKnowsTheSDK shows that every field of openai-go's and openai-python's requests has a row.
func TestKnowsTheSDK(t *testing.T) {
	t.Parallel()
	const (
		item    = "an item of a response, which clients send back as it was"
		served  = "arguments of the server's tool, or listed: see settleFields"
		ownTool = "the type alone, and what runByClient reads"
	)
	opaque := map[string]string{
		"input[additional_tools]":          item,
		"input[apply_patch_call]":          item,
		"input[apply_patch_call_output]":   item,
		"input[code_interpreter_call]":     item,
		"input[compaction]":                item,
		"input[compaction_trigger]":        item,
		"input[computer_call_output]":      item,
		"input[configuration_update]":      item,
		"input[file_search_call]":          item,
		"input[image_generation_call]":     item,
		"input[local_shell_call]":          item,
		"input[local_shell_call_output]":   item,
		"input[mcp_approval_request]":      item,
		"input[mcp_approval_response]":     item,
		"input[mcp_call]":                  item,
		"input[mcp_list_tools]":            item,
		"input[program]":                   item,
		"input[program_output]":            item,
		"input[shell_call]":                item,
		"input[shell_call_output]":         item,
		"input[tool_search_call]":          item,
		"input[tool_search_output]":        item,
		"input[web_search_call]":           item,
		"input":                            "messages and calls of a computer, of which the SDK does not name the type",
		"tools[code_interpreter]":          served,
		"tools[computer]":                  served,
		"tools[computer_use_preview]":      served,
		"tools[file_search]":               served,
		"tools[image_generation]":          served,
		"tools":                            served,
		"tools[apply_patch]":               ownTool,
		"tools[local_shell]":               ownTool,
		"tools[shell]":                     ownTool,
		"tools[programmatic_tool_calling]": ownTool,
		"conversation":                     "its id",
		"moderation":                       "read by turn.CheckModeration",
		"*.caller":                         "which program has called: none does",
		"*.annotations":                    "where the text has citations, which its text has too",
		"*.logprobs":                       "of an answer, which the model does not see",
		"tools.tools.format[grammar]":      "read by readFormat",
		"tools.tools.format[text]":         "read by readFormat",
		"tools.format[grammar]":            "read by readFormat",
		"tools.format[text]":               "read by readFormat",
		"tools[mcp].allowed_tools":         "read by readToolFilter",
		"tools[mcp].require_approval":      "read by readApproval",
		"tool_choice":                      "a tool of the service by its type",
		"tool_choice[function]":            "read by readToolName", "tool_choice[custom]": "read by readToolName",
		"tool_choice[mcp]": "read by addHostedChoice", "tool_choice[apply_patch]": "read by clientToolName", "tool_choice[shell]": "read by clientToolName",
		"tool_choice[programmatic_tool_calling]": "a 400",
	}
	objects.Knows(t, responses.ResponseNewParams{}, opaque)
	objects.KnowsPython(t, "openai.types.responses.response_create_params:ResponseCreateParamsStreaming", opaque)
}

// TestKnowsDialects shows that every field of other servers has a row.
func TestKnowsDialects(t *testing.T) {
	t.Chdir("..") // the paths of apitest begin in the directory of an API
	objects.KnowsDialects(t, "responses")
}

// TestVocabulary shows that no other name of what the API has is ignored.
func TestVocabulary(t *testing.T) {
	t.Chdir("..") // the paths of apitest begin in the directory of an API
	testAPI.RefusesVocabulary(t, ask(`,%s`))
	testAPI.RefusesSpellings(t, objects, ask(`,%s`))
}

// TestUnknownItems shows what becomes of items and of content parts of other types.
func TestUnknownItems(t *testing.T) {
	t.Parallel()
	const hi = `{"role":"user","content":"Hi"},`
	testAPI.HandlesUnknown(t, `{"model":"m","input":[`+hi+`%s]}`, "input[1]", "input.new_kind")
	testAPI.HandlesUnknown(t, `{"model":"m","input":[{"role":"user","content":[%s]}]}`, "input[0].content[0]", "")
	testAPI.HandlesUnknown(t, `{"model":"m","input":[`+hi+`{"type":"function_call","call_id":"a","name":"f"},{"type":"function_call_output","call_id":"a","output":[%s]}]}`, "input[2].output[0]", "")
}
