package extproc

import (
	"maps"
	"strings"

	aidatav3 "github.com/envoyproxy/go-control-plane/envoy/data/ai/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	aitypev3 "github.com/envoyproxy/go-control-plane/envoy/type/ai/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
	"github.com/envoy-harmony/envoy-harmony/filter/telemetry"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// Dynamic metadata for access logs, rate limits and, where Envoy sends the client's
// own request on, for the filters and load balancers behind this one. Envoy gets it
// twice: with the first message about what becomes of a request, and with the last
// message of its reply. It merges the fields. docs/routing.md lists them.

// names are the fields of every request.
func (f *metadataFields) names(apiName, model, engineName string) {
	f.text("api", apiName)
	f.text("model", model)
	f.text("engine", engineName)
}

// spareMetadata is the capacity of fields, in bytes: all of a reply except long names.
const spareMetadata = 512

// requestMetadata are the fields of a request. One without a model call yet has
// only the names.
func requestMetadata(apiName string, r api.Request, t *run.Target) metadataFields {
	fields := make(metadataFields, 0, spareMetadata)
	fields.names(apiName, t.Model, t.Engine)
	fields.flag("stream", r.Info().Stream)
	if request := r.Engine(); request != nil {
		info := r.RoutingInfo()
		fields.number("choices", request.N)
		fields.number("prompt_tokens", len(request.Prompt))
		fields.number("max_tokens", request.MaxTokens)
		fields.number("items", info.Items)
		fields.number("tools", info.Tools)
		if info.LastUserText != "" {
			fields.text("text", info.LastUserText)
		}
	}
	return fields
}

// reply are the fields of a reply at its end. What no engine has begun to
// answer has used no tokens, and has no numbers of them.
func (f *metadataFields) reply(r *telemetry.Report) {
	f.text("outcome", r.Outcome)
	f.number("status", r.Status)
	f.number("retries", r.Retries)
	if r.Continuations > 0 {
		f.number("continuations", r.Continuations)
	}
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
	if r.Priced {
		f.fraction("cost", r.Cost)
	}
}

func repairs(s *turn.Summary) (n int) {
	for made := range maps.Values(s.Repairs) {
		n += made
	}
	return n
}

// usageMessage is the usage of a reply with all its parts in one allocation.
type usageMessage struct {
	usage                aidatav3.TokenUsage
	inputDetail          aidatav3.InputTokenDetails
	outputDetail         aidatav3.OutputTokenDetails
	input, output, total wrapperspb.UInt64Value
	cached, reasoning    wrapperspb.UInt64Value
}

// tokenUsage is the usage of a reply in the message that Envoy 1.40's own
// extraction has; nil if no engine has begun to answer.
func tokenUsage(apiName, model string, r *telemetry.Report) *aidatav3.TokenUsage {
	if !r.Answered {
		return nil
	}

	s, m := &r.Summary, &usageMessage{}
	m.outputDetail.ReasoningTokens = count(&m.reasoning, s.Counts.Reasoning)
	usage := &m.usage
	usage.LlmProtocol = aitypev3.LLMProtocol_OPENAI_CHAT_COMPLETIONS
	usage.Model = strings.ToValidUTF8(model, "\ufffd")
	usage.InputTokens = count(&m.input, s.Prompt)
	usage.OutputTokens = count(&m.output, s.Counts.Output)
	usage.TotalTokens = count(&m.total, s.Prompt+s.Counts.Output)
	usage.OutputTokenDetails = &m.outputDetail
	usage.ExtractionStatus = aidatav3.TokenUsage_COMPLETE

	switch apiName {
	case "responses":
		usage.LlmProtocol = aitypev3.LLMProtocol_OPENAI_RESPONSES
	case "messages":
		usage.LlmProtocol = aitypev3.LLMProtocol_ANTHROPIC_MESSAGES
	}

	if s.Cached != engine.Unknown {
		m.inputDetail.CachedTokens = count(&m.cached, s.Cached)
		usage.InputTokenDetails = &m.inputDetail
	}
	if !r.Complete {
		usage.ExtractionStatus = aidatav3.TokenUsage_PARTIAL
	}
	return usage
}

func count(to *wrapperspb.UInt64Value, n int) *wrapperspb.UInt64Value {
	to.Value = uint64(max(n, 0)) //nolint:gosec // not negative
	return to
}

// metadata is what Envoy has to learn of an exchange.
type metadata struct {
	request func() metadataFields // of the request; nil: there are none, or Envoy has them
}

// begin adds to the first message about what becomes of the request what is known of
// it.
func (d *metadata) begin(m *extprocv3.ProcessingResponse) {
	if d.request != nil {
		d.request().addTo(m, nil)
		d.request = nil
	}
}

// end adds to the last message of a reply what is known of it, and what Envoy does
// not know yet of the request.
func (d *metadata) end(m *extprocv3.ProcessingResponse, record *telemetry.Record, o *telemetry.Outcome) {
	if o.Engine == "" { // no model is asked
		return
	}

	// A reply that ends with its first message has had no message about its request.
	report := record.Report(o)
	fields := make(metadataFields, 0, spareMetadata)
	if d.request != nil {
		fields = d.request()
		d.request = nil
	} else {
		fields.names(o.API, o.Model, o.Engine)
	}
	fields.reply(&report)
	fields.addTo(m, tokenUsage(o.API, o.Model, &report))
}
