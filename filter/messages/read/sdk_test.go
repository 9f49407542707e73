package read

import (
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
)

// TestKnowsTheSDK shows that every field of anthropic-sdk-go's requests has a row.
func TestKnowsTheSDK(t *testing.T) {
	t.Parallel()
	const (
		block  = "see Content blocks in docs/compatibility.md"
		served = "tools of the service are run, or named in the header: see readServerTool"
	)
	objects.Knows(t, anthropic.BetaMessageNewParams{}, map[string]string{
		"messages.content[advisor_tool_result]":                    block,
		"messages.content[bash_code_execution_tool_result]":        block,
		"messages.content[code_execution_tool_result]":             block,
		"messages.content[compaction]":                             block,
		"messages.content[container_upload]":                       block,
		"messages.content[document]":                               block,
		"messages.content[fallback]":                               block,
		"messages.content[image]":                                  block,
		"messages.content[mcp_tool_listing]":                       block,
		"messages.content[mcp_tool_result]":                        block,
		"messages.content[mcp_tool_use]":                           block,
		"messages.content[redacted_thinking]":                      block,
		"messages.content[search_result]":                          block,
		"messages.content[server_tool_use]":                        block,
		"messages.content[text]":                                   block,
		"messages.content[text_editor_code_execution_tool_result]": block,
		"messages.content[thinking]":                               block,
		"messages.content[tool_addition]":                          block,
		"messages.content[tool_removal]":                           block,
		"messages.content[tool_search_tool_result]":                block,
		"messages.content[web_fetch_tool_result]":                  block,
		"messages.content[web_search_tool_result]":                 block,
		"messages.content.content[browser_state]":                  block,
		"messages.content.content[document]":                       block,
		"messages.content.content[image]":                          block,
		"messages.content.content[search_result]":                  block,
		"messages.content.content[text]":                           block,
		"messages.content.content[tool_reference]":                 block,
		"*.caller":                          "which program has called: none does",
		"diagnostics":                       "read by readDiagnostics",
		"cache_control[ephemeral]":          "engines cache prefixes by themselves",
		"*.cache_control":                   "engines cache prefixes by themselves",
		"mcp_servers[url]":                  "read by readMCPServer",
		"output_config.format[json_schema]": "read by readOutputFormat",
		"output_format[json_schema]":        "read by readOutputFormat",
		"thread[continue]":                  "the field itself is a 400",
		"thread[create]":                    "the field itself is a 400",
		"system[text]":                      "read by readText",
		"tools.input_schema[object]":        "a schema",
		"tools.allowed_domains":             served,
		"tools.blocked_domains":             served,
		"tools.caching":                     served,
		"tools.citations":                   served,
		"tools.configs":                     served,
		"tools.default_config":              served,
		"tools.max_content_tokens":          served,
		"tools.max_tokens":                  served,
		"tools.max_uses":                    served,
		"tools.mcp_server_name":             served,
		"tools.model":                       served,
		"tools.response_inclusion":          served,
		"tools.tools":                       served,
		"tools.url_sources":                 served,
		"tools.use_cache":                   served,
		"tools.user_location":               served,
	})
}

// TestKnowsDialects shows that every field of other servers has a row.
func TestKnowsDialects(t *testing.T) {
	t.Chdir("..") // the paths of apitest begin in the directory of an API
	objects.KnowsDialects(t, "messages")
}

// TestVocabulary shows that no other name of what the API has is ignored.
func TestVocabulary(t *testing.T) {
	t.Chdir("..") // the paths of apitest begin in the directory of an API
	testAPI.RefusesVocabulary(t, ask(`,%s`))
	testAPI.RefusesSpellings(t, objects, ask(`,%s`))
}

// TestUnknownBlocks shows what becomes of blocks of other types, wherever they stand.
func TestUnknownBlocks(t *testing.T) {
	t.Parallel()
	testAPI.HandlesUnknown(t, conversation(`{"role":"user","content":[%s]}`, ``), "messages[0].content[0]", "messages.content.new_kind")
	testAPI.HandlesUnknown(t, conversation(userHi+`,`+callA+`,{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_a","content":[%s]}]}`, weatherTool),
		"messages[2].content[0].content[0]", "messages.content.new_kind")
}
