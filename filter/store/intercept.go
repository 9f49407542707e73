package store

import (
	"context"
	"time"
)

// Operation is the name of a method of [Store], as records, spans and metrics have it.
type Operation string

// The operations, in the order of the methods.
const (
	OpPut    Operation = "put_response"
	OpGet    Operation = "get_response"
	OpChain  Operation = "get_chain"
	OpHead   Operation = "get_head"
	OpItems  Operation = "get_items"
	OpDelete Operation = "delete_response"
	OpRenew  Operation = "renew_leases"

	OpAppend Operation = "append_events"
	OpEvents Operation = "get_events"

	OpPutConversation    Operation = "put_conversation"
	OpPutMetadata        Operation = "put_metadata"
	OpConversation       Operation = "get_conversation"
	OpDeleteConversation Operation = "delete_conversation"
	OpAddItems           Operation = "add_conversation_items"
	OpConversationItems  Operation = "get_conversation_items"
	OpConversationSize   Operation = "get_conversation_size"
	OpConversationItem   Operation = "get_conversation_item"
	OpDeleteItem         Operation = "delete_conversation_item"
	OpLock               Operation = "lock_conversation"
	OpRenewLock          Operation = "renew_lock"

	OpTexts           Operation = "get_texts"
	OpPutTexts        Operation = "put_texts"
	OpPutTextIfAbsent Operation = "put_text_if_absent"

	OpBeginApproval    Operation = "begin_approval"
	OpCompleteApproval Operation = "complete_approval"
	OpWithdrawApproval Operation = "withdraw_approval"

	OpCharge Operation = "charge_budgets"
)

// Call is one call of a method of a [Store].
type Call struct {
	Operation Operation
	// Arguments are those of the method, without the context. The first two are the tenant and
	// the id or name of what is accessed, where the method has both.
	Arguments []any
	// Result points at what the method returns beside its error, and at an empty struct if that
	// is nothing. It may be read and written before the interceptor returns.
	Result any
}

// Interceptor makes calls of a store's methods. do makes the call itself, with a context; it
// sets c.Result. What the interceptor returns is the method's error. With nil, the method
// returns what c.Result points at.
type Interceptor func(ctx context.Context, c *Call, do func(context.Context) error) error

// Intercept returns s with all methods but Close called through around. With an error, a
// method returns nothing else: an interceptor may return while do still writes the result.
//
// This is the only list of the methods: whatever has to happen around each of them is an
// interceptor.
func Intercept(s Store, around Interceptor) Store {
	inner, ok := s.(*intercepted)
	if !ok {
		return &intercepted{store: s, around: around}
	}

	// Two interceptors share one call: the second one then costs a function value, and not the
	// arguments once more.
	both := func(ctx context.Context, c *Call, do func(context.Context) error) error {
		return around(ctx, c, func(ctx context.Context) error { return inner.around(ctx, c, do) })
	}
	return &intercepted{store: inner.store, around: both}
}

// intercepted is a store with an interceptor. It is large because it implements all methods
// of Store.
type intercepted struct {
	store  Store
	around Interceptor
}

var _ Store = (*intercepted)(nil)

// intercept makes a call that returns only an error.
func (s *intercepted) intercept(
	ctx context.Context, o Operation, arguments []any, do func(context.Context) error,
) error {
	return s.around(ctx, &Call{Operation: o, Arguments: arguments, Result: &struct{}{}}, do)
}

// interceptResult makes a call that returns a value.
func interceptResult[T any](
	ctx context.Context, s *intercepted, o Operation, arguments []any, do func(context.Context) (T, error),
) (T, error) {
	return resultOf(func(result *T) error {
		c := &Call{Operation: o, Arguments: arguments, Result: result}
		return s.around(ctx, c, func(ctx context.Context) (err error) {
			*result, err = do(ctx)
			return err
		})
	})
}

// resultOf returns the result of an access. It does not read it after an error: the access may
// have been left at its deadline, and still write.
func resultOf[T any](access func(result *T) error) (T, error) {
	result := new(T)
	if err := access(result); err != nil {
		var nothing T
		return nothing, err
	}
	return *result, nil
}

