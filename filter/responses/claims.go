package responses

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/tools"
)

// A request for approval is answered once, whichever requests have an answer: one
// that is sent again because its reply got lost, one from an earlier point of the
// conversation, two at the same moment. So the first verdict is claimed in the
// store before the call is begun, and what came of the call is kept with it.

// claim is the first verdict about a call that needs approval, as it is kept.
type claim struct {
	By    string `json:"by"`   // tells the claims of two requests apart
	Call  string `json:"call"` // a hash of the call
	Done  bool   `json:"done,omitempty"`
	Text  string `json:"text,omitempty"`  // what the tool gave
	Error string `json:"error,omitempty"` // why it gave nothing; "" if it did
}

// claimPrefix begins what tells claims apart.
const claimPrefix = "claim_"

// text is the claim as it is kept.
func (c *claim) text() string {
	b, _ := json.Marshal(c) // which has nothing but texts and a switch
	return string(b)
}

// claimName is the name under which the verdict on a request for approval is kept.
// Clients that keep their conversations themselves can give ids of any length.
func claimName(request string) string {
	sum := sha256.Sum256([]byte(request))
	return "approval:" + hex.EncodeToString(sum[:])
}

// claimOf is what a request claims by its verdict. Of a call that is not approved
// all is said.
func (d *decoder) claimOf(c *approvedCall) *claim {
	h := sha256.New()
	for _, text := range []string{c.label, c.name, c.arguments} {
		fmt.Fprintf(h, "%d:%s", len(text), text)
	}
	mine := &claim{By: d.scope.NewID(claimPrefix), Call: hex.EncodeToString(h.Sum(nil))}
	if !c.approved {
		mine.Done, mine.Error = true, strings.TrimSpace("The user did not approve this call. "+c.reason)
	}
	return mine
}

// claim claims the verdict on a call. Where another request was first, the call
// has the result that is known of it; else it may be made.
func (d *decoder) claim(ctx context.Context, c *approvedCall) error {
	mine, name := d.claimOf(c), claimName(c.request)
	first := mine
	if claims := d.api.Claims; claims != nil {
		kept, err := claims.Claim(ctx, d.scope.Tenant, name, mine.text())
		if err != nil {
			return err
		}
		first = &claim{}
		if err := json.Unmarshal([]byte(kept), first); err != nil {
			return fmt.Errorf("a verdict that is kept cannot be read: %w", err)
		}
	}
	switch {
	case first.Call != mine.Call:
		c.result = &tools.Result{Error: "The approval was for another call. This one has not been made."}
	case first.Done:
		c.result = &tools.Result{Text: first.Text, Error: first.Error}
	case first.By != mine.By:
		c.result = &tools.Result{Error: "The outcome of this call is not known: another request with the same approval has begun it. It has not been made again."}
	case d.api.Claims != nil:
		tenant, claims := d.scope.Tenant, d.api.Claims
		c.settle = func(ctx context.Context, r *tools.Result) error {
			mine.Done, mine.Text, mine.Error = true, r.Text, r.Error
			return claims.Settle(ctx, tenant, name, mine.text())
		}
	}
	return nil
}

// claimApproved claims the verdicts of the request. A store that does not answer
// has nothing called.
func (o *opening) claimApproved() error {
	ctx, cancel := context.WithTimeout(o.ctx, storeTimeout)
	defer cancel()
	for i := range o.approved {
		if err := o.decoder.claim(ctx, &o.approved[i]); err != nil {
			return err
		}
	}
	return nil
}

// settle keeps what came of a call that the client has approved.
func (r *Reply) settle(w *work) {
	if w.settle == nil {
		return
	}
	ctx, cancel := context.WithTimeout(r.call.opening.ctx, storeTimeout)
	defer cancel()
	if err := w.settle(ctx, w.result); err != nil {
		r.note(fmt.Errorf("keep what came of an approved call: %w", err))
	}
	w.settle = nil
}
