package responses

import (
	"context"
	"slices"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
)

// A call that needs the client's approval is an mcp_approval_request, with which
// the response ends. The request that goes on with it says in an
// mcp_approval_response whether the call may be made, and its reply begins with
// the mcp_call: made, or failed because it was not approved. So the model finds
// the call with its output where any other call has it, and the two items of the
// approval have nothing for it.

// verdict is what the request says of a call that needs approval.
type verdict struct {
	request  string // id of the mcp_approval_request
	approved bool
	reason   string
	at       string // where it stands in the request
}

// addApproval notes a verdict of this request. In a conversation that is sent
// again, or is stored, the call stands behind it.
func (d *decoder) addApproval(it item) *apierror.Error {
	if !d.reading {
		return nil
	}
	v := verdict{request: strings.Clone(it.at.Get("approval_request_id").Str), reason: strings.Clone(it.at.Get("reason").Str), at: it.at.Path}
	if v.request == "" {
		return apierror.Invalid(it.at.Path+".approval_request_id", "An approval has no approval_request_id.")
	}
	if err := (jsontext.Field{Result: it.at.Get("approve"), Path: it.at.Path + ".approve"}).SetSwitch(&v.approved); err != nil {
		return err
	}
	again := func(o verdict) bool { return o.request == v.request }
	switch {
	case d.facts.settled[v.request], slices.ContainsFunc(d.verdicts, again):
		return apierror.Invalid(it.at.Path+".approval_request_id", "The mcp_approval_request %q has been answered already.", clip(v.request))
	case len(d.verdicts) >= d.scope.Limits.Tools:
		return apierror.Invalid(it.at.Path, "More than %d approvals.", d.scope.Limits.Tools)
	}
	d.verdicts = append(d.verdicts, v)
	return nil
}

// addApprovalRequest notes what an approval may be about.
func (d *decoder) addApprovalRequest(it item) *apierror.Error {
	if d.asked == nil {
		d.asked = map[string]item{}
	}
	d.asked[it.id] = it
	return nil
}

// approvedCall is a call about which the request has a verdict.
type approvedCall struct {
	verdict
	label     string
	name      string
	arguments string

	result *tools.Result                                         // nil: the call may be made
	settle func(ctx context.Context, result *tools.Result) error // keeps what came of it; nil: there is nothing to keep
}

// findApproved gives the calls about which the request has a verdict, in order.
func (d *decoder) findApproved(ctx context.Context) ([]approvedCall, *apierror.Error) {
	if err := d.findAsked(ctx); err != nil {
		return nil, err
	}
	calls := make([]approvedCall, 0, len(d.verdicts))
	for _, v := range d.verdicts {
		asked := d.asked[v.request]
		if asked.kind != "mcp_approval_request" {
			return nil, apierror.Invalid(v.at+".approval_request_id", "There is no mcp_approval_request with the id %q. Send it in the input, or continue the response that has it.", clip(v.request))
		}
		arguments, err := readArguments(asked.arguments)
		if err != nil {
			return nil, err
		}
		calls = append(calls, approvedCall{
			verdict: v, label: strings.Clone(asked.server), name: strings.Clone(asked.name), arguments: strings.Clone(arguments),
		})
	}
	return calls, nil
}

// findAsked reads the stored requests for approval that are not in the input.
func (d *decoder) findAsked(ctx context.Context) *apierror.Error {
	var missing []string
	for _, v := range d.verdicts {
		if _, known := d.asked[v.request]; !known {
			missing = append(missing, v.request)
		}
	}
	if len(missing) == 0 || d.api.Store == nil {
		return nil
	}
	found, err := d.fetch(ctx, "input", missing)
	if err != nil {
		return err
	}
	for _, stored := range found {
		it, err := readStored(stored, "input")
		if err != nil {
			return err
		}
		if err := d.addApprovalRequest(it); err != nil {
			return err
		}
	}
	return nil
}

// serverOf finds the server of an approved call among the request's tools.
func (d *decoder) serverOf(c *approvedCall) (*hosted, *apierror.Error) {
	for _, h := range d.hosted {
		if h.builtin == nil && h.label == c.label {
			return h, nil
		}
	}
	return nil, apierror.Invalid("tools", "The call that is approved is one of the MCP server %q, which is not among the tools of the request. Send the tool again.", clip(c.label))
}
