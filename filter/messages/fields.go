package messages

import (
	"math"
	"net/http"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// codeNoThreads is the code on which Anthropic's SDKs send the whole conversation.
const codeNoThreads = "thread_unsupported_request"

// fields has the top-level fields that the decoder knows. Other fields are ignored.
// The table in docs/compatibility.md has the same rows.
var fields = jsontext.With(jsontext.Table[*decoder]{
	"messages": {Read: (*decoder).readMessages},
	"system":   {Read: (*decoder).readSystem},

	"max_tokens": {Read: func(d *decoder, v jsontext.Field) *apierror.Error {
		return v.SetInteger(&d.input.Engine.MaxTokens, 1, math.MaxInt32)
	}},
	"stream":         {Read: func(d *decoder, v jsontext.Field) *apierror.Error { return v.SetSwitch(&d.options.stream) }},
	"stop_sequences": {Read: (*decoder).readStopSequences},
	"thinking":       {Read: (*decoder).readThinking},
	"output_config":  {Read: (*decoder).readOutputConfig},
	"output_format":  {Read: (*decoder).readOutputFormat},
	"metadata":       {Read: (*decoder).readMetadata},
	"diagnostics":    {Read: (*decoder).readDiagnostics},
	"cache_control":  {Read: func(*decoder, jsontext.Field) *apierror.Error { return nil }}, // engines cache prefixes by themselves

	"thread": {Read: func(*decoder, jsontext.Field) *apierror.Error {
		return apierror.New(http.StatusBadRequest, codeNoThreads, "thread", "Message threads are not supported. Leave thread out, and send the whole conversation.")
	}},

	"tools":       {Read: (*decoder).readTools},
	"tool_choice": {Read: (*decoder).readToolChoice},
	"mcp_servers": {Read: (*decoder).readMCPServers},
	"container":   {Read: (*decoder).readContainer},

	"context_management": {Ignored: true},
	"fallbacks":          {Ignored: true},
	"inference_geo":      {Ignored: true},
	"service_tier":       {Ignored: true},
	"speed":              {Ignored: true},
	"user_profile_id":    {Ignored: true},
	"workspace_id":       {Ignored: true},
}, turn.SamplingFields, func(d *decoder) turn.Sampling { return turn.Sampling{Input: &d.input, Limits: &d.rc.Limits} })
