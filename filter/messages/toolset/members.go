package toolset

import "github.com/envoy-harmony/envoy-harmony/filter/jsontext"

// The members of objects of tools. docs/compatibility.md has them.
var (
	ToolFields = jsontext.Members{
		"name": {}, "description": {}, "strict": {}, "defer_loading": {},
		"input_schema":   {Keep: jsontext.KeepWhole},
		"input_examples": {Keep: jsontext.KeepWhole},
		"cache_control":  {}, "eager_input_streaming": {}, "type": {},
		"display_width_px": {}, "display_height_px": {}, "display_number": {}, "enable_zoom": {}, "max_characters": {},
		"allowed_callers": {Ignored: "which programs may call the tool: there are none"},
	}

	ChoiceFields = jsontext.Members{"type": {}, "name": {}, "disable_parallel_tool_use": {}}

	ContainerFields = jsontext.Members{
		"id":     {},
		"skills": {Refused: "Skills are Anthropic's own. Leave them out, and send their text as system."},
	}
)
