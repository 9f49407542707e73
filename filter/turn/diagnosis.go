package turn

import (
	"cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/turn/prompt"

	"github.com/envoy-harmony/envoy-harmony/filter/diagnosis"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// diagnosed is a turn's prompt as it is compared and remembered. The zero value is
// neither.
type diagnosed struct {
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
	kept bool
}

// diagnose compares the prompt with those of its session, and with that of the reply that the request names.
func (t *Turn) diagnose(conversation *prompt.Conversation, rendered *prompt.Prompt) {
	rc, in, compared := &t.rc, conversation.Input, &t.diagnosed
	if rc.Prompts == nil || rc.Unbounded || in.Replies.Own == "" {
		return
	}

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
func (d *diagnosed) next(same int, prompt []harmony.Token) {
	if d.found != nil {
		d.print, d.later, d.kept = d.print.Extend(same, prompt), true, false
	}
}

// Diagnosis returns what comparing the prompt of the reply's first turn has found; nil
// if it is not compared.
func (t *Turn) Diagnosis() *request.Diagnosis {
	if t == nil {
		return nil
	}
	return t.diagnosed.found
}

// keepPrompt remembers the prompt, once: an engine has begun to answer it.
func (t *Turn) keepPrompt() {
	if d := &t.diagnosed; d.found != nil && !d.kept {
		d.kept = true
		t.rc.Prompts.Keep(d.session, d.reply, d.print)
	}
}

// keepOutput adds what the model has written to the prompt that is remembered: the tokens that the
// choice has collected, whose calls the client answers next. respells says that later prompts do
// not have them as they are.
func (t *Turn) keepOutput(written []harmony.Token, respells bool) {
	// Of several choices, which one the client goes on with is not known.
	d := &t.diagnosed
	if d.found == nil || len(written) == 0 || t.Engine.N > 1 {
		return
	}

	followed := d.print.Followed(t.Engine.Prompt, withoutEnd(written)[len(t.begunMessage()):], respells)
	if t.rc.Prompts.Followed(d.session, d.print, followed) {
		d.print = followed
	}
}

// Cached notes what the engine reports of the prompt.
func (r *Reader) Cached(u *engine.Usage) {
	d := &r.turn.diagnosed
	if d.found == nil {
		return
	}

	r.turn.keepPrompt()
	r.turn.rc.Prompts.Answered(d.session, d.print, u.Replica)
	if !d.later {
		d.found.Cached, d.found.Replica = u.CachedTokens, u.Replica
	}
}
