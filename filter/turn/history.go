package turn

import (
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

// noArguments are the arguments of a call that has none.
const noArguments = "{}"

// ReadArguments reads the arguments of a call in the history: a string, which the model has
// written, or the object itself, which some clients send. Absent arguments are an empty object.
func ReadArguments(v jsontext.Field) (string, *apierror.Error) {
	switch {
	case !v.Exists():
		return noArguments, nil
	case v.IsObject():
		return string(jsontext.AppendShown(nil, v.Raw)), nil
	}
	return v.Text()
}

// shownArguments returns the arguments of a call as the model sees them. Those that are empty
// or null are an empty object: the model would learn that calls need no arguments in JSON.
// JSON has the one spelling; anything else is what the model wrote.
func shownArguments(call *Item) string {
	if call.tool().isCode() {
		return call.Text
	}

	switch strings.TrimSpace(call.Text) {
	case "", "null", `""`:
		return noArguments
	}
	return jsontext.Shown(call.Text)
}
