package request

import (
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// The defaults of gpt-oss, which replace empty settings.
const (
	DefaultIdentity        = "You are ChatGPT, a large language model trained by OpenAI."
	DefaultKnowledgeCutoff = "2024-06"
	DefaultContextLength   = 131072
)

// The values of the settings in [Model].
const (
	ImagesPlaceholder = "placeholder"
	ImagesReject      = "reject"

	DateUTC  = "utc"
	DateNone = "none"

	MalformedRepair = "repair"
	MalformedFail   = "fail"

	ReasoningBoth    = "both"
	ReasoningShort   = "reasoning"
	ReasoningContent = "reasoning_content"

	EventsReasoningText = "reasoning_text" // response.reasoning_text.delta and .done
	EventsReasoning     = "reasoning"      // response.reasoning.delta and .done

	UnknownToClient = "client"
	UnknownToModel  = "model"

	ArgumentsRepair = "repair"
	ArgumentsPass   = "pass"
	ArgumentsRetry  = "retry"

	EffortExact      = "exact"
	EffortKeepPrefix = "keep_prefix"
)

// Model holds the settings of the model that a request is for. The zero value is
// gpt-oss as OpenAI released it.
type Model struct {
	// Its name at the engine; "": the client's.
	Upstream string `json:"upstream,omitempty"`
	// First line of the system message; "": [DefaultIdentity].
	Identity string `json:"identity,omitempty"`
	// "": [DefaultKnowledgeCutoff].
	KnowledgeCutoff string `json:"knowledge_cutoff,omitempty"`
	// Of requests without one; "": medium.
	Effort harmony.Effort `json:"reasoning_effort,omitempty"`
	// Efforts that a conversation sets after its beginning: "" or "exact": the prompt's head is
	// rewritten; "keep_prefix": it stays, and a budget of reasoning lowers the effort.
	EffortUpdates string `json:"effort_updates,omitempty"`
	// Tokens of prompt and output together; 0: [DefaultContextLength].
	ContextLength int `json:"context_length,omitempty"`
	// "" or "placeholder": a short text replaces an image; "reject": the request is a 400.
	Images string `json:"images,omitempty"`
	// "" or "utc": the day the conversation began; "none": no date; else the date itself.
	Date string `json:"date,omitempty"`
	// Malformed output: "" or "repair": it is repaired; "fail": it is an error.
	OnMalformed string `json:"on_malformed,omitempty"`
	// Arguments that are no JSON object: "" or "repair": they are repaired where there is only one
	// way; "pass": they are passed on as they are; "retry": what cannot be repaired, or breaks the
	// tool's schema, is asked for again.
	ToolArguments string `json:"tool_arguments,omitempty"`
	// What is asked of calls of tools that are not strict, where the engine's grammar can enforce it:
	// "" or "none": nothing; "names": they are of tools of the request; "arguments": their arguments
	// follow the schema too, unless the client says that they need not; "all_arguments": also then.
	ToolStrictness string `json:"tool_strictness,omitempty"`
	// A chat's calls of unknown tools: "" or "client": the client gets them; "model": the model is
	// told, and has another turn.
	UnknownTools string `json:"unknown_tools,omitempty"`
	// The members of the tools' schemas are sorted.
	Canonical bool `json:"canonical_schemas,omitempty"`
	// How the model's own steps are rendered: "exact": as it wrote them, where they still mean the
	// same; "" or "canonical": all in one form.
	History   string          `json:"history,omitempty"`
	Reasoning ReasoningLimits `json:"reasoning,omitzero"`
	// Chat's fields for reasoning: "" or "both", "reasoning", "reasoning_content".
	ReasoningFields string `json:"reasoning_fields,omitempty"`
	// The names of Responses' events of reasoning text: "" or "reasoning_text", those that OpenAI's
	// clients know; "reasoning", those of Open Responses.
	ReasoningEvents string `json:"reasoning_events,omitempty"`
}

// ImagePlaceholder replaces an image in a text, on a line of its own.
const ImagePlaceholder = "[An image was here. This model cannot see images.]"

// Unlimited is the budget of reasoning without a limit.
const Unlimited = -1

// ReasoningLimits are a model's settings about its reasoning. A zero switches off.
type ReasoningLimits struct {
	// Most tokens of reasoning in a turn.
	Budget int `json:"budget,omitempty"`
	// The same, of an effort.
	ByEffort map[harmony.Effort]int `json:"by_effort,omitempty"`
	// Tokens of the output's limit that reasoning does not use.
	ReserveFinal int `json:"reserve_final,omitempty"`
	// How often the same sequence of tokens may come in a row.
	MaxRepeats int `json:"max_repeats,omitempty"`
}

// The texts of the settings in [Model].
const (
	HistoryExact     = "exact"
	HistoryCanonical = "canonical"

	StrictnessNone      = "none"
	StrictnessNames     = "names"
	StrictnessArguments = "arguments"
	StrictnessAll       = "all_arguments"
)
