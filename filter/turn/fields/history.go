package fields

import (
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
)

// ReadArguments reads the arguments of a call in the history: a string, which the model has
// written, or the object itself, which some clients send. Absent arguments are an empty object.
func ReadArguments(v jsontext.Field) (string, *apierror.Error) {
	switch {
	case !v.Exists():
		return item.NoArguments, nil
	case v.IsObject():
		return string(jsontext.AppendShown(nil, v.Raw)), nil
	}
	return v.Text()
}
