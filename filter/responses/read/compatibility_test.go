package read

import (
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/toolset"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// objects are the tables of the objects of a request, by their paths.
var objects = apitest.Objects{
	"":                           apitest.Fields(fields),
	"reasoning":                  apitest.Fields(reasoningFields),
	"thinking":                   apitest.Fields(turn.ThinkingFields),
	"chat_template_kwargs":       apitest.Fields(turn.TemplateFields),
	"text":                       apitest.Fields(textFields),
	"text.format":                apitest.Fields(toolset.FormatFields),
	"context_management":         apitest.Fields(toolset.ManagementFields),
	"structured_outputs":         apitest.Fields(turn.OutputFields),
	"tools[function]":            apitest.Fields(toolset.FunctionFields),
	"tools[custom]":              apitest.Fields(toolset.CustomFields),
	"tools[namespace]":           apitest.Fields(toolset.SpaceFields),
	"tools[tool_search]":         apitest.Fields(toolset.SearchFields),
	"tools[mcp]":                 apitest.Fields(toolset.ServerFields),
	"prompt_cache_options":       apitest.Fields(toolset.CacheFields),
	"tools.tools[function]":      apitest.Fields(toolset.FunctionFields),
	"tools.tools[custom]":        apitest.Fields(toolset.CustomFields),
	"tool_choice[allowed_tools]": apitest.Fields(toolset.AllowedFields),

	"input[message]":                 apitest.Fields(itemMembers["message"]),
	"input[reasoning]":               apitest.Fields(itemMembers["reasoning"]),
	"input[function_call]":           apitest.Fields(itemMembers["function_call"]),
	"input[function_call_output]":    apitest.Fields(itemMembers["function_call_output"]),
	"input[custom_tool_call]":        apitest.Fields(itemMembers["custom_tool_call"]),
	"input[custom_tool_call_output]": apitest.Fields(itemMembers["custom_tool_call_output"]),
	"input.content[input_text]":      apitest.Fields(partMembers["input_text"]),
	"input.content[output_text]":     apitest.Fields(partMembers["output_text"]),
	"input.content[refusal]":         apitest.Fields(partMembers["refusal"]),
	"input.content[input_image]":     apitest.Fields(partMembers["input_image"]),
	"input.output[input_text]":       apitest.Fields(partMembers["input_text"]),
	"input.output[input_image]":      apitest.Fields(partMembers["input_image"]),
	"input.content[reasoning_text]":  apitest.Fields(partMembers["reasoning_text"]),
	"input.summary[summary_text]":    apitest.Fields(partMembers["summary_text"]),
	"input.content[input_file]":      apitest.Fields(partMembers["input_file"]),
	"input.output[input_file]":       apitest.Fields(partMembers["input_file"]),
}

// TestCompatibilityTables compares docs/compatibility.md with the decoder.
func TestCompatibilityTables(t *testing.T) {
	t.Chdir("..") // the paths of apitest begin in the directory of an API
	const endpoint = "POST /v1/responses"
	apitest.Documented(t, endpoint, "", objects[""])
	apitest.Documented(t, endpoint, "Members", objects.Below("tools.tools[function]", "tools.tools[custom]"))
	coded := map[string]apitest.Handled{}
	for name := range itemTypes {
		coded[name] = apitest.Handled{State: "mapped"}
	}
	apitest.Documented(t, endpoint, "Input items", coded)
}
