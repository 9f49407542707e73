// Package store keeps the state that outlives a request: responses with their
// items and event streams, conversations, reasoning texts of unfinished tool
// turns, start dates of conversations, approvals of tool calls, and counts of what
// was taken of budgets.
//
// [Store] is the interface. It has four implementations: in memory, SQLite,
// PostgreSQL and Redis. [Open] opens the one that a URL names. All
// implementations pass the tests of package storetest.
//
// Two things stand around a store. [Intercept] is where something happens around each
// access: package telemetry counts and traces them so, and package record takes them down. It
// has the only list of the methods. [WithBreaker] is why a store that hangs does not delay its
// callers, and why a write that takes effect late does no harm.
//
// What is stored is JSON and text that this package does not read, except ids of items. It
// knows no API, no engine and no clients; a tenant is a name.
//
// What is read of a store may be large where the request that names it is small: [WithRoom] has its
// size taken of the request's memory before it is read.
//
// The files: memory_*.go, with the cache lru.go; sql*.go for both databases, with sqlite*.go
// and postgres*.go for what differs, such as the bounds of a file (sqlite_room.go) and single
// statements (postgres_single.go); redis_*.go, with scripts in redis/; body.go for the bytes of
// a response in all of the last three; room.go for the sizes of what is read; notifier.go for
// those who follow a stream.
package store

import (
	"context"
	"errors"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/work"
)

// Store contains all stored data. Each tenant has its own ids: data of one
// tenant cannot be read by another. A Store is safe for concurrent use. Callers
// must not change the values that it returns.
//
// Methods return this package's errors as documented. Any other error means
// that the store failed or cannot be reached. Where the context of a call has a room
// ([WithRoom]), what is read is taken of it first, and the error may be [ErrNoRoom].
//
// Contexts have a deadline: the breaker leaves an access at its deadline only. One that is
// canceled waits until the store has noticed.
type Store interface {
	Responses
	Journal
	Conversations
	Texts
	Approvals
	Budgets
	// Close closes the store's connections.
	Close() error
}

// The errors of a store that works. Other errors mean that it failed.
var (
	ErrNotFound = errors.New("not found")
	ErrConflict = errors.New("changed or locked by another writer")
	ErrTooLarge = errors.New("too large for the store")
)

// Answered reports whether an error, or nil, is what a store that works returns: one of the
// errors above, or that of a request that did not have the steps or the memory for what is read.
func Answered(err error) bool {
	return err == nil || errors.Is(err, ErrNotFound) || errors.Is(err, ErrConflict) || errors.Is(err, ErrTooLarge) ||
		errors.Is(err, work.ErrExceeded) || errors.Is(err, ErrNoRoom)
}

// Responses keeps responses and their items. Where the context of a call has an account
// ([work.With]), the bodies of responses that are read take steps of it, and the error may
// be [work.ErrExceeded].
//
// Responses that continue one another are a chain; a chain may branch. All
// responses of a chain expire together. Their TTL restarts whenever one of them
// is written, continued or its lease is renewed.
type Responses interface {
	// Put writes a response: a new one if r.Version is 1, else it replaces the
	// version before. It returns ErrConflict if the stored response has another
	// version (or exists already, or no longer exists), and ErrTooLarge if the
	// store never has room for it. The response becomes part of the chain of
	// r.Previous if that is stored.
	Put(ctx context.Context, tenant string, r *Response) error
	// Get returns a response, or ErrNotFound.
	Get(ctx context.Context, tenant, id string) (*Response, error)
	// Chain returns a response and all responses that it continues, the first
	// one first, in one query. It restarts their TTL. If one of them does not
	// exist, it returns ErrNotFound.
	Chain(ctx context.Context, tenant, id string) ([]*Response, error)
	// Head returns what is needed to decide whether a cached chain is still
	// valid, and whether a response has ended. Its cost does not depend on the length of the chain. It restarts
	// the TTL. It returns ErrNotFound if the response does not exist.
	Head(ctx context.Context, tenant, id string) (Head, error)
	// Items returns, by id, the items with these ids that responses have as
	// input or output. Unknown ids are left out. If several responses have an
	// item, the one of the response written last is returned.
	Items(ctx context.Context, tenant string, ids []string) (map[string]Item, error)
	// Delete deletes a response with its items and events. It returns
	// ErrNotFound if there is none.
	Delete(ctx context.Context, tenant, id string) error
	// Renew extends the leases of owner's live responses in one query. The new
	// lease starts now, by the store's clock. lost contains the responses that
	// do not exist, are not live or have another owner.
	Renew(ctx context.Context, owner string, live []Key, lease time.Duration) (lost []Key, err error)
}

