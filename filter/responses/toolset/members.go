package toolset

import "github.com/envoy-harmony/envoy-harmony/filter/jsontext"

// The members of tools, by their types.
var (
	FunctionFields = ofTool("name", "description", "parameters", "strict", "defer_loading", "allowed_callers")
	CustomFields   = ofTool("name", "description", "format", "defer_loading", "allowed_callers")
	SpaceFields    = ofTool("name", "description", "tools")
	SearchFields   = ofTool("execution", "description", "parameters")
	ServerFields   = jsontext.Members{
		"server_url":    {Keep: jsontext.KeepServer},
		"authorization": {Keep: jsontext.KeepNothing},
		"headers":       {Keep: jsontext.KeepNames},
	}.Beside(ofTool("server_label", "server_description", "allowed_tools", "require_approval", "defer_loading"))
)

// ofTool are the members of a type of tools: those that its reader has code for, and what
// becomes of the others.
func ofTool(own ...string) jsontext.Members {
	fields := jsontext.Members{
		"input_examples":  {Refused: "Examples of the input belong into the description of the function."},
		"connector_id":    {Refused: "Connectors are OpenAI's own. Name the server_url of an MCP server."},
		"tunnel_id":       {Refused: "Tunnels are OpenAI's own. Name the server_url of an MCP server."},
		"output_schema":   {Ignored: "what a program may do with the output: the model calls tools without programs"},
		"allowed_callers": {Ignored: "which programs may call the tool: there are none"},
		"async":           {Ignored: "how the client runs the tool"},
		"background":      {Ignored: "how the client runs the tool"},
		"cache_control":   {Ignored: "engines cache prefixes by themselves"},
	}

	for _, name := range append(own, "type") {
		fields[name] = jsontext.Row[struct{}]{}
	}

	return fields
}

// The members of objects whose readers have code of their own.
var (
	FormatFields = jsontext.Members{"type": {}, "name": {}, "description": {}, "schema": {}, "strict": {}}

	ManagementFields = jsontext.Members{"type": {}, "compact_threshold": {}}

	CacheFields = jsontext.Members{
		"mode": {}, "ttl": {}, "comparison_response_id": {},
		"prewarm": {},
	}

	AllowedFields = jsontext.Members{"type": {}, "mode": {}, "tools": {}}
)
