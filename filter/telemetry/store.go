package telemetry

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// ObserveStore returns s with every access counted by failed that s does not
// answer, by operation. system names the database for the spans that otel makes of
// the accesses for requests; "" or a nil otel: none are made.
func ObserveStore(s store.Store, failed func(operation string), system string, otel *OTel) store.Store {
	o := &storeObserver{failed: failed, system: system}
	if otel != nil && system != "" {
		o.tracer = otel.tracer
	}
	return store.Intercept(s, o.observe)
}

// storeObserver counts the errors of accesses to a store, and makes spans of accesses.
type storeObserver struct {
	failed func(operation string)
	system string
	// tracer makes the spans; nil: there are none.
	tracer trace.Tracer
}

// operations are names of metrics and spans that stand for several methods: operators need
// not distinguish them. Other operations have their own names.
var operations = map[store.Operation]string{
	store.OpPutMetadata:      "put_conversation",
	store.OpConversationSize: "get_conversation",
	store.OpConversationItem: "get_conversation_items",
	store.OpRenewLock:        "lock_conversation",
	store.OpPutTextIfAbsent:  "put_texts",
	store.OpBeginApproval:    "approval",
	store.OpCompleteApproval: "approval",
	store.OpWithdrawApproval: "approval",
}

// observe is a [store.Interceptor].
func (o *storeObserver) observe(ctx context.Context, c *store.Call, do func(context.Context) error) error {
	operation := string(c.Operation)
	if name, ok := operations[c.Operation]; ok {
		operation = name
	}

	// An access that is not made for a traced request, such as the renewing of leases, would be
	// a trace of its own, and thousands of them.
	if o.tracer == nil || !trace.SpanFromContext(ctx).IsRecording() {
		err := do(ctx)
		o.failure(ctx, operation, err)
		return err
	}

	ctx, span := o.tracer.Start(ctx, operation, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(semconv.DBSystemNameKey.String(o.system), semconv.DBOperationName(operation)))
	err := do(ctx)
	if failure := o.failure(ctx, operation, err); failure != "" {
		span.SetAttributes(semconv.ErrorTypeKey.String(failure))
		span.SetStatus(codes.Error, failure)
	}
	span.End()
	return err
}

// failure counts an error, and returns its error.type. The errors of a store that is
// up have none and are not counted; nor are those of requests that were canceled.
func (o *storeObserver) failure(ctx context.Context, operation string, err error) string {
	switch {
	case store.Answered(err):
		return ""
	case errors.Is(ctx.Err(), context.Canceled):
		return canceled
	}

	o.failed(operation)
	if errors.Is(err, context.DeadlineExceeded) {
		return "timeout"
	}
	return "store_unavailable"
}
