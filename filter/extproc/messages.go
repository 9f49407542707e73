package extproc

import (
	"strconv"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
)

// maxPiece bounds the body bytes of one message to Envoy, which advises
// against more than 64 KiB.
const maxPiece = 62_000

// trailerNames are the trailers of an engine's gRPC reply. Clients of an OpenAI API
// do not get them.
var trailerNames = []string{"grpc-status", "grpc-message", "grpc-status-details-bin"}

// engineReplyNames are the headers of an engine's reply that do not hold for the
// reply that is made of it.
var engineReplyNames = []string{"content-length", "grpc-encoding", "grpc-accept-encoding"}

// headersMessage is a reply to headers with all its parts in one allocation.
type headersMessage struct {
	message  extprocv3.ProcessingResponse
	request  extprocv3.ProcessingResponse_RequestHeaders
	response extprocv3.ProcessingResponse_ResponseHeaders
	headers  extprocv3.HeadersResponse
	common   extprocv3.CommonResponse
}

func newHeadersMessage(m *mutation) *headersMessage {
	h := &headersMessage{}
	h.request.RequestHeaders, h.response.ResponseHeaders = &h.headers, &h.headers
	h.headers.Response = &h.common
	if m != nil && len(m.m.SetHeaders)+len(m.m.RemoveHeaders) > 0 {
		h.common.HeaderMutation = &m.m
	}
	return h
}

func requestHeadersReply(m *mutation, clearRoute bool) *extprocv3.ProcessingResponse {
	h := newHeadersMessage(m)
	h.common.ClearRouteCache = clearRoute
	h.message.Response = &h.request
	return &h.message
}

// demandedMode is the mode in which a request's body comes, where bodies come on
// demand only, and the upstream's reply if the filter reads it.
func demandedMode(reply bool) *extprocfilterv3.ProcessingMode {
	mode := &extprocfilterv3.ProcessingMode{
		RequestHeaderMode:   extprocfilterv3.ProcessingMode_SEND,
		RequestBodyMode:     extprocfilterv3.ProcessingMode_FULL_DUPLEX_STREAMED,
		RequestTrailerMode:  extprocfilterv3.ProcessingMode_SEND,
		ResponseHeaderMode:  extprocfilterv3.ProcessingMode_SKIP,
		ResponseBodyMode:    extprocfilterv3.ProcessingMode_NONE,
		ResponseTrailerMode: extprocfilterv3.ProcessingMode_SKIP,
	}
	if reply {
		mode.ResponseHeaderMode = extprocfilterv3.ProcessingMode_SEND
		mode.ResponseBodyMode = extprocfilterv3.ProcessingMode_FULL_DUPLEX_STREAMED
		mode.ResponseTrailerMode = extprocfilterv3.ProcessingMode_SEND
	}
	return mode
}

func responseHeadersReply(m *mutation) *extprocv3.ProcessingResponse {
	h := newHeadersMessage(m)
	h.message.Response = &h.response
	return &h.message
}

func requestTrailersReply() *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{
		Response: &extprocv3.ProcessingResponse_RequestTrailers{RequestTrailers: &extprocv3.TrailersResponse{}},
	}
}

func responseTrailersReply(remove ...string) *extprocv3.ProcessingResponse {
	t := &extprocv3.TrailersResponse{}
	if len(remove) > 0 {
		t.HeaderMutation = &extprocv3.HeaderMutation{RemoveHeaders: remove}
	}
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseTrailers{ResponseTrailers: t}}
}

// bodyMessage is a body message with all its parts in one allocation.
type bodyMessage struct {
	message       extprocv3.ProcessingResponse
	request       extprocv3.ProcessingResponse_RequestBody
	response      extprocv3.ProcessingResponse_ResponseBody
	local         extprocv3.ProcessingResponse_StreamedImmediateResponse
	streamedLocal extprocv3.StreamedImmediateResponse
	localBody     extprocv3.StreamedImmediateResponse_BodyResponse
	body          extprocv3.BodyResponse
	common        extprocv3.CommonResponse
	mutation      extprocv3.BodyMutation
	streamed      extprocv3.BodyMutation_StreamedResponse
	piece         extprocv3.StreamedBodyResponse
}

func newBodyMessage() *bodyMessage {
	m := &bodyMessage{}
	m.request.RequestBody, m.response.ResponseBody = &m.body, &m.body
	m.body.Response = &m.common
	m.common.BodyMutation = &m.mutation
	m.mutation.Mutation = &m.streamed
	m.streamed.StreamedResponse = &m.piece
	m.local.StreamedImmediateResponse = &m.streamedLocal
	m.streamedLocal.Response = &m.localBody
	m.localBody.BodyResponse = &m.piece
	return m
}

// bodyMessages reuses body messages from one event to the next: gRPC has written a
// message when Send returns.
type bodyMessages struct {
	all  []*bodyMessage
	used int
}