// Key identifies a response of a tenant.
type Key struct{ Tenant, ID string }

// Response is one response.
type Response struct {
	ID           string
	Previous     string // id of the response that this one continues; "": none
	Conversation string // id of the conversation that this one belongs to; "": none
	Version      int64  // number of times it has been written, from 1

	Object []byte // the response as JSON, without the member "output"
	Input  []Item // input of this request only, in order
	Output []Item

	// A live response is still being generated. Its owner, a replica, must
	// renew the lease.
	Live   bool
	Owner  string
	Lease  time.Duration // duration from now; set when writing
	Lapsed bool          // the lease has expired; set when reading
}

// Item is one item of a conversation.
type Item struct {
	ID   string
	JSON []byte // an object with members id and type
}

// Head identifies the state of a chain. A cached chain is valid as long as its
// Version and Epoch do not change.
type Head struct {
	// Version is that of the response.
	Version int64
	// Epoch is incremented when a response of the chain is deleted or overwritten. It starts at a value that
	// no other chain has had.
	Epoch int64
	// Live: the response is still being generated, and the lease has not expired.
	Live bool
}

// Journal keeps the event streams of background responses. A stream expires
// with its response.
type Journal interface {
	// Append appends a batch of events to a live response. It returns
	// ErrConflict if the response has another owner or is not live, or if the
	// batch does not follow the stored ones, and ErrNotFound if the response
	// does not exist. Exactly one batch with End may be appended to a response
	// that is not live, by any owner.
	Append(ctx context.Context, tenant, id, owner string, b Batch) error
	// Events returns the batches with events after number after (-1: all
	// events). It returns at least one batch but at most about one mebibyte;
	// call it again for the rest. If there are none, it waits for some, at most
	// for the time wait. The result does not show whether the response exists.
	Events(ctx context.Context, tenant, id string, after int, wait time.Duration) ([]Batch, error)
}

// eventsBytes is the most bytes that [Journal.Events] returns, except that one
// batch is always returned.
const eventsBytes = 1 << 20

// Batch is a sequence of consecutive events of a response's stream.
type Batch struct {
	First, Last int    // sequence numbers of the first and last event
	SSE         []byte // the events as sent to clients
	End         bool   // the last event ends the stream
}

// Conversations keeps conversations and their items. Methods return ErrNotFound
// if the conversation does not exist. Its TTL restarts whenever the
// conversation is written or locked or its items are read.
//
// A response that is being generated in a conversation locks it, so that no one
// else adds items. The id of the response is the lock's owner.
type Conversations interface {
	// PutConversation writes a new conversation without items. It returns
	// ErrConflict if the id exists.
	PutConversation(ctx context.Context, tenant string, c *Conversation) error
	// PutMetadata replaces the metadata of a conversation.
	PutMetadata(ctx context.Context, tenant, id string, metadata []byte) error
	// Conversation returns a conversation.
	Conversation(ctx context.Context, tenant, id string) (*Conversation, error)
	// DeleteConversation deletes a conversation and its items. It does not
	// delete the responses made in it.
	DeleteConversation(ctx context.Context, tenant, id string) error
	// AddItems appends all of the items or none. With a lockOwner, it succeeds
	// if lockOwner was the last to lock the conversation, even if the lease has
	// expired. With lockOwner "", for items added by a client, it succeeds if
	// the conversation is not locked; it then invalidates an expired lock, so
	// that its owner can no longer renew it. Otherwise it returns ErrConflict,
	// and also if the conversation has one of the ids already.
	AddItems(ctx context.Context, tenant, id, lockOwner string, items []Item) error
	// ConversationItems returns a page of the items in one query. It also
	// returns ErrNotFound if the conversation has no item p.After.
	ConversationItems(ctx context.Context, tenant, id string, p Page) ([]Item, error)
	// ConversationSize returns the size of a conversation's items without
	// reading them.
	ConversationSize(ctx context.Context, tenant, id string) (Size, error)
	// ConversationItem returns one item, or ErrNotFound.
	ConversationItem(ctx context.Context, tenant, id, item string) (Item, error)
	// DeleteItem deletes an item. It returns ErrNotFound if there is none.
	DeleteItem(ctx context.Context, tenant, id, item string) error
	// Lock locks the conversation for the duration lease: only lockOwner can
	// add items. It returns ErrConflict if the conversation is locked by
	// another owner. A lease of 0 unlocks the conversation if lockOwner has
	// locked it.
	Lock(ctx context.Context, tenant, id, lockOwner string, lease time.Duration) error
	// RenewLock extends the lock by lease from now, even if it has expired. It
	// returns ErrConflict if lockOwner was not the last to lock the
	// conversation: it has unlocked it, or, after the lease expired, another
	// owner locked it or a client added items.
	RenewLock(ctx context.Context, tenant, id, lockOwner string, lease time.Duration) error
}

