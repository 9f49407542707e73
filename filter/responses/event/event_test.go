package event_test

import (
	"fmt"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/event"
)

func ExampleWriter() {
	w := &event.Writer{Sequence: 7}
	w.Begin("response.output_text", ".delta")
	w.Dst = append(w.Dst, `,"delta":"Hello"`...)
	w.End()
	w.Error(apierror.New(503, "shutdown", "", "The service is restarting."))
	w.Close()
	fmt.Print(string(w.Dst))
	// Output:
	// event: response.output_text.delta
	// data: {"type":"response.output_text.delta","sequence_number":7,"delta":"Hello"}
	//
	// event: error
	// data: {"type":"error","sequence_number":8,"code":"shutdown","message":"The service is restarting.","param":null}
	//
	// data: [DONE]
}
