package telemetry

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// ObserveStore returns s with every access counted by failed that s does not
// answer, by operation. system names the database for the spans that otel makes of
// the accesses for requests; "" or a nil otel: none are made.
func ObserveStore(s store.Store, failed func(operation string), system string, otel *OTel) store.Store {
	o := &observedStore{Store: s, failed: failed, system: system}
	if otel != nil && system != "" {
		o.tracer = otel.tracer
	}
	return o
}

// observedStore is a store whose accesses are traced, and whose errors are counted.
type observedStore struct {
	store.Store
	failed func(operation string)
	system string
	tracer trace.Tracer // nil: there are no spans
}

// access is an access to a store.
type access struct {
	store     *observedStore
	ctx       context.Context //nolint:containedctx // of the access, of the same life
	operation string
	span      trace.Span // nil: there is none
}

// begin begins an access. One that is not made for a request that is traced has no
// span.
func (s *observedStore) begin(ctx context.Context, operation string) access {
	a := access{store: s, ctx: ctx, operation: operation}
	if s.tracer != nil && trace.SpanFromContext(ctx).IsRecording() {
		a.ctx, a.span = s.tracer.Start(ctx, operation, trace.WithSpanKind(trace.SpanKindClient),
			trace.WithAttributes(semconv.DBSystemNameKey.String(s.system), semconv.DBOperationName(operation)))
	}
	return a
}

// done ends an access, and returns its error.
func (a *access) done(err error) error {
	failure := a.failure(err)
	if a.span == nil {
		return err
	}
	if failure != "" {
		a.span.SetAttributes(semconv.ErrorTypeKey.String(failure))
		a.span.SetStatus(codes.Error, failure)
	}
	a.span.End()
	return err
}

// failure counts an error, and returns its error.type. The errors of a store that is
// up have none and are not counted; nor are those of requests that were canceled.
func (a *access) failure(err error) string {
	switch {
	case store.Answered(err):
		return ""
	case errors.Is(a.ctx.Err(), context.Canceled):
		return canceled
	}
	a.store.failed(a.operation)
	if errors.Is(err, context.DeadlineExceeded) {
		return "timeout"
	}
	return "store_unavailable"
}

func (s *observedStore) Put(ctx context.Context, tenant string, r *store.Response) error {
	a := s.begin(ctx, "put_response")
	return a.done(s.Store.Put(a.ctx, tenant, r))
}

func (s *observedStore) Get(ctx context.Context, tenant, id string) (*store.Response, error) {
	a := s.begin(ctx, "get_response")
	r, err := s.Store.Get(a.ctx, tenant, id)
	return r, a.done(err)
}

func (s *observedStore) Chain(ctx context.Context, tenant, id string) ([]*store.Response, error) {
	a := s.begin(ctx, "get_chain")
	chain, err := s.Store.Chain(a.ctx, tenant, id)
	return chain, a.done(err)
}

func (s *observedStore) Head(ctx context.Context, tenant, id string) (store.Head, error) {
	a := s.begin(ctx, "get_head")
	h, err := s.Store.Head(a.ctx, tenant, id)
	return h, a.done(err)
}

func (s *observedStore) Items(ctx context.Context, tenant string, ids []string) (map[string]store.Item, error) {
	a := s.begin(ctx, "get_items")
	items, err := s.Store.Items(a.ctx, tenant, ids)
	return items, a.done(err)
}

func (s *observedStore) Delete(ctx context.Context, tenant, id string) error {
	a := s.begin(ctx, "delete_response")
	return a.done(s.Store.Delete(a.ctx, tenant, id))
}

func (s *observedStore) Renew(ctx context.Context, owner string, live []store.Key, lease time.Duration) ([]store.Key, error) {
	a := s.begin(ctx, "renew_leases")
	lost, err := s.Store.Renew(a.ctx, owner, live, lease)
	return lost, a.done(err)
}

func (s *observedStore) Append(ctx context.Context, tenant, id, owner string, b store.Batch) error {
	a := s.begin(ctx, "append_events")
	return a.done(s.Store.Append(a.ctx, tenant, id, owner, b))
}

func (s *observedStore) Events(ctx context.Context, tenant, id string, after int, wait time.Duration) ([]store.Batch, error) {
	a := s.begin(ctx, "get_events")
	batches, err := s.Store.Events(a.ctx, tenant, id, after, wait)
	return batches, a.done(err)
}

