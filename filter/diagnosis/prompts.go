package diagnosis

import (
	"container/list"
	"slices"
	"strings"
	"sync"
)

const (
	// maxSessions bounds the sessions that are remembered.
	maxSessions = 50_000
	// maxPrompts bounds the prompts of one session: an agent and its sub-agents have
	// conversations side by side, and some clients name one session for all of theirs.
	maxPrompts = 32
	// maxReplies bounds the replies by which one prompt can be named.
	maxReplies = 8
	// sessionOverhead and replyOverhead are roughly what a session and the name of a
	// prompt take, in bytes, beside their texts.
	sessionOverhead = 512
	replyOverhead   = 160
)

// Session names a session of a tenant.
type Session struct{ Tenant, Key string }

// reply names the reply to a prompt.
type reply struct{ tenant, id string }

// Prompts remembers the last prompts of sessions, in the memory of the process and
// within a limit. What was unused for longest is forgotten first. It is safe for
// concurrent use. A nil *Prompts remembers nothing.
type Prompts struct {
	limit int64

	mu       sync.Mutex
	bytes    int64
	sessions map[Session]*list.Element // of *session
	replies  map[reply]*prompt
	recent   list.List // the session that was used last in front
}

// session is what is remembered of a session: the prompt that was used last comes
// last.
type session struct {
	name    Session
	prompts []*prompt
}

// prompt is a prompt of a session.
type prompt struct {
	session    *session
	print      *Print
	replica    string // that has answered; "": unknown
	superseded bool   // the session has gone on with another beginning
	repeated   bool   // it was answered before: which output the client goes on with is not known
	replies    []turn // that it can be named by
	own        [1]turn
}

// turn is a reply to the first tokens of a prompt.
type turn struct {
	id     string
	tokens int
}

// NewPrompts returns a memory of at most limit bytes.
func NewPrompts(limit int64) *Prompts {
	return &Prompts{limit: limit, sessions: map[Session]*list.Element{}, replies: map[reply]*prompt{}}
}

// Find compares a prompt with those of its session: with the one of the same
// conversation, which begins with the same text of the user, that it shares most tokens
// with. If there is none, a prompt that has earlier turns of its own is compared with
// any, as long as the session has all its prompts; one without begins a new conversation,
// and nothing is known of it.
func (m *Prompts) Find(name Session, now *Print) Finding {
	if m == nil {
		return Finding{}
	}
	// Compared without the lock, and on the stack: prompts are long, and each request comes here.
	var known [maxPrompts]prompt
	best := closest(m.of(name, known[:0]), now)
	if best.print == nil {
		return Finding{}
	}
	f := Compare(best.print, now)
	f.Replica = best.replica
	return f
}

// of appends copies of the prompts of a session.
func (m *Prompts) of(name Session, copies []prompt) []prompt {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.sessions[name]
	if e == nil {
		return nil
	}
	m.recent.MoveToFront(e)
	for _, p := range e.Value.(*session).prompts {
		copies = append(copies, prompt{print: p.print, replica: p.replica})
	}
	return copies
}

// closest returns the prompt that another one is compared with; a prompt without a print
// if there is none.
func closest(prompts []prompt, now *Print) prompt {
	of := func(fits func(*Print) bool) int {
		found, most := -1, -1
		for i := range prompts {
			if p := prompts[i].print; fits(p) {
				if n := sharedBlocks(p.blocks, now.blocks); n >= most {
					found, most = i, n
				}
			}
		}
		return found
	}

	same := func(p *Print) bool { return p.head.First == now.head.First }
	served := func(p *Print) bool { return p.head.Model == now.head.Model && p.head.Salt == now.head.Salt }

	// The same conversation at the same model is best, then the same conversation at all.
	found := of(func(p *Print) bool { return same(p) && served(p) })
	if found < 0 {
		found = of(same)
	}
	// The conversation may begin otherwise now, for instance after a summary. In a session with
	// all its places taken, its own prompt may have been dropped, and another's would mislead.
	if found < 0 && len(prompts) < maxPrompts && now.continues() {
		found = of(served)
	}
	if found < 0 {
		return prompt{}
	}

	return prompts[found]
}

// continues reports whether the prompt has turns before its own.
func (p *Print) continues() bool {
	return p.head.Summary != 0 || p.has(0, func(part part) bool {
		return part.role == RoleTool || part.role == RoleAssistant && int(part.start) < p.tokens-2
	})
}

// FindReply compares a prompt with the one that a reply of the same tenant was made
// for. Known is false if it is not remembered.
func (m *Prompts) FindReply(name Session, id string, now *Print) Finding {
	if m == nil {
		return Finding{}
	}

	m.mu.Lock()
	named := m.replies[reply{name.Tenant, id}]
	if named == nil {
		m.mu.Unlock()
		return Finding{}
	}

	earlier, replica, other := named.print, named.replica, named.session.name != name
	for _, t := range named.replies {
		// The last one's includes its output.
		if t.id == id && t.tokens < earlier.asked {
			earlier = earlier.first(t.tokens)
		}
	}
	m.mu.Unlock()

	f := Compare(earlier, now)
	f.Replica, f.Elsewhere = replica, other
	return f
}

