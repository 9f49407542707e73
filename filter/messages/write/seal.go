package write

import "github.com/envoy-harmony/envoy-harmony/filter/seal"

// seal returns a text sealed for the tenant, such as the signature of a thinking block. An
// error is a fault; the block has no signature then.
func (e *encoder) seal(purpose seal.Purpose, text []byte) string {
	if e.request.Services.Sealer == nil {
		return ""
	}
	sealed, err := e.request.Services.Sealer.Seal(purpose, e.request.Context.Tenant, text)
	e.reply.Note(err)
	return sealed
}