// Conversation is a conversation without its items.
type Conversation struct {
	ID       string
	Created  int64  // Unix time in seconds
	Metadata []byte // a JSON object
}

// Size is the size of a conversation's items.
type Size struct {
	Items int   // number of items
	Bytes int64 // length of the items' JSON
}

// Page selects a part of a list of items.
type Page struct {
	After      string // id of the item before the page; "": start at the beginning
	Limit      int    // most items; 0: all
	Descending bool   // the last item comes first
}

// Texts keeps small texts by name. A store may drop them before they expire.
type Texts interface {
	// Texts returns the texts with these names, by name, in one query.
	Texts(ctx context.Context, tenant string, names []string) (map[string]string, error)
	// PutTexts writes texts, replacing those of the same names.
	PutTexts(ctx context.Context, tenant string, texts map[string]string) error
	// PutTextIfAbsent writes a text unless the name has one, and returns the
	// stored text. It restarts the TTL.
	PutTextIfAbsent(ctx context.Context, tenant, name, text string) (string, error)
}

// Approvals keeps approvals. One shows who was the first to start an action that
// must happen once, and the action's result. Approvals have the TTL of responses,
// which restarts whenever one is read or written.
type Approvals interface {
	// BeginApproval writes a text unless the name has one, and returns the
	// stored text. The caller is the first if its own, unique text is returned.
	BeginApproval(ctx context.Context, tenant, name, text string) (string, error)
	// CompleteApproval replaces the text of a name by the result.
	CompleteApproval(ctx context.Context, tenant, name, text string) error
	// WithdrawApproval deletes the text of a name if it is still this one. So an
	// action that its first caller has not started can be started by another.
	WithdrawApproval(ctx context.Context, tenant, name, text string) error
}

// Budgets counts what was taken of budgets. Each count belongs to a window of time:
// windows of one length follow one another from the beginning of 1970 on, by the
// store's clock, and a count is 0 at the beginning of each.
type Budgets interface {
	// Charge adds the amounts of all charges to their counts, or of none if one of
	// the counts would exceed its limit. Counts that it returns are in the order of
	// charges.
	Charge(ctx context.Context, charges []Charge) (Charged, error)
}

// Charge is an amount that is added to a count. Charges of one call have different
// names.
type Charge struct {
	// Budget is the one whose counts make room for one another, where their number is bounded.
	Budget string
	// Name is that of the count. One name has one budget, and windows of one length.
	Name string
	// Window is the length of the windows, at least a millisecond.
	Window time.Duration
	// Amount is returned if it is negative.
	Amount int64
	// Limit is the most that the count may be with the amount; 0: there is no limit.
	Limit int64
	// Number is that of the window that the amount belongs to. Nothing is added if
	// another window has begun. 0: the window at present.
	Number int64
}

// Charged is the result of charges.
type Charged struct {
	OK     bool // the amounts were added
	Counts []Count
}

// Count is a count of a window.
type Count struct {
	Used   int64         // with the amount, if it was added
	Number int64         // of the window
	Left   time.Duration // until the next window
}

// Options are the limits of a store.
type Options struct {
	// ResponseTTL is that of chains, conversations and approvals.
	ResponseTTL time.Duration
	// TextTTL is that of texts.
	TextTTL time.Duration
	// ResponseBytes, of memory and SQLite only, is the most bytes of responses, events and conversations.
	ResponseBytes int64
	// TextBytes, of memory and SQLite only, is the most bytes of texts.
	TextBytes int64
	// Now is the clock of memory and SQLite only; nil: time.Now. Shared stores use their server's clock.
	Now func() time.Time
	// CountDropped is called, in memory only, for each count of a budget that has to make
	// room for another one. nil: nobody is told.
	CountDropped func(budget string)
	// Unreached is called, in PostgreSQL only, if [Open] has to wait for a server that cannot be
	// reached yet. nil: nobody is told.
	Unreached func(err error)
}
