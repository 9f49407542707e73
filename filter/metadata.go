package filter

import (
	"strings"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// MetadataNamespace is where Envoy's dynamic metadata has what the filter tells
// of a request: for access logs and, where Envoy sends the client's own request
// on, for the filters and load balancers behind this one. The ext_proc filter
// takes it if metadata_options.receiving_namespaces has the name.
const MetadataNamespace = "envoy_harmony"

// metadata is what is told of a call for target. There is no more than the
// names where it cannot be made yet.
func (s *Server) metadata(api string, c call, t *target) *structpb.Struct {
	fields := map[string]*structpb.Value{
		"api":    structpb.NewStringValue(api),
		"model":  structpb.NewStringValue(strings.ToValidUTF8(t.model.UpstreamModel, "\ufffd")),
		"engine": structpb.NewStringValue(t.model.Engine),
		"stream": structpb.NewBoolValue(c.Stream()),
	}
	if request := c.Engine(); request != nil {
		outline := c.Outline()
		for name, n := range map[string]int{
			"choices": request.N, "prompt_tokens": len(request.Prompt), "max_tokens": request.MaxTokens,
			"items": outline.Items, "tools": outline.Tools,
		} {
			fields[name] = structpb.NewNumberValue(float64(n))
		}
		if outline.Question != "" {
			fields["text"] = structpb.NewStringValue(outline.Question)
		}
	}
	return &structpb.Struct{Fields: map[string]*structpb.Value{
		MetadataNamespace: structpb.NewStructValue(&structpb.Struct{Fields: fields}),
	}}
}

// lead sends the message that begins what becomes of the request, with the
// metadata of its call if there is one.
func (x *exchange) lead(m *extprocv3.ProcessingResponse) {
	if x.untold != nil {
		m.DynamicMetadata = x.s.metadata(x.api.name, x.untold, &x.target)
		x.untold = nil
	}
	x.out = append(x.out, m)
}
