// Package store keeps what outlives a request: responses with their items and
// event streams, conversations, the reasoning of unfinished tool turns, and the
// dates of conversations.
//
// There is one interface, [Store], and four kinds of it, of which [Open] makes
// the one that a URL names. Every kind passes the same tests, those of package
// storetest.
package store

import (
	"context"
	"errors"
	"time"
)

// Store is everything that is kept. What one tenant keeps, no other can read;
// to it another's ids do not exist. A Store is safe for concurrent use, and
// what it gives must not be changed.
//
// Errors that are none of this package's mean that the store does not answer.
type Store interface {
	Responses
	Journal
	Conversations
	Texts
	Claims
	// Close gives up the store's connections.
	Close() error
}

// The errors of a store that is up.
var (
	ErrNotFound = errors.New("not found")
	ErrConflict = errors.New("changed or held by another")
	ErrTooLarge = errors.New("too large for the store")
)

// Responses keeps responses and their items.
//
// The responses that continue one another are a chain; a chain may branch.
// Their age is one: it begins anew whenever one of them is written, continued
// or its lease renewed, and when it ends all of them are gone.
type Responses interface {
	// Put writes a response: a new one if its Version is 1, else in place
	// of the one whose version is one less. ErrConflict means that the
	// stored one has another version (or that there is one already, or none
	// any more), ErrTooLarge that the store never has room for it. The
	// chain is that of r.Previous, as far as that is stored.
	Put(ctx context.Context, tenant string, r *Response) error
	// Get gives a response, or ErrNotFound.
	Get(ctx context.Context, tenant, id string) (*Response, error)
	// Chain gives a response and all that it continues, the first of them
	// first, in one query, and begins their age anew. If one of them is
	// gone, the error is ErrNotFound.
	Chain(ctx context.Context, tenant, id string) ([]*Response, error)
	// Head reads of a response only what its chain's reader has to know
	// before it uses what it remembers of it. It costs the same for a chain
	// of any length, begins the chain's age anew, and gives ErrNotFound as
	// Get does.
	Head(ctx context.Context, tenant, id string) (Head, error)
	// Items gives the items of these ids that responses have as input or
	// output, by id. Ids that are unknown are left out. Where several
	// responses have the item, it is the one written last.
	Items(ctx context.Context, tenant string, ids []string) (map[string]Item, error)
	// Delete forgets a response with its items and events, or gives
	// ErrNotFound.
	Delete(ctx context.Context, tenant, id string) error
	// Renew gives owner its live responses for another lease, counted from
	// now by the store's clock, and tells which of them are not live any
	// more, not owner's, or gone. One query does it for all.
	Renew(ctx context.Context, owner string, live []Key, lease time.Duration) (lost []Key, err error)
}

// Key is an id of a tenant.
type Key struct{ Tenant, ID string }

// Response is one response.
type Response struct {
	ID           string
	Previous     string // id of the response that it continues; "": none
	Conversation string // id of the conversation that it belongs to; "": none
	Version      int64  // how often it has been written

	Object []byte // the response as JSON, without its member "output"
	Input  []Item // of its own request, in order
	Output []Item

	// A live response is still being made. Its owner must renew the lease;
	// Lapsed says, of a response that was read, that it has not.
	Live   bool
	Owner  string
	Lease  time.Duration // when written: from now
	Lapsed bool          // when read
}

// Item is one item of a conversation.
type Item struct {
	ID   string
	JSON []byte // has the id and a type
}

// Head is what tells whether a remembered chain still holds.
type Head struct {
	Version int64 // of the response
	Epoch   int64 // one more whenever a response of the chain is deleted or overwritten; it begins anywhere, so that no other chain has had it
}

// Journal keeps the event streams of responses that are made in the
// background, for as long as the response.
type Journal interface {
	// Append adds the next events of a live response. ErrConflict means
	// that the response is not owner's or not live any more, or that the
	// events do not follow those that there are; ErrNotFound that it is
	// gone. Only its last batch (End) may be added to a response that is not
	// live, by anyone, and only one of them.
	Append(ctx context.Context, tenant, id, owner string, b Batch) error
	// Events gives the batches that have events after the one of this
	// number (-1: all). It gives at most about a mebibyte of them, and at
	// least one: ask again behind the last. If there are none it may wait
	// for some, at most wait. It does not tell whether the response exists.
	Events(ctx context.Context, tenant, id string, after int, wait time.Duration) ([]Batch, error)
}

// eventsBytes is how much [Journal.Events] gives at most, beside a batch that is
// larger by itself.
const eventsBytes = 1 << 20

