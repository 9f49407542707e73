package read

import (
	"errors"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/seal"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// readThinking reads a block of the type thinking or redacted_thinking. What was
// sealed here comes back exactly; a thinking block that was not is what its text
// says.
func (m *message) readThinking(kind string, v jsontext.Field) *apierror.Error {
	member := "signature"
	if kind == "redacted_thinking" {
		member = "data"
	}
	text := v.Get("thinking").Str

	// A block without text has its reasoning in the signature. Clients drop signatures, and
	// send empty texts: nothing is wrong with either.
	if v.Get("thinking").Type != gjson.String || kind == "redacted_thinking" {
		if err := v.RequireText(member); err != nil && kind == "thinking" {
			return apierror.Invalid(v.Path+".thinking",
				"A thinking block has neither its text nor a signature. Send the block of the reply, or leave it "+
					"out.")
		} else if err != nil {
			return err
		}
	}

	// The seal counts more than the text, which clients may have shortened or left empty.
	if sealed := v.Get(member).Str; sealed != "" {
		opened, err := m.d.open(seal.Reasoning, sealed)
		switch {
		case err == nil:
			text = opened
		case errors.Is(err, seal.ErrTenant):
			return apierror.Invalid(v.Path+"."+member,
				"The thinking was made for another tenant. Leave the block out.").With(err)
		default:
			// It was sealed with a key that is gone, or elsewhere: the text says enough.
			m.d.ignored.Add(v.Path + "." + member)
		}
	}
	if text != "" {
		m.add(turn.Item{Kind: turn.Reasoning, Text: text, Path: v.Path})
	}
	return nil
}

// open returns the text that was sealed for the tenant, for a purpose.
func (d *decoder) open(purpose seal.Purpose, sealed string) (string, error) {
	if d.reader.Sealer == nil {
		return "", seal.ErrUnknown
	}
	text, err := d.reader.Sealer.Open(purpose, d.rc.Tenant, sealed)
	return string(text), err
}
