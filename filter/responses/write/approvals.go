package write

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/responses/request"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
)

// A request for approval is answered once, however many requests have an answer:
// one that is sent again because its reply got lost, one from an earlier point of
// the conversation, two at the same moment. So the first verdict is noted as an approval, which is
// begun in the store before the call is made, and completed with the call's
// outcome.

// approval is the first verdict about a call that needs approval, and what
// came of the call.
type approval struct {
	By    string `json:"by"`   // random, so that the approvals of two requests differ
	Call  string `json:"call"` // a hash of the call
	Done  bool   `json:"done,omitempty"`
	Text  string `json:"text,omitempty"`  // what the tool returned
	Error string `json:"error,omitempty"` // why it returned nothing; "" if it did
}

// approvalPrefix begins what makes approvals differ.
const approvalPrefix = "appr_"

// text is the approval as it is stored.
func (r *approval) text() string {
	// It has nothing but texts and a switch.
	b, _ := json.Marshal(r)
	return string(b)
}

// approvalName is the name under which the answer to a request for approval is
// stored. Clients that keep their conversations themselves can choose ids of any
// length.
func approvalName(id string) string {
	sum := sha256.Sum256([]byte(id))
	return "approval:" + hex.EncodeToString(sum[:])
}

// newApproval is the approval that a request begins with its verdict. That of a call
// that is not approved is complete.
func newApproval(c *request.ApprovedCall, by string) *approval {
	// The lengths keep apart what would be the same text one after the other.
	h := sha256.New()
	for _, text := range []string{c.Label, c.Name, c.Arguments} {
		fmt.Fprintf(h, "%d:%s", len(text), text)
	}
	r := &approval{By: by, Call: hex.EncodeToString(h.Sum(nil))}
	if !c.Approved {
		r.Done, r.Error = true, strings.TrimSpace("The user did not approve this call. "+c.Reason)
	}
	return r
}

// outcome is what is known of the approval's call, where first is the approval that is
// stored; nil if the call may be made.
func (r *approval) outcome(first *approval) *tools.Result {
	switch {
	case first.Call != r.Call:
		return &tools.Result{Error: "The approval was for another call. This one has not been made."}
	case first.Done:
		return &tools.Result{Text: first.Text, Error: first.Error}
	case first.By != r.By:
		return &tools.Result{Error: "The outcome of this call is not known: another request with the same " +
			"approval has begun it. It has not been made again."}
	}
	return nil
}

// approvals is where the approvals of a tenant are stored.
type approvals struct {
	store  store.Approvals // nil: nowhere; each approval is valid by itself
	tenant string
}

// begin stores an approval unless there is one for the request, and returns the one
// that is stored.
func (s approvals) begin(ctx context.Context, id string, own *approval) (*approval, error) {
	if s.store == nil {
		return own, nil
	}

	text, err := s.store.BeginApproval(ctx, s.tenant, approvalName(id), own.text())
	if err != nil {
		return nil, err
	}

	var first approval
	if err := json.Unmarshal([]byte(text), &first); err != nil {
		return nil, fmt.Errorf("read an approval: %w", err)
	}

	return &first, nil
}

// beginApprovals is the job that begins the approvals of all verdicts of a request.
// Its result is the []*approval that are stored.
type beginApprovals struct {
	approvals approvals
	calls     []request.ApprovedCall
	own       []*approval // of the calls
}

// Do implements api.Job. If the store fails no call may be made. If ctx has ended none
// will be, and no approval says that one may have been.
func (j beginApprovals) Do(ctx context.Context) (any, error) {
	// An approval that is begun says that the call may have been made. It must not say so for a run
	// that has ended.
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}

	ctx, cancel := context.WithTimeout(ctx, request.StoreTimeout)
	defer cancel()
	first := make([]*approval, len(j.calls))
	for i := range j.calls {
		var err error
		if first[i], err = j.approvals.begin(ctx, j.calls[i].RequestID, j.own[i]); err != nil {
			return nil, err
		}
	}

	return first, nil
}

// completion completes the approval of a call with the call's outcome.
type completion struct {
	approvals approvals
	request   string
	own       approval
}

func (c *completion) store(ctx context.Context, result *tools.Result) error {
	if c.approvals.store == nil {
		return nil
	}

	// The call has been made: its outcome is stored also if the client has left meanwhile.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), request.StoreTimeout)
	defer cancel()
	r := c.own
	r.Done, r.Text, r.Error = true, result.Text, result.Error
	err := c.approvals.store.CompleteApproval(ctx, c.approvals.tenant, approvalName(c.request), r.text())
	if err != nil {
		return fmt.Errorf("complete an approval: %w", err)
	}

	return nil
}
