// Package request holds a request for turns of the model as data: what its body says, whatever the
// API, what the service knows of it beside, and the settings of its model.
//
// An API fills an [Input], and the room of the fields that all APIs have, package fields, fills the
// most of it. A [Context] is the request beside its body: its tenant and its id, its model, what it
// may take of memory ([Context.Room]) and of work ([Context.Spend]), and what all requests share
// ([Env]). What is made of both is no matter of this package: it knows no JSON, no prompt and no
// output, and has no method that reads a store.
package request

import (
	"context"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/diagnosis"
	"github.com/envoy-harmony/envoy-harmony/filter/retention"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/filter/work"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Env holds the dependencies of turns. It is shared by all requests, and safe for
// concurrent use if its members are.
type Env struct {
	Renderer *harmony.Renderer
	Now      func() time.Time
	// Prefix and at least 128 random bits, of [A-Za-z0-9_-].
	NewID func(prefix string) string
	// Nil: nothing is kept between requests.
	Memory Memory
	// What prompts are compared with; nil: none is.
	Prompts Prompts
	// What is remembered for hints to engines; nil: none takes any.
	Retention *retention.Memory
	Limits    Limits
	// KeptTTL is how long Memory keeps texts; 0: for ever.
	KeptTTL time.Duration
}

// Memory keeps small texts between requests: the reasoning of unfinished tool
// turns, for clients that do not send it back, what the model wrote in them, and the
// date on which a conversation began. It may forget texts. The texts of a tenant are visible to
// that tenant only. If it fails, a turn goes on without it. A store.Store is a
// Memory.
type Memory interface {
	// Texts returns the texts kept under these names, by name.
	Texts(ctx context.Context, tenant string, names []string) (map[string]string, error)
	// PutTexts keeps texts under their names and replaces earlier ones.
	PutTexts(ctx context.Context, tenant string, texts map[string]string) error
	// PutTextIfAbsent keeps text under name unless there is one, and returns the
	// text that is kept.
	PutTextIfAbsent(ctx context.Context, tenant, name, text string) (string, error)
}

// Prompts remembers the last prompts of sessions. A diagnosis.Prompts is one.
type Prompts interface {
	// Find compares a prompt with those of its session.
	Find(name diagnosis.Session, now *diagnosis.Print) diagnosis.Finding
	// FindReply compares a prompt with the one that a reply was made for.
	FindReply(name diagnosis.Session, id string, now *diagnosis.Print) diagnosis.Finding
	// Keep remembers a prompt that an engine has begun to answer. id is the reply's.
	Keep(name diagnosis.Session, id string, now *diagnosis.Print)
	// Followed takes the output to a prompt in, with the print of both.
	Followed(name diagnosis.Session, now, followed *diagnosis.Print) bool
	// Answered notes which replica has answered a prompt.
	Answered(name diagnosis.Session, now *diagnosis.Print, replica string)
}

// Context is what a turn needs to know about the request beside its body.
type Context struct {
	*Env
	Model *Model
	// "" if there is only one.
	Tenant string
	// Envoy's x-request-id; "": an id is generated.
	RequestID string
	// The session that a header names; "": none does.
	Session string
	// The prompt may be longer than the model's context, because no model gets it.
	Unbounded bool
	// Reserve takes room for so many bytes of memory beside the body, before they are
	// made: items that are read of the store, what is made of them, answers, what the
	// verifying of schemas takes. They are returned when the request ends, or by a number
	// less than 0. nil: there is room for all.
	Reserve func(bytes int) *apierror.Error
	// Work counts what is computed for the request beyond what takes time in proportion to
	// its bytes. It respects the context of who decodes the request; others, such as jobs,
	// respect their own by [Context.Within]. nil: it is not bounded.
	Work *work.Account
	// event is what checks take of Work while an event of the reply is handled; nil: none has
	// yet. See [Context.BeginEvent].
	event *work.Account
	// The model's engine accepts no constraint: a Check verifies its output.
	Checked bool
	// The model's engine is told what to keep in its cache.
	KVHints bool
	// PromptTokens is how many tokens the prompt of a turn had whose output is there
	// already, if its engine had another prompt; 0: as many as the turn's own.
	PromptTokens int
}

// Room is Reserve, which may be nil.
func (rc *Context) Room(bytes int) *apierror.Error {
	if rc.Reserve == nil {
		return nil
	}
	return rc.Reserve(bytes)
}

// ID returns prefix ("chatcmpl-", "resp_") and the request's id. A request id of
// more than 128 bytes, or with other characters than letters, digits and -_.: is
// replaced.
func (rc *Context) ID(prefix string) string {
	if rc.RequestID == "" || len(rc.RequestID) > 128 {
		return rc.NewID(prefix)
	}

	for i := range len(rc.RequestID) {
		if c := rc.RequestID[i]; !item.IsNameByte(c) && c != '.' && c != ':' {
			return rc.NewID(prefix)
		}
	}
	return prefix + rc.RequestID
}

// MaxRendered bounds what is rendered of a prompt, in tokens: several times what any
// model takes.
const MaxRendered = 1 << 20

// RenderLimit is how many tokens of a prompt are rendered. A prompt is counted beyond the
// context too: clients take the number in the error, and drop as much as is too much.
func (rc *Context) RenderLimit() int { return max(MaxRendered, rc.ContextLength()) }

// ContextLength returns how many tokens prompt and output may have together.
func (rc *Context) ContextLength() int {
	if rc.Model.ContextLength > 0 {
		return rc.Model.ContextLength
	}
	return DefaultContextLength
}
