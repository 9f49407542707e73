package turn

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/output"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/prompt"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/toolset"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Prepare turns a request into a token request. If it rejects the request, the
// error is a 400 that names the field at fault.
//
// It reads from the store and renders the conversation, which can take seconds:
// call it from jobs and from handlers of endpoints, with the context that bounds
// them, and never between the chunks of a reply.
func Prepare(ctx context.Context, rc *request.Context, in *request.Input) (*Turn, *apierror.Error) {
	turn := &Turn{rc: *rc}
	turn.rc.Work = rc.Work.Within(ctx)

	// From here on rc is the turn's own copy, whose work ends with this context.
	rc = &turn.rc

	conversation, err := prompt.New(rc, in)
	if err != nil {
		return nil, err
	}
	in = conversation.Input
	tools, err := toolset.New(rc, in, conversation.JoinedTools())
	if err != nil {
		return nil, err
	}

	// Without its names of tools a request has no spec, so that the tools are read first.
	choice := tools.Narrow(in.Choice)
	spec, err := toolset.NewSpec(rc, in, choice, tools)
	if err != nil {
		return nil, err
	}
	plan := output.NewPlan(rc, in, tools)
	if err := plan.VerifyLater(in, &spec); err != nil {
		return nil, err
	}

	turn.routing = routingOf(rc, &conversation)
	turn.affinity = affinityOf(rc, &conversation)
	rendered, err := conversation.Render(ctx, rc, tools)
	if err != nil {
		return nil, err
	}
	turn.fault, turn.completionStart = rendered.Fault, rendered.Completion

	tools.DropDefinitions()
	turn.diagnose(&conversation, &rendered)

	// A grammar describes messages from their beginning, and the engine would apply it to the rest of
	// one.
	format := spec.Format(rc.Work)
	if in.Continue && spec.Restricts() {
		return nil, apierror.Invalid("continue_final_message",
			"A message cannot be continued under tool_choice, strict tools or an output format. Leave them "+
				"out, or continue_final_message.")
	}
	if turn.Engine, err = engineRequest(rc, in, rendered.Tokens, format); err != nil {
		return nil, err
	}
	turn.retain(&conversation, &rendered, !tools.Empty())
	turn.Engine.Advised = turn.Engine.Constraint != nil && !spec.Restricts()

	turn.constraintParam = "tools"
	if in.Format != nil {
		turn.constraintParam = in.Format.Path
	}

	plan.Call, plan.Listener, plan.Diagnosis = turn.Engine, &turn.heard, turn.heard.diagnosed.found
	plan.Header, plan.Begun, plan.Due = rendered.Header, rendered.Begun, rendered.Due
	// Where any output is valid there is nothing to verify.
	if spec.Restricts() {
		if err := plan.Verify(in, &spec, choice); err != nil {
			return nil, err
		}
	}
	turn.plan = plan
	turn.heard.diagnosed.call = turn.Engine

	// Work that was refused on the way may have been done without, in silence.
	if err := rc.WorkRefused(""); err != nil {
		return nil, err
	}
	return turn, nil
}

// LeaveUnread makes the model call one of which nobody gets the output: the engine computes the prompt, so that
// it is in its cache when a later request extends it. No engine does that without writing a token.
func (t *Turn) LeaveUnread() {
	t.Engine.MaxTokens, t.Engine.MinTokens, t.Engine.Unlimited = 1, 0, false
	t.Engine.Constraint, t.Engine.Advised = nil, false
}

// engineRequest returns the model call for a prompt; format is the constraint of
// its output, nil for none.
func engineRequest(
	rc *request.Context, in *request.Input, tokens []harmony.Token, format constraint.Format,
) (*engine.Request, *apierror.Error) {
	call := in.Engine
	call.ID.Unique, call.ID.Number = uniqueID(rc), 1
	call.Prompt = tokens
	call.Model = cmp.Or(rc.Model.Upstream, call.Model)
	call.N = max(call.N, 1)
	if !rc.Checked {
		call.Constraint = format
	}
	return &call, limitOutput(rc, &call)
}

// uniqueID returns what tells the request from others at the engine. Ids that [Env.NewID] makes
// have no length that is sure.
func uniqueID(rc *request.Context) string {
	sum := sha256.Sum256([]byte(rc.NewID("")))
	return hex.EncodeToString(sum[:4])
}

// limitOutput limits the output of a request to what the context leaves.
func limitOutput(rc *request.Context, call *engine.Request) *apierror.Error {
	left := rc.ContextLength() - len(call.Prompt)

	switch {
	case left <= 0 && rc.Unbounded && len(call.Prompt) <= rc.RenderLimit():
		call.MaxTokens, call.MinTokens = 0, 0
		return nil
	case left <= 0:
		return prompt.TooLong(rc, len(call.Prompt), "")
	}

	// Without a limit the output may have all that is left.
	call.Unlimited = call.MaxTokens <= 0
	if call.MaxTokens <= 0 || call.MaxTokens > left {
		call.MaxTokens = left
	}
	call.MinTokens = min(call.MinTokens, call.MaxTokens)
	return nil
}
