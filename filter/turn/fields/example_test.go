package fields_test

import (
	"fmt"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/fields"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
)

// An API has the rows of SamplingFields beside its own. Here they are all that it has.
func ExampleSampling() {
	root, err := jsontext.Parse([]byte(`{"temperature":0.5,"stop":["END"],"think":false,"verbosity":"low"}`))
	if err != nil {
		panic(err)
	}

	var in request.Input
	var ignored jsontext.Ignored
	limits := request.DefaultLimits()
	into := fields.Sampling{Input: &in, Limits: &limits, Ignored: &ignored}
	if err := fields.SamplingFields.Decode(into, jsontext.Field{Result: root}, &ignored); err != nil {
		panic(err)
	}
	fmt.Println(*in.Engine.Temperature, in.Stop, in.OptsOut())
	// Output: 0.5 [END] true
}