// Keep remembers a prompt that an engine has begun to answer, in the place of those
// that it continues. id is the reply's; "": it has none. The texts are not copied.
func (m *Prompts) Keep(name Session, id string, now *Print) {
	if m == nil {
		return
	}

	next := &prompt{print: now}
	if id != "" {
		next.own[0] = turn{id, now.tokens}
		next.replies = next.own[:]
	}

	m.mu.Lock()
	defer m.mu.Unlock()

	s := m.session(name)
	next.session = s
	m.replace(s, next)
	s.prompts = append(s.prompts, next)
	m.bytes += next.bytes()
	for _, t := range next.replies {
		m.name(next, t.id)
	}

	for len(s.prompts) > maxPrompts {
		m.drop(s, 0)
	}
	m.shrink()
}

// Followed takes the output to a prompt in, which has ended: followed is the print of both. It
// reports whether the prompt is remembered by that from now on.
func (m *Prompts) Followed(name Session, now, followed *Print) bool {
	if m == nil {
		return false
	}

	m.mu.Lock()
	defer m.mu.Unlock()

	e := m.sessions[name]
	if e == nil {
		return false
	}

	prompts := e.Value.(*session).prompts
	i := slices.IndexFunc(prompts, func(p *prompt) bool { return p.print == now })
	if i < 0 || prompts[i].repeated {
		return false
	}

	m.bytes -= prompts[i].bytes()
	prompts[i].print = followed
	m.bytes += prompts[i].bytes()
	m.shrink()
	return true
}

// shrink forgets what there is no room for.
func (m *Prompts) shrink() {
	for m.bytes > m.limit || len(m.sessions) > maxSessions {
		m.forget(m.recent.Back())
	}
}

// Answered notes which replica has answered a prompt that is remembered; "": it is not
// known.
func (m *Prompts) Answered(name Session, now *Print, replica string) {
	if m == nil || replica == "" {
		return
	}

	m.mu.Lock()
	defer m.mu.Unlock()

	e := m.sessions[name]
	if e == nil {
		return
	}

	for _, p := range e.Value.(*session).prompts {
		// By its identity: the session may have gone on meanwhile.
		if p.print == now {
			m.bytes -= p.bytes()
			// A copy: it is a part of the headers of a whole answer.
			p.replica = strings.Clone(replica)
			m.bytes += p.bytes()
		}
	}
}

// session returns the session of a name, as the one that was used last.
func (m *Prompts) session(name Session) *session {
	if e := m.sessions[name]; e != nil {
		m.recent.MoveToFront(e)
		return e.Value.(*session)
	}
	s := &session{name: name}
	m.sessions[s.name] = m.recent.PushFront(s)
	m.bytes += s.bytes()
	return s
}

// name lets a reply name a prompt, in the place of one that it may have named before.
func (m *Prompts) name(p *prompt, id string) {
	key := reply{p.session.name.Tenant, id}
	if before := m.replies[key]; before != nil && before != p {
		m.bytes -= before.bytes()
		before.replies = slices.DeleteFunc(before.replies, func(t turn) bool { return t.id == id })
		m.bytes += before.bytes()
	}
	m.replies[key] = p
}

// replace drops what a prompt makes superfluous: the prompts that it continues, whose
// replies name it instead, and of those that its conversation has left all but the
// last.
func (m *Prompts) replace(s *session, next *prompt) {
	for i := len(s.prompts) - 1; i >= 0; i-- {
		p := s.prompts[i]
		if p.print.head.First != next.print.head.First || p.print.head.Model != next.print.head.Model {
			continue
		}

		// What its output was is of no account: the client may have gone on in another way.
		blocks := p.print.asked / BlockTokens
		shared := min(sharedBlocks(p.print.blocks, next.print.blocks), blocks)
		switch {
		case p.print.head.Salt == next.print.head.Salt && shared == blocks && p.print.asked <= next.print.asked:
			next.repeated = next.repeated || p.print.asked == next.print.asked
			// The new prompt continues it, and is all that is needed of both. It can be named by
			// the earlier replies too.
			earlier := p.replies
			m.drop(s, i)
			earlier = slices.DeleteFunc(earlier, func(t turn) bool {
				return len(next.replies) > 0 && t.id == next.replies[0].id
			})
			next.replies = append(earlier, next.replies...)
			if n := len(next.replies) - maxReplies; n > 0 {
				next.replies = slices.Delete(next.replies, 0, n)
			}
		// Of prompts that the conversation has left the last one stays: a client may go back to it.
		case p.superseded:
			m.drop(s, i)
		case shared > 0 && shared >= blocks/2:
			p.superseded = true
		}
	}
}

// drop forgets the i-th prompt of a session.
func (m *Prompts) drop(s *session, i int) {
	p := s.prompts[i]
	m.bytes -= p.bytes()
	for _, t := range p.replies {
		if key := (reply{s.name.Tenant, t.id}); m.replies[key] == p {
			delete(m.replies, key)
		}
	}
	s.prompts = slices.Delete(s.prompts, i, i+1)
}

// forget forgets a session.
func (m *Prompts) forget(e *list.Element) {
	s := m.recent.Remove(e).(*session)
	for len(s.prompts) > 0 {
		m.drop(s, len(s.prompts)-1)
	}
	m.bytes -= s.bytes()
	delete(m.sessions, s.name)
}

func (s *session) bytes() int64 { return int64(sessionOverhead + len(s.name.Tenant) + len(s.name.Key)) }

func (p *prompt) bytes() int64 {
	n := p.print.Bytes() + int64(len(p.replica))
	for _, t := range p.replies {
		n += replyOverhead + int64(2*len(t.id))
	}
	return n
}
