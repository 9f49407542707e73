package item

import (
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// A client that keeps its conversation itself sends back the items that it got, and those of
// built-in tools do not have what the tools returned. Such a client also gets a carrier: a
// reasoning item without text, whose encrypted_content has the turn's steps. Clients send
// reasoning back as it is, also those that know no other member of ours, such as Codex, and
// those that leave out the items of the steps, such as the AI SDK.

// carrierPrefix begins the encrypted_content of a carrier. No sealed text has a dot.
const carrierPrefix = "steps."

// IsCarrier reports whether an encrypted_content is that of a carrier.
func IsCarrier(encrypted string) bool { return strings.HasPrefix(encrypted, carrierPrefix) }

// CarrierContent is the encrypted_content of a carrier with these sealed steps.
func CarrierContent(sealed string) string { return carrierPrefix + sealed }

// CarriedSteps is what is sealed in the encrypted_content of a carrier.
func CarriedSteps(encrypted string) string { return strings.TrimPrefix(encrypted, carrierPrefix) }

// appendCarrier appends the item as OpenAI writes reasoning of which it shows nothing.
func (o *Output) appendCarrier(dst []byte, status string) []byte {
	dst = append(o.appendHead(dst, "reasoning", status), `,"summary":[]`...)
	if status != StatusInProgress {
		dst = jsontext.AppendString(append(dst, `,"encrypted_content":`...), o.Sealed)
	}
	return append(dst, '}')
}

// Step is the call of a tool that the filter has run, as a carrier has it.
type Step struct {
	// Item is the call's item as it is stored. One of a built-in tool without what the model
	// saw in its place was too long for the carrier.
	Item store.Item
	// Later is how many items for which [Kind.IsOwn] holds stand between the call's item and the
	// carrier, for a client that sends back those alone.
	Later int
}

// AppendSteps appends the steps as they are sealed.
func AppendSteps(dst []byte, steps []Step) []byte {
	dst = append(dst, '[')
	for i := range steps {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(append(dst, `{"later":`...), int64(steps[i].Later), 10)
		dst = append(append(append(dst, `,"item":`...), steps[i].Item.JSON...), '}')
	}
	return append(dst, ']')
}

// ReadSteps returns the steps of a text that [AppendSteps] has made.
func ReadSteps(text []byte) []Step {
	var steps []Step
	gjson.ParseBytes(text).ForEach(func(_, v gjson.Result) bool {
		it := v.Get("item")
		steps = append(steps, Step{
			Item: store.Item{ID: it.Get("id").Str, JSON: []byte(it.Raw)}, Later: int(v.Get("later").Int()),
		})
		return true
	})
	return steps
}

// HostedCallID is the id of the call that the model has made, by that of its item, of a tool that
// the filter runs. What is kept of the call is kept under it.
func HostedCallID(id string) string {
	_, id, _ = strings.Cut(id, "_")
	return CallPrefix + id
}