// Close closes the store.
func (s *intercepted) Close() error { return s.store.Close() }

func (s *intercepted) Put(ctx context.Context, tenant string, r *Response) error {
	return s.intercept(ctx, OpPut, []any{tenant, r},
		func(ctx context.Context) error { return s.store.Put(ctx, tenant, r) })
}

func (s *intercepted) Get(ctx context.Context, tenant, id string) (*Response, error) {
	return interceptResult(ctx, s, OpGet, []any{tenant, id},
		func(ctx context.Context) (*Response, error) { return s.store.Get(ctx, tenant, id) })
}

func (s *intercepted) Chain(ctx context.Context, tenant, id string) ([]*Response, error) {
	return interceptResult(ctx, s, OpChain, []any{tenant, id},
		func(ctx context.Context) ([]*Response, error) { return s.store.Chain(ctx, tenant, id) })
}

func (s *intercepted) Head(ctx context.Context, tenant, id string) (Head, error) {
	return interceptResult(ctx, s, OpHead, []any{tenant, id},
		func(ctx context.Context) (Head, error) { return s.store.Head(ctx, tenant, id) })
}

func (s *intercepted) Items(ctx context.Context, tenant string, ids []string) (map[string]Item, error) {
	return interceptResult(ctx, s, OpItems, []any{tenant, ids},
		func(ctx context.Context) (map[string]Item, error) { return s.store.Items(ctx, tenant, ids) })
}

func (s *intercepted) Delete(ctx context.Context, tenant, id string) error {
	return s.intercept(ctx, OpDelete, []any{tenant, id},
		func(ctx context.Context) error { return s.store.Delete(ctx, tenant, id) })
}

func (s *intercepted) Renew(ctx context.Context, owner string, live []Key, lease time.Duration) ([]Key, error) {
	return interceptResult(ctx, s, OpRenew, []any{owner, live, lease},
		func(ctx context.Context) ([]Key, error) { return s.store.Renew(ctx, owner, live, lease) })
}

func (s *intercepted) Append(ctx context.Context, tenant, id, owner string, b Batch) error {
	return s.intercept(ctx, OpAppend, []any{tenant, id, owner, b},
		func(ctx context.Context) error { return s.store.Append(ctx, tenant, id, owner, b) })
}

func (s *intercepted) Events(ctx context.Context, tenant, id string, after int, wait time.Duration) ([]Batch, error) {
	return interceptResult(ctx, s, OpEvents, []any{tenant, id, after, wait},
		func(ctx context.Context) ([]Batch, error) { return s.store.Events(ctx, tenant, id, after, wait) })
}

func (s *intercepted) PutConversation(ctx context.Context, tenant string, c *Conversation) error {
	return s.intercept(ctx, OpPutConversation, []any{tenant, c},
		func(ctx context.Context) error { return s.store.PutConversation(ctx, tenant, c) })
}

func (s *intercepted) PutMetadata(ctx context.Context, tenant, id string, metadata []byte) error {
	return s.intercept(ctx, OpPutMetadata, []any{tenant, id, metadata},
		func(ctx context.Context) error { return s.store.PutMetadata(ctx, tenant, id, metadata) })
}

func (s *intercepted) Conversation(ctx context.Context, tenant, id string) (*Conversation, error) {
	return interceptResult(ctx, s, OpConversation, []any{tenant, id},
		func(ctx context.Context) (*Conversation, error) { return s.store.Conversation(ctx, tenant, id) })
}

func (s *intercepted) DeleteConversation(ctx context.Context, tenant, id string) error {
	return s.intercept(ctx, OpDeleteConversation, []any{tenant, id},
		func(ctx context.Context) error { return s.store.DeleteConversation(ctx, tenant, id) })
}

func (s *intercepted) AddItems(ctx context.Context, tenant, id, lockOwner string, items []Item) error {
	return s.intercept(ctx, OpAddItems, []any{tenant, id, lockOwner, items},
		func(ctx context.Context) error { return s.store.AddItems(ctx, tenant, id, lockOwner, items) })
}

