package extproc

import (
	"maps"
	"strings"

	aidatav3 "github.com/envoyproxy/go-control-plane/envoy/data/ai/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	aitypev3 "github.com/envoyproxy/go-control-plane/envoy/type/ai/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/header"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
	"github.com/envoy-harmony/envoy-harmony/filter/telemetry"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// Dynamic metadata for access logs, rate limits and, where Envoy sends the client's
// own request on, for the filters and load balancers behind this one. Envoy gets it
// twice: with the first message about what becomes of a request, and with the last
// message of its reply. It merges the fields. docs/routing.md lists them.

// metadataFields are fields of the namespace header.MetadataNamespace.
type metadataFields map[string]*structpb.Value

func (f metadataFields) number(name string, n int) { f[name] = structpb.NewNumberValue(float64(n)) }

func (f metadataFields) text(name, s string) {
	f[name] = structpb.NewStringValue(strings.ToValidUTF8(s, "\ufffd"))
}

// names are the fields of every request.
func (f metadataFields) names(apiName, model, engineName string) {
	f.text("api", apiName)
	f.text("model", model)
	f.text("engine", engineName)
}

// addTo adds the fields to a message.
func (f metadataFields) addTo(m *extprocv3.ProcessingResponse) {
	m.DynamicMetadata = &structpb.Struct{Fields: map[string]*structpb.Value{
		header.MetadataNamespace: structpb.NewStructValue(&structpb.Struct{Fields: f}),
	}}
}

// requestMetadata are the fields of a request. One without a model call yet has
// only the names.
func requestMetadata(apiName string, r api.Request, t *run.Target) metadataFields {
	fields := metadataFields{}
	fields.names(apiName, t.Model, t.Engine)
	fields["stream"] = structpb.NewBoolValue(r.Stream())
	if request := r.Engine(); request != nil {
		info := r.RoutingInfo()
		for name, n := range map[string]int{
			"choices": request.N, "prompt_tokens": len(request.Prompt), "max_tokens": request.MaxTokens,
			"items": info.Items, "tools": info.Tools,
		} {
			fields.number(name, n)
		}
		if info.LastUserText != "" {
			fields["text"] = structpb.NewStringValue(info.LastUserText)
		}
	}
	return fields
}

// reply are the fields of a reply at its end. What no engine has begun to
// answer has used no tokens, and has no numbers of them.
func (f metadataFields) reply(r *telemetry.Report) {
	f.text("outcome", r.Outcome)
	f.number("status", r.Status)
	f.number("retries", r.Retries)
	f.number("tool_calls", r.ToolCalls)
	if r.FirstToken > 0 {
		f.number("time_to_first_token_ms", int(r.FirstToken.Milliseconds()))
	}
	if !r.Answered {
		return
	}
	s := &r.Summary
	f.number("input_tokens", s.Prompt)
	if s.Cached != engine.Unknown {
		f.number("cached_tokens", s.Cached)
	}
	f.number("output_tokens", s.Counts.Output)
	f.number("reasoning_tokens", s.Counts.Reasoning)
	f.number("total_tokens", s.Prompt+s.Counts.Output)
	if s.Finish != turn.FinishNone {
		f.text("finish", string(s.Finish))
	}
	f.number("repairs", repairs(s))
}

func repairs(s *turn.Summary) (n int) {
	for made := range maps.Values(s.Repairs) {
		n += made
	}
	return n
}

// tokenUsage is the usage of a reply in the message that Envoy 1.40's own
// extraction has; nil if no engine has begun to answer.
func tokenUsage(apiName, model string, r *telemetry.Report) *aidatav3.TokenUsage {
	if !r.Answered {
		return nil
	}
	s := &r.Summary
	usage := &aidatav3.TokenUsage{
		LlmProtocol:        aitypev3.LLMProtocol_OPENAI_CHAT_COMPLETIONS,
		Model:              strings.ToValidUTF8(model, "\ufffd"),
		InputTokens:        count(s.Prompt),
		OutputTokens:       count(s.Counts.Output),
		TotalTokens:        count(s.Prompt + s.Counts.Output),
		OutputTokenDetails: &aidatav3.OutputTokenDetails{ReasoningTokens: count(s.Counts.Reasoning)},
		ExtractionStatus:   aidatav3.TokenUsage_COMPLETE,
	}
	switch apiName {
	case "responses":
		usage.LlmProtocol = aitypev3.LLMProtocol_OPENAI_RESPONSES
	case "messages":
		usage.LlmProtocol = aitypev3.LLMProtocol_ANTHROPIC_MESSAGES
	}
	if s.Cached != engine.Unknown {
		usage.InputTokenDetails = &aidatav3.InputTokenDetails{CachedTokens: count(s.Cached)}
	}
	if !r.Complete {
		usage.ExtractionStatus = aidatav3.TokenUsage_PARTIAL
	}
	return usage
}

func count(n int) *wrapperspb.UInt64Value {
	return wrapperspb.UInt64(uint64(max(n, 0))) //nolint:gosec // not negative
}

// metadata is what Envoy has to learn of an exchange.
type metadata struct {
	request func() metadataFields // of the request; nil: there are none, or Envoy has them
}

// begin adds to the first message about what becomes of the request what is known of
// it.
func (d *metadata) begin(m *extprocv3.ProcessingResponse) {
	if d.request != nil {
		d.request().addTo(m)
		d.request = nil
	}
}

// end adds to the last message of a reply what is known of it, and what Envoy does
// not know yet of the request.
func (d *metadata) end(m *extprocv3.ProcessingResponse, record *telemetry.Record, o *telemetry.Outcome) {
	if o.Engine == "" { // no model is asked
		return
	}
	fields, report := metadataFields{}, record.Report(o)
	if d.request != nil {
		fields = d.request()
		d.request = nil
	}
	fields.names(o.API, o.Model, o.Engine)
	fields.reply(&report)
	fields.addTo(m)
	if usage := tokenUsage(o.API, o.Model, &report); usage != nil {
		if typed, err := anypb.New(usage); err == nil {
			m.TypedDynamicMetadata = map[string]*anypb.Any{header.TokenUsageNamespace: typed}
		}
	}
}
