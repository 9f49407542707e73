package read

import (
	"errors"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/seal"
)

// openReasoning opens encrypted_content; "" if there is none. Content that no key
// opens is as if it were not there: its key may be gone, or the item comes from
// another service. What was sealed for another tenant is refused.
func (r *itemReader) openReasoning(it item.Item) (string, *apierror.Error) {
	// What a carrier has is no reasoning: see steps.
	if it.Encrypted == "" || item.IsCarrier(it.Encrypted) {
		return "", nil
	}

	path := it.At.Path + ".encrypted_content"
	if r.reader.Sealer != nil {
		text, err := r.reader.Sealer.Open(seal.Reasoning, r.rc.Tenant, it.Encrypted)
		if err == nil {
			return string(text), nil
		}
		if errors.Is(err, seal.ErrTenant) {
			return "", otherTenant(path, err)
		}
	}

	// The content is ignored rather than refused: clients keep conversations for longer than keys live.
	if r.ignored != nil && r.ownInput {
		r.ignored.Add(path)
	}

	return "", nil
}

// otherTenant refuses what was sealed for another tenant.
func otherTenant(path string, err error) *apierror.Error {
	return apierror.Invalid(path, "The encrypted content was made for another tenant. Leave the item out.").With(err)
}
