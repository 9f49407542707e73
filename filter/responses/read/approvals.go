package read

import (
	"context"
	"slices"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/request"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/fields"
)

// A call that needs the client's approval is an mcp_approval_request, with which
// the response ends. The next request says in an mcp_approval_response whether the
// call may be made, and its reply begins with the mcp_call: made, or failed because
// it was not approved. So the model finds the call with its output where any other
// call has it, and sees nothing of the two items of the approval.

// addVerdict notes a verdict of this request. In a conversation that is sent again,
// or is stored, the call follows it.
func (r *itemReader) addVerdict(it item.Item) *apierror.Error {
	if !r.ownInput {
		return nil
	}

	v := request.Verdict{
		RequestID: strings.Clone(it.At.Get("approval_request_id").Str),
		Reason:    strings.Clone(it.At.Get("reason").Str),
		At:        it.At.Path,
	}
	if v.RequestID == "" {
		return apierror.Invalid(it.At.Path+".approval_request_id", "An approval has no approval_request_id.")
	}
	if err := (jsontext.Field{
		Result: it.At.Get("approve"),
		Path:   it.At.Path + ".approve",
	}).SetSwitch(&v.Approved); err != nil {
		return err
	}

	same := func(o request.Verdict) bool { return o.RequestID == v.RequestID }
	switch {
	case len(r.verdicts)+len(r.repeated) >= r.rc.Limits.Tools:
		return apierror.Invalid(it.At.Path, "More than %d approvals.", r.rc.Limits.Tools)
	// checkVerdicts refuses them later, so that its error can name all.
	case r.state.answered[v.RequestID], slices.ContainsFunc(r.verdicts, same):
		r.repeated = append(r.repeated, v)
		return nil
	}

	r.verdicts = append(r.verdicts, v)

	return nil
}

// addApprovalRequest notes what a verdict may be about. The client may send again what
// is stored, or is in its input twice, but must not change it: what is called is what
// was asked for.
func (r *itemReader) addApprovalRequest(it item.Item) *apierror.Error {
	if r.approvals == nil {
		r.approvals = map[string]item.Item{}
	}
	if earlier, known := r.approvals[it.ID]; known && it.ID != "" && !sameCall(earlier, it) {
		return changedApproval(it)
	}
	r.approvals[it.ID] = it
	return nil
}

// sameCall reports whether two requests for approval are about the same call.
func sameCall(a, b item.Item) bool {
	one, err := fields.ReadArguments(a.Arguments)
	other, otherErr := fields.ReadArguments(b.Arguments)
	return err == nil && otherErr == nil && a.Server == b.Server && a.Name == b.Name && one == other
}

func changedApproval(it item.Item) *apierror.Error {
	return apierror.Invalid(it.At.Path,
		"The mcp_approval_request %q is not the one that was made under this id: its server_label, name or "+
			"arguments have changed. Send it as it was in the response.", item.Clip(it.ID))
}

// findApproved returns the calls about which the request has a verdict, in order.
func (d *decoder) findApproved(ctx context.Context) ([]request.ApprovedCall, *apierror.Error) {
	if err := d.findApprovalRequests(ctx); err != nil {
		return nil, err
	}
	if err := d.checkVerdicts(); err != nil {
		return nil, err
	}

	calls := make([]request.ApprovedCall, 0, len(d.items.verdicts))
	for _, v := range d.items.verdicts {
		asked := d.items.approvals[v.RequestID]
		arguments, err := fields.ReadArguments(asked.Arguments)
		if err != nil {
			return nil, err
		}
		calls = append(calls, request.ApprovedCall{
			Verdict: v, Label: strings.Clone(asked.Server), Name: strings.Clone(asked.Name),
			Arguments: strings.Clone(arguments),
		})
	}

	for i := range calls {
		server, err := d.tools.ServerOf(calls[i].Label)
		if err != nil {
			return nil, err
		}
		calls[i].Server = server
	}

	return calls, nil
}

// checkVerdicts refuses verdicts about calls that do not wait for one.
func (d *decoder) checkVerdicts() *apierror.Error {
	var unknown []request.Verdict
	for _, v := range d.items.verdicts {
		if d.items.approvals[v.RequestID].Kind != "mcp_approval_request" {
			unknown = append(unknown, v)
		}
	}

	if len(d.items.repeated) > 0 {
		return refuse(d.items.repeated, "The mcp_approval_request %s has been answered already.",
			"The mcp_approval_requests %s have been answered already.")
	}
	if len(unknown) > 0 {
		return refuse(unknown,
			"There is no mcp_approval_request with the id %s. Send it in the input, or continue the response that "+
				"has it.",
			"There are no mcp_approval_requests with the ids %s. Send them in the input, or continue the response "+
				"that has them.")
	}

	return nil
}

// refuse returns the error about verdicts, which names all of them.
func refuse(verdicts []request.Verdict, one, several string) *apierror.Error {
	ids := make([]string, len(verdicts))
	for i, v := range verdicts {
		ids[i] = v.RequestID
	}
	return apierror.Invalid(verdicts[0].At+".approval_request_id", "%s", apierror.One(ids, one, several))
}

// findApprovalRequests reads the stored requests for approval. Those that are in the
// input have to be as they are stored.
func (d *decoder) findApprovalRequests(ctx context.Context) *apierror.Error {
	if len(d.items.verdicts) == 0 || d.reader.Store == nil {
		return nil
	}

	ids := make([]string, len(d.items.verdicts))
	for i, v := range d.items.verdicts {
		ids[i] = v.RequestID
	}

	// The store's own copy decides: a client must not have another call made than it was asked about.
	found, err := d.items.fetch(ctx, ids)
	if err != nil {
		return err
	}

	for _, i := range found {
		stored, err := item.ReadStored(i, "input")
		if err != nil {
			return err
		}

		sent, isSent := d.items.approvals[stored.ID]
		switch {
		case !isSent:
			err = d.items.addApprovalRequest(stored)
		case stored.Kind != sent.Kind || !sameCall(stored, sent):
			err = changedApproval(sent)
		}

		if err != nil {
			return err
		}
	}

	return nil
}
