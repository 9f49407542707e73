package turn

import (
	"cmp"
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/turn/kept"

	"github.com/envoy-harmony/envoy-harmony/filter/diagnosis"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
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
	head    diagnosis.Head
	print   *diagnosis.Print
	// The turn is not the first of its reply.
	later bool
	// The prompt is remembered.
	kept bool
}

// diagnose takes the sums of what the turn's prompt begins with.
func (t *Turn) diagnose(in *request.Input, head *head, before *Prefix, items []item.Item, start conversationStart) {
	rc, compared := &t.rc, &t.diagnosed
	if rc.Prompts == nil || rc.Unbounded || in.Replies.Own == "" {
		return
	}

	compared.first.Cached = engine.Unknown
	compared.found, compared.reply = &compared.first, in.Replies.Own
	compared.session = diagnosis.Session{Tenant: rc.Tenant, Key: t.affinity.Session}

	// A request that names no session belongs to the one of its first text, whatever its tools are:
	// with them a change of the tools would look like another conversation.
	first := start.firstText()
	if cmp.Or(in.Session, rc.Session) == "" {
		compared.session.Key = string(first)
	}

	opening := before.first
	if before.settled == 0 {
		opening, _ = cutOpening(items)
	}
	head.addSums(&compared.head, opening)

	// A prefix may have a summary, and the items after it a later one.
	compared.head.Model = cmp.Or(rc.Model.Upstream, in.Engine.Model)
	compared.head.Salt = diagnosis.Text(in.Engine.CacheSalt)
	compared.head.First, compared.head.Summary = diagnosis.Text(first), before.summary
	for i := range items {
		if items[i].Summary {
			compared.head.Summary = diagnosis.Text(items[i].Text)
		}
	}
}

// addSums sets the sums of a head, with what the conversation begins with.
func (h *head) addSums(sums *diagnosis.Head, opening opening) {
	system := h.system.Content[0].(*harmony.SystemContent)
	// Sums of tools are added to what is there: the built-in ones are taken first, and moved.
	sums.AddTools(system.Tools)
	*sums = diagnosis.Head{Builtins: sums.Tools}

	sums.Date, sums.Effort = diagnosis.Text(system.StartDate), diagnosis.Text(string(system.Effort))
	sums.Instructions = diagnosis.Text(cmp.Or(h.instructions, opening.instructions))
	if h.instructions != "" && opening.instructions != "" {
		sums.Instructions = sums.Instructions.With(opening.instructions)
	}

	sums.AddTools(h.tools)
	if h.offered {
		sums.AddTools(opening.tools)
	}
	for i := range h.formats {
		sums.Format = sums.Format.With(h.formats[i].Name).With(string(h.formats[i].Schema))
	}
}

// storedLast reports whether the last call of the items is one of a choice that is kept.
func storedLast(items []item.Item, stored []kept.Choice) bool {
	for i := len(items) - 1; i >= 0 && len(stored) > 0; i-- {
		if id := items[i].CallID; items[i].Kind == item.Call {
			return slices.ContainsFunc(stored, func(c kept.Choice) bool { return c.Has(id) })
		}
	}
	return false
}

// firstText identifies the first user's text of a conversation; nothing if it has none.
func (s conversationStart) firstText() []byte {
	if !s.user {
		return nil
	}
	return s.sums[len(s.sums)-sumBytes:]
}

// compareDiagnosed compares the prompt with those of its session, and with that of the reply
// that the request names.
func (t *Turn) compareDiagnosed(prompt []harmony.Token, reply string) {
	d, prompts := &t.diagnosed, t.rc.Prompts
	if d.found == nil {
		return
	}

	d.head.Truncated = t.truncated
	d.print = diagnosis.NewPrint(d.head, prompt)
	d.found.Session = prompts.Find(d.session, d.print)
	if reply != "" {
		d.found.Reply = prompts.FindReply(d.session, reply, d.print)
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
