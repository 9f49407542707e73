package turn

import (
	"cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/diagnosis"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/prompt"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// diagnosed is a turn's prompt as it is compared and remembered. The zero value is neither. It listens to
// what comes of the model call.
type diagnosed struct {
	// Where prompts are remembered.
	prompts request.Prompts
	// Of the turn.
	call *engine.Request

	// Of the reply's first turn; nil: prompts are not compared.
	found *request.Diagnosis
	// In that turn, what found points to.
	first   request.Diagnosis
	session diagnosis.Session
	reply   string
	print   *diagnosis.Print
	// The turn is not the first of its reply.
	later bool
	// The prompt is remembered.
	remembered bool
}

// diagnose compares the prompt with those of its session, and with that of the reply that the request names.
func (t *Turn) diagnose(conversation *prompt.Conversation, rendered *prompt.Prompt) {
	rc, in, compared := &t.rc, conversation.Input, &t.heard.diagnosed
	if rc.Prompts == nil || rc.Unbounded || in.Replies.Own == "" {
		return
	}

	compared.prompts = rc.Prompts
	compared.first.Cached = engine.Unknown
	compared.found, compared.reply = &compared.first, in.Replies.Own
	compared.session = diagnosis.Session{Tenant: rc.Tenant, Key: t.affinity.Session}

	// A request that names no session belongs to the one of its first text, whatever its tools are:
	// with them a change of the tools would look like another conversation.
	if cmp.Or(in.Session, rc.Session) == "" {
		compared.session.Key = string(conversation.FirstText())
	}

	head := conversation.Sums(rendered)
	head.Model = cmp.Or(rc.Model.Upstream, in.Engine.Model)
	head.Salt = diagnosis.Text(in.Engine.CacheSalt)

	compared.print = diagnosis.NewPrint(head, rendered.Tokens)
	compared.found.Session = rc.Prompts.Find(compared.session, compared.print)
	if reply := in.Replies.Compared; reply != "" {
		compared.found.Reply = rc.Prompts.FindReply(compared.session, reply, compared.print)
	}
}

// next is for the reply's next turn, whose prompt begins with the same tokens.
func (d *diagnosed) next(same int, call *engine.Request) {
	d.call = call
	if d.found != nil {
		d.print, d.later, d.remembered = d.print.Extend(same, call.Prompt), true, false
	}
}

// Diagnosis returns what comparing the prompt of the reply's first turn has found; nil
// if it is not compared.
func (t *Turn) Diagnosis() *request.Diagnosis {
	if t == nil {
		return nil
	}
	return t.heard.diagnosed.found
}

// began remembers the prompt, once: an engine has begun to answer it.
func (d *diagnosed) began() {
	if d.found != nil && !d.remembered {
		d.remembered = true
		d.prompts.Keep(d.session, d.reply, d.print)
	}
}

// wrote adds what the model has written to the prompt that is remembered: the client answers its calls next.
func (d *diagnosed) wrote(tokens []harmony.Token, respelled bool) {
	// Of several choices, which one the client goes on with is not known.
	if d.found == nil || d.call.N > 1 {
		return
	}

	followed := d.print.Followed(d.call.Prompt, tokens, respelled)
	if d.prompts.Followed(d.session, d.print, followed) {
		d.print = followed
	}
}

// cached notes what the engine reports of the prompt.
func (d *diagnosed) cached(usage *engine.Usage) {
	if d.found == nil {
		return
	}

	d.began()
	d.prompts.Answered(d.session, d.print, usage.Replica)
	if !d.later {
		d.found.Cached, d.found.Replica = usage.CachedTokens, usage.Replica
	}
}