// Batch is some events of a response's stream that follow each other.
type Batch struct {
	First, Last int    // sequence numbers
	SSE         []byte // the events as they are sent
	End         bool   // the last of them ends the stream
}

// Conversations keeps conversations and their items. What is asked of a
// conversation that is not stored gives ErrNotFound. The age of one begins anew
// whenever it is written or held, or its items are read.
type Conversations interface {
	// PutConversation writes a new conversation, without items. ErrConflict
	// means that there is one of this id.
	PutConversation(ctx context.Context, tenant string, c *Conversation) error
	// PutMetadata writes other metadata for a conversation, or gives
	// ErrNotFound.
	PutMetadata(ctx context.Context, tenant, id string, metadata []byte) error
	// Conversation gives a conversation, or ErrNotFound.
	Conversation(ctx context.Context, tenant, id string) (*Conversation, error)
	// DeleteConversation forgets a conversation and its items, or gives
	// ErrNotFound. Responses made in it stay.
	DeleteConversation(ctx context.Context, tenant, id string) error
	// AddItems appends items, all or none. A holder's are added only if it
	// was the last to hold the conversation, be it that its lease has lapsed
	// and nobody has noticed. Without a holder, "", they are a client's own:
	// they are added if nobody holds the conversation, and then end a hold
	// that has lapsed for good. Else the error is ErrConflict, as it is where
	// the conversation has one of the ids already.
	AddItems(ctx context.Context, tenant, id, holder string, items []Item) error
	// ConversationItems gives a page of the items in order, in one query.
	// An unknown conversation or Page.After is ErrNotFound.
	ConversationItems(ctx context.Context, tenant, id string, p Page) ([]Item, error)
	// ConversationSize says how much a conversation holds, without reading it.
	ConversationSize(ctx context.Context, tenant, id string) (Size, error)
	// ConversationItem gives one item, or ErrNotFound.
	ConversationItem(ctx context.Context, tenant, id, item string) (Item, error)
	// DeleteItem forgets an item, or gives ErrNotFound.
	DeleteItem(ctx context.Context, tenant, id, item string) error
	// Hold lets only holder (a response's id) add items for the time of a
	// lease. ErrConflict means that another holds the conversation. A lease
	// of 0 lets go what holder holds.
	Hold(ctx context.Context, tenant, id, holder string, lease time.Duration) error
	// RenewHold gives holder another lease, counted from now. ErrConflict
	// means that it has lost the conversation: its lease had lapsed, and
	// another has held or extended the conversation since, or it has let it
	// go.
	RenewHold(ctx context.Context, tenant, id, holder string, lease time.Duration) error
}

// Conversation is a conversation without its items.
type Conversation struct {
	ID       string
	Created  int64  // Unix time in seconds
	Metadata []byte // JSON object
}

// Size is how much a conversation holds.
type Size struct {
	Items int
	Bytes int64 // of the items' JSON
}

// Page is a part of a list.
type Page struct {
	After      string // id of the item before the first; "": from the beginning
	Limit      int    // 0: all
	Descending bool   // the last item first
}

// Texts keeps small texts that may be forgotten.
type Texts interface {
	// Texts gives the texts kept under these names, by name, in one query.
	Texts(ctx context.Context, tenant string, names []string) (map[string]string, error)
	// PutTexts keeps texts under their names, in place of what was there.
	PutTexts(ctx context.Context, tenant string, texts map[string]string) error
	// FirstText keeps text under name unless there is one, and gives the one
	// that is kept. Being asked for keeps it alive.
	FirstText(ctx context.Context, tenant, name, text string) (string, error)
}

// Claims keeps who was the first to do what may be done once, and what came of
// it, for as long as a response that nobody uses. The age of a claim begins anew
// whenever it is asked for or settled.
type Claims interface {
	// Claim keeps text under name unless there is one, and gives the one that
	// is kept: a text that nobody else has tells who was first.
	Claim(ctx context.Context, tenant, name, text string) (string, error)
	// Settle keeps text under name, in place of what was claimed.
	Settle(ctx context.Context, tenant, name, text string) error
}

// Options are the bounds of a store.
type Options struct {
	ResponseTTL   time.Duration    // age of chains, conversations and claims
	TextTTL       time.Duration    // age of texts
	ResponseBytes int64            // memory only: of responses, events and conversations
	TextBytes     int64            // memory only: of texts
	Now           func() time.Time // memory and SQLite only; nil: time.Now. Shared stores use their server's clock.
}