func (s *observedStore) PutConversation(ctx context.Context, tenant string, c *store.Conversation) error {
	a := s.begin(ctx, "put_conversation")
	return a.done(s.Store.PutConversation(a.ctx, tenant, c))
}

func (s *observedStore) PutMetadata(ctx context.Context, tenant, id string, metadata []byte) error {
	a := s.begin(ctx, "put_conversation")
	return a.done(s.Store.PutMetadata(a.ctx, tenant, id, metadata))
}

func (s *observedStore) Conversation(ctx context.Context, tenant, id string) (*store.Conversation, error) {
	a := s.begin(ctx, "get_conversation")
	c, err := s.Store.Conversation(a.ctx, tenant, id)
	return c, a.done(err)
}

func (s *observedStore) DeleteConversation(ctx context.Context, tenant, id string) error {
	a := s.begin(ctx, "delete_conversation")
	return a.done(s.Store.DeleteConversation(a.ctx, tenant, id))
}

func (s *observedStore) AddItems(ctx context.Context, tenant, id, holder string, items []store.Item) error {
	a := s.begin(ctx, "add_conversation_items")
	return a.done(s.Store.AddItems(a.ctx, tenant, id, holder, items))
}

func (s *observedStore) ConversationItems(ctx context.Context, tenant, id string, p store.Page) ([]store.Item, error) {
	a := s.begin(ctx, "get_conversation_items")
	items, err := s.Store.ConversationItems(a.ctx, tenant, id, p)
	return items, a.done(err)
}

func (s *observedStore) ConversationSize(ctx context.Context, tenant, id string) (store.Size, error) {
	a := s.begin(ctx, "get_conversation")
	size, err := s.Store.ConversationSize(a.ctx, tenant, id)
	return size, a.done(err)
}

func (s *observedStore) ConversationItem(ctx context.Context, tenant, id, item string) (store.Item, error) {
	a := s.begin(ctx, "get_conversation_items")
	i, err := s.Store.ConversationItem(a.ctx, tenant, id, item)
	return i, a.done(err)
}

func (s *observedStore) DeleteItem(ctx context.Context, tenant, id, item string) error {
	a := s.begin(ctx, "delete_conversation_item")
	return a.done(s.Store.DeleteItem(a.ctx, tenant, id, item))
}

func (s *observedStore) Lock(ctx context.Context, tenant, id, holder string, lease time.Duration) error {
	a := s.begin(ctx, "lock_conversation")
	return a.done(s.Store.Lock(a.ctx, tenant, id, holder, lease))
}

func (s *observedStore) RenewLock(ctx context.Context, tenant, id, holder string, lease time.Duration) error {
	a := s.begin(ctx, "lock_conversation")
	return a.done(s.Store.RenewLock(a.ctx, tenant, id, holder, lease))
}

func (s *observedStore) Texts(ctx context.Context, tenant string, names []string) (map[string]string, error) {
	a := s.begin(ctx, "get_texts")
	texts, err := s.Store.Texts(a.ctx, tenant, names)
	return texts, a.done(err)
}

func (s *observedStore) PutTexts(ctx context.Context, tenant string, texts map[string]string) error {
	a := s.begin(ctx, "put_texts")
	return a.done(s.Store.PutTexts(a.ctx, tenant, texts))
}

func (s *observedStore) PutTextIfAbsent(ctx context.Context, tenant, name, text string) (string, error) {
	a := s.begin(ctx, "put_texts")
	first, err := s.Store.PutTextIfAbsent(a.ctx, tenant, name, text)
	return first, a.done(err)
}

func (s *observedStore) BeginApproval(ctx context.Context, tenant, name, text string) (string, error) {
	a := s.begin(ctx, "approval")
	first, err := s.Store.BeginApproval(a.ctx, tenant, name, text)
	return first, a.done(err)
}

func (s *observedStore) CompleteApproval(ctx context.Context, tenant, name, text string) error {
	a := s.begin(ctx, "approval")
	return a.done(s.Store.CompleteApproval(a.ctx, tenant, name, text))
}

func (s *observedStore) WithdrawApproval(ctx context.Context, tenant, name, text string) error {
	a := s.begin(ctx, "approval")
	return a.done(s.Store.WithdrawApproval(a.ctx, tenant, name, text))
}

func (s *observedStore) Charge(ctx context.Context, charges []store.Charge) (store.Charged, error) {
	a := s.begin(ctx, "charge_budgets")
	charged, err := s.Store.Charge(a.ctx, charges)
	return charged, a.done(err)
}
