package extproc

import (
	"strings"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/header"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
)

// metadata is the dynamic metadata of a request, under header.MetadataNamespace:
// for access logs and, where Envoy sends the client's own request on, for the
// filters and load balancers behind this one. A request without a model call yet
// has only the names.
func metadata(apiName string, r api.Request, t *run.Target) *structpb.Struct {
	fields := map[string]*structpb.Value{
		"api":    structpb.NewStringValue(apiName),
		"model":  structpb.NewStringValue(strings.ToValidUTF8(t.Model, "\ufffd")),
		"engine": structpb.NewStringValue(t.Engine),
		"stream": structpb.NewBoolValue(r.Stream()),
	}
	if request := r.Engine(); request != nil {
		info := r.RoutingInfo()
		for name, n := range map[string]int{
			"choices": request.N, "prompt_tokens": len(request.Prompt), "max_tokens": request.MaxTokens,
			"items": info.Items, "tools": info.Tools,
		} {
			fields[name] = structpb.NewNumberValue(float64(n))
		}
		if info.LastUserText != "" {
			fields["text"] = structpb.NewStringValue(info.LastUserText)
		}
	}
	return &structpb.Struct{Fields: map[string]*structpb.Value{
		header.MetadataNamespace: structpb.NewStructValue(&structpb.Struct{Fields: fields}),
	}}
}

// sendFirst sends the first message about what becomes of the request, with the
// metadata of its model call if there is one.
func (x *exchange) sendFirst(m *extprocv3.ProcessingResponse) {
	if x.metadataPending != nil {
		m.DynamicMetadata = x.metadataPending()
		x.metadataPending = nil
	}
	x.to.add(m)
}