// reuse takes back the messages of the last event, and drops their bytes: those of a
// request are many, and its reply may take long.
func (b *bodyMessages) reuse() {
	for _, m := range b.all[:b.used] {
		m.piece.Body = nil
		m.message.ProtoReflect().SetUnknown(nil) // metadata
	}
	b.used = 0
}

func (b *bodyMessages) next(p []byte, end bool) *bodyMessage {
	if b.used == len(b.all) {
		b.all = append(b.all, newBodyMessage())
	}
	m := b.all[b.used]
	b.used++
	m.piece.Body, m.piece.EndOfStream = p, end
	return m
}

// sender collects the messages to Envoy that the handling of one event leaves.
type sender struct {
	out    []*extprocv3.ProcessingResponse
	bodies bodyMessages
	// most bounds the body bytes of a message.
	most int
}

// newSender returns a sender with room for the messages of most events.
func newSender() sender {
	return sender{out: make([]*extprocv3.ProcessingResponse, 0, 4), most: maxPiece}
}

// reset begins the handling of the next event: the messages have been sent.
func (s *sender) reset() {
	s.out = s.out[:0]
	s.bodies.reuse()
}

func (s *sender) add(m *extprocv3.ProcessingResponse) { s.out = append(s.out, m) }

// last is the message that was added last; there is one.
func (s *sender) last() *extprocv3.ProcessingResponse { return s.out[len(s.out)-1] }

// pieces adds body messages for p, in parts of at most s.most; an empty p is one
// part. wrap sets their direction.
func (s *sender) pieces(p []byte, end bool, wrap func(*bodyMessage)) {
	for first := true; first || len(p) > 0; first = false {
		n := min(len(p), s.most)
		m := s.bodies.next(p[:n], end && n == len(p))
		wrap(m)
		s.add(&m.message)
		p = p[n:]
	}
}

// requestBody adds bytes for the upstream.
func (s *sender) requestBody(p []byte, end bool) {
	s.pieces(p, end, func(m *bodyMessage) { m.message.Response = &m.request })
}

// responseBody adds bytes for the client, in place of the upstream's.
func (s *sender) responseBody(p []byte, end bool) {
	s.pieces(p, end, func(m *bodyMessage) { m.message.Response = &m.response })
}

// localBody adds bytes of a local reply.
func (s *sender) localBody(p []byte, end bool) {
	s.pieces(p, end, func(m *bodyMessage) { m.message.Response = &m.local })
}

// localHeaders begins a local reply.
func localHeaders(header []engine.Header) *extprocv3.ProcessingResponse {
	headers := make([]*corev3.HeaderValue, 0, 1+len(header))
	headers = append(headers, &corev3.HeaderValue{Key: ":status", RawValue: []byte("200")})
	for _, h := range header {
		headers = append(headers, &corev3.HeaderValue{Key: h.Name, RawValue: []byte(h.Value)})
	}
	local := &extprocv3.StreamedImmediateResponse{
		Response: &extprocv3.StreamedImmediateResponse_HeadersResponse{
			HeadersResponse: &extprocv3.HttpHeaders{Headers: &corev3.HeaderMap{Headers: headers}},
		},
	}
	return &extprocv3.ProcessingResponse{
		Response: &extprocv3.ProcessingResponse_StreamedImmediateResponse{StreamedImmediateResponse: local},
	}
}

// immediateResponse is a JSON body in place of what was to come. The details are for
// %RESPONSE_CODE_DETAILS%, after a prefix by which Envoy's local_reply_config
// recognises the filter's replies.
func immediateResponse(
	status int, body []byte, details string, retryAfter time.Duration, headers ...engine.Header,
) *extprocv3.ProcessingResponse {
	var m mutation
	m.set(engine.Header{Name: "content-type", Value: "application/json"})
	if s := retryAfter.Seconds(); s > 0 {
		m.set(engine.Header{Name: "retry-after", Value: strconv.Itoa(int(s + 0.999))})
	}
	m.set(headers...)

	immediate := &extprocv3.ImmediateResponse{
		Status:  &typev3.HttpStatus{Code: typev3.StatusCode(status)}, //nolint:gosec // an HTTP status
		Headers: &m.m,
		Body:    body,
		Details: "envoy_harmony_" + details,
	}
	return &extprocv3.ProcessingResponse{
		Response: &extprocv3.ProcessingResponse_ImmediateResponse{ImmediateResponse: immediate},
	}
}

// idHeader is the header, beside x-request-id, in which the endpoint's clients look for
// the id of their request; nil: none.
func (r *clientRequest) idHeader() []engine.Header {
	if r.endpoint == nil || r.endpoint.IDHeader == "" {
		return nil
	}
	return []engine.Header{{Name: r.endpoint.IDHeader, Value: r.id}}
}

// details is an error in %RESPONSE_CODE_DETAILS%.
func details(err *apierror.Error) string {
	if err.Code != "" {
		return err.Code
	}
	return err.Type
}
