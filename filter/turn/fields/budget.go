package fields

import (
	"math"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
)

// SetBudget reads a budget of reasoning, in tokens; -1 is none.
func SetBudget(in *request.Input, v jsontext.Field) *apierror.Error {
	in.Budget = new(int)
	return v.SetInteger(in.Budget, request.Unlimited, math.MaxInt32)
}