func (s *intercepted) ConversationItems(ctx context.Context, tenant, id string, p Page) ([]Item, error) {
	return interceptResult(ctx, s, OpConversationItems, []any{tenant, id, p},
		func(ctx context.Context) ([]Item, error) { return s.store.ConversationItems(ctx, tenant, id, p) })
}

func (s *intercepted) ConversationSize(ctx context.Context, tenant, id string) (Size, error) {
	return interceptResult(ctx, s, OpConversationSize, []any{tenant, id},
		func(ctx context.Context) (Size, error) { return s.store.ConversationSize(ctx, tenant, id) })
}

func (s *intercepted) ConversationItem(ctx context.Context, tenant, id, item string) (Item, error) {
	return interceptResult(ctx, s, OpConversationItem, []any{tenant, id, item},
		func(ctx context.Context) (Item, error) { return s.store.ConversationItem(ctx, tenant, id, item) })
}

func (s *intercepted) DeleteItem(ctx context.Context, tenant, id, item string) error {
	return s.intercept(ctx, OpDeleteItem, []any{tenant, id, item},
		func(ctx context.Context) error { return s.store.DeleteItem(ctx, tenant, id, item) })
}

func (s *intercepted) Lock(ctx context.Context, tenant, id, lockOwner string, lease time.Duration) error {
	return s.intercept(ctx, OpLock, []any{tenant, id, lockOwner, lease},
		func(ctx context.Context) error { return s.store.Lock(ctx, tenant, id, lockOwner, lease) })
}

func (s *intercepted) RenewLock(ctx context.Context, tenant, id, lockOwner string, lease time.Duration) error {
	return s.intercept(ctx, OpRenewLock, []any{tenant, id, lockOwner, lease},
		func(ctx context.Context) error { return s.store.RenewLock(ctx, tenant, id, lockOwner, lease) })
}

func (s *intercepted) Texts(ctx context.Context, tenant string, names []string) (map[string]string, error) {
	return interceptResult(ctx, s, OpTexts, []any{tenant, names},
		func(ctx context.Context) (map[string]string, error) { return s.store.Texts(ctx, tenant, names) })
}

func (s *intercepted) PutTexts(ctx context.Context, tenant string, texts map[string]string) error {
	return s.intercept(ctx, OpPutTexts, []any{tenant, texts},
		func(ctx context.Context) error { return s.store.PutTexts(ctx, tenant, texts) })
}

func (s *intercepted) PutTextIfAbsent(ctx context.Context, tenant, name, text string) (string, error) {
	return interceptResult(ctx, s, OpPutTextIfAbsent, []any{tenant, name, text},
		func(ctx context.Context) (string, error) { return s.store.PutTextIfAbsent(ctx, tenant, name, text) })
}

func (s *intercepted) BeginApproval(ctx context.Context, tenant, name, text string) (string, error) {
	return interceptResult(ctx, s, OpBeginApproval, []any{tenant, name, text},
		func(ctx context.Context) (string, error) { return s.store.BeginApproval(ctx, tenant, name, text) })
}

func (s *intercepted) CompleteApproval(ctx context.Context, tenant, name, text string) error {
	return s.intercept(ctx, OpCompleteApproval, []any{tenant, name, text},
		func(ctx context.Context) error { return s.store.CompleteApproval(ctx, tenant, name, text) })
}

func (s *intercepted) WithdrawApproval(ctx context.Context, tenant, name, text string) error {
	return s.intercept(ctx, OpWithdrawApproval, []any{tenant, name, text},
		func(ctx context.Context) error { return s.store.WithdrawApproval(ctx, tenant, name, text) })
}

func (s *intercepted) Charge(ctx context.Context, charges []Charge) (Charged, error) {
	return interceptResult(ctx, s, OpCharge, []any{charges},
		func(ctx context.Context) (Charged, error) { return s.store.Charge(ctx, charges) })
}
