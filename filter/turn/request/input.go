package request

import (
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Choice restricts what the model may do with the tools.
type Choice struct {
	// At least one call, and no answer.
	Required bool
	// The only tools that may be called; nil: all, but if Required built-in tools only if there
	// are no others.
	Allowed []item.ToolName
}

// AllowedSet returns the tools that may be called as a set; nil: all.
func (c *Choice) AllowedSet() map[item.ToolName]bool {
	if c.Allowed == nil {
		return nil
	}
	set := make(map[item.ToolName]bool, len(c.Allowed))
	for _, name := range c.Allowed {
		set[name] = true
	}

	return set
}

// Format is the output format: the form that the answer must have.
type Format struct {
	Answer constraint.Answer
	// What the prompt says about it; nil: nothing.
	Announced *harmony.ResponseFormat
	// The whole schema is enforced, not only the part that grammars can express.
	Strict bool
	// The field of the request that has it, once it is set.
	Path string
}

// Rendered is the beginning of a conversation whose tokens are known. A prompt.Prefix is one.
type Rendered interface {
	// Len returns the number of items of the beginning.
	Len() int
}

// Input is the input of one turn.
//
// It is large because it has what all APIs can say about one.
type Input struct {
	// The conversation.

	// Instructions precede the items; "": there are none.
	Instructions string
	// Before replaces the items before Items. Whole returns these items; it is
	// called if the conversation has to be truncated.
	Before Rendered
	Whole  func() ([]item.Item, *apierror.Error)
	Items  []item.Item
	// The last item, an assistant's reasoning or text, is incomplete: the model continues it.
	Continue bool
	// Drop the oldest turns if the conversation is longer than the context.
	Truncate bool
	// Summarizes is that the reply is a summary in the conversation's place, from which alone it goes on.
	Summarizes bool
	// ShownID returns the id by which the client knows a call, for errors; nil: they are the same.
	ShownID func(callID string) string
	// The session that the body names, which precedes [Context].Session; "": it names none.
	Session string
	// The reply, and the one that it is compared with.
	Replies Replies

	// The tools that are offered, and what may be done with them.

	// With the client's names; plain functions are in FunctionsNamespace.
	Tools []harmony.Namespace
	// Tools of the system message, such as browser, python and container; a namespace without
	// functions is a tool itself, called with code.
	Builtins []harmony.Namespace
	// Tools that may join by Turn.Continue, see JoinedTools; they are not rendered, but calls
	// of them are known.
	Deferred []harmony.Namespace
	// Withdrawn are tools that stay in the prompt, whose prefix engines have cached, and that must
	// not be called any more. Who makes the reply answers calls of them.
	Withdrawn map[item.ToolName]bool
	// Tools are not offered, and calls are withheld.
	NoCalls bool
	// The turn ends after one call.
	OneCall bool
	// Which tools may and must be called.
	Choice Choice
	// Tools whose arguments are not repaired: they need not be JSON.
	AsIs map[item.ToolName]bool
	// Tools whose arguments must follow their schemas, see [Input.SetStrict]; false: the client says that they
	// need not.
	Strict map[item.ToolName]bool
	// Of the arguments of tools, which an engine's grammar enforces; of own tools only.
	Grammars map[item.ToolName]constraint.Grammar

	// What the model writes, and what of it the client gets.

	// Of the answer; nil: any text.
	Format *Format
	// "": the model's default. NoEffort is that it is none, which is low, and hides the reasoning.
	Effort   harmony.Effort
	NoEffort bool
	// EffortUpdates are the efforts that the conversation sets, which precede the request's own.
	EffortUpdates EffortUpdates
	// OptedOut is that the request switches reasoning off: the effort is low, whatever else
	// says what it is, and the reply has nothing of the reasoning.
	OptedOut bool
	// HideReasoning is that the reply has nothing of the reasoning.
	HideReasoning bool
	// Most tokens of reasoning in a turn; nil, [Unlimited]: the request has no limit.
	Budget *int
	// Verbosity is what the model is told of the answer's length.
	Verbosity string
	// The answer ends where its text first contains one of these.
	Stop []string
	// The stop string stays in the text.
	KeepStop bool
	// IgnoreEOS makes the output as long as its limit of tokens; see [Input.FinishLength].
	IgnoreEOS bool

	// Engine holds the sampling parameters of the request. Of its ID the Request is the result
	// of [Context.ID]; Prepare sets the rest.
	// Prepare sets Model and Prompt. It sets MaxTokens if it is 0, and limits it to
	// what the context leaves.
	Engine engine.Request
}

// AllInstructions are those of the request, and what its fields tell the model.
func (in *Input) AllInstructions() string {
	switch {
	case strings.TrimSpace(in.Instructions) == "":
		return in.Verbosity
	case in.Verbosity == "":
		return in.Instructions
	}
	return in.Instructions + "\n\n" + in.Verbosity
}

// SetChoice sets a tool_choice that is a word. It reports whether the word is
// valid.
func (in *Input) SetChoice(word string) bool {
	switch word {
	case "auto":
	case "none":
		in.NoCalls = true
	case "required":
		in.Choice.Required = true
	default:
		return false
	}
	return true
}

// FinishLength checks what the request says of the length of its output, when all fields
// are known. limit is the name of the field that limits it.
func (in *Input) FinishLength(limit string) *apierror.Error {
	request := &in.Engine

	// No engine lets a model write after an end token of Harmony. Load generators, which
	// send ignore_eos, want outputs of one length: the end tokens are forbidden until then.
	if in.IgnoreEOS {
		if request.MaxTokens <= 0 {
			return apierror.Invalid("ignore_eos",
				"With ignore_eos the output goes on to the limit of its tokens, and the request has none. "+
					"Send %s, or leave ignore_eos out.", limit)
		}
		request.MinTokens = request.MaxTokens
	}

	if request.MaxTokens > 0 && request.MinTokens > request.MaxTokens {
		return apierror.Invalid("min_tokens",
			"The field \"min_tokens\" is larger than the maximum number of tokens. Lower it, or raise %s.", limit)
	}
	return nil
}

// maxToolGrammars bounds the grammars of custom tools that an engine has to compile
// for one request.
const maxToolGrammars = 8

// RoomForGrammar reports whether the engine takes the grammar of one more tool, where those
// so far cost so much.
func (in *Input) RoomForGrammar(rc *Context, cost int) bool {
	return !rc.Checked && len(in.Grammars) < maxToolGrammars && cost <= constraint.MaxInputCost
}

// EnforceGrammar has the engine enforce the grammar of a tool's arguments.
func (in *Input) EnforceGrammar(name item.ToolName, grammar constraint.Grammar) {
	if in.Grammars == nil {
		in.Grammars = map[item.ToolName]constraint.Grammar{}
	}
	in.Grammars[name] = grammar
}

// EnforceText makes the input of tools that take text enforced where calls are enforced
// anyway: the model writes it as a function's arguments. Where they are not, other text
// than JSON is understood too.
func (in *Input) EnforceText(tools []item.ToolName) {
	if len(tools) == 0 {
		return
	}
	in.AsIs = make(map[item.ToolName]bool, len(tools))
	for _, name := range tools {
		in.AsIs[name] = true
	}

	if !in.Choice.Required && in.Choice.Allowed == nil && in.Format == nil && !in.HasStrict() {
		return
	}
	for _, name := range tools {
		in.SetStrict(name, Said(true))
	}
}

// Strictness is what a client says of whether the arguments of a tool must follow its schema. The zero value is
// nothing.
type Strictness struct{ said, on bool }

// Said is the strictness that a client has said.
func Said(on bool) Strictness { return Strictness{said: true, on: on} }

// Matters reports whether it makes a difference. That a tool is not strict does for one setting only, and some
// clients say it of all tools.
func (s Strictness) Matters(rc *Context) bool {
	return s.on || s.said && rc.Model.ToolStrictness == StrictnessArguments
}

// On reports whether the arguments must follow the schema.
func (s Strictness) On() bool { return s.on }

// SetStrict sets what the client has said of a tool, if it [Strictness.Matters].
func (in *Input) SetStrict(name item.ToolName, s Strictness) {
	if in.Strict == nil {
		in.Strict = map[item.ToolName]bool{}
	}
	in.Strict[name] = s.on
}

// HasStrict reports whether the arguments of a tool must follow its schema.
func (in *Input) HasStrict() bool {
	for _, strict := range in.Strict {
		if strict {
			return true
		}
	}
	return false
}
