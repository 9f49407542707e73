package diagnosis

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

var here = Session{"tenant", "session"}

// TestSession is a session in which an agent and a sub-agent take turns.
func TestSession(t *testing.T) {
	m := NewPrompts(1 << 20)
	agent := newRequest()
	sub := newRequest()
	sub.instructions, sub.tools, sub.messages[0] = long("sub-agent"), nil, user(long("task"))
	expect := func(r request, known bool, cause Cause) {
		t.Helper()
		p := r.print(t)
		if f := m.Find(here, p); f.Known != known || f.Cause != cause {
			t.Errorf("%+v, want %v %q", f, known, cause)
		}
		m.Keep(here, "", p)
	}
	expect(agent, false, None)
	expect(sub, false, None) // a conversation of its own
	agent = agent.with(said("analysis", long("thought")), call("{}"), result(long("result")))
	expect(agent, true, None)
	sub = sub.with(said("final", long("answer")), user(long("second")))
	expect(sub, true, None)
	agent = agent.with(said("analysis", long("more")), call("{}"), result(long("result")))
	expect(agent, true, None)
	sub.model = "gpt-oss-120b"
	expect(sub, true, Model)
	agent.tools = functions(agent.tools[0].Tools[0])
	expect(agent, true, Tools)
	expect(agent, true, None)
	trimmed := agent
	trimmed.messages = trimmed.messages[1:]
	expect(trimmed, true, History)
	trimmed.messages = []harmony.Message{user(long("other"))}
	expect(trimmed, false, None)
	trimmed.summary = "s"
	expect(trimmed, true, None)
}

// TestReplies compares prompts with those of replies that are named.
func TestReplies(t *testing.T) {
	m := NewPrompts(1 << 20)
	r := newRequest()
	first := r.print(t)
	m.Keep(here, "one", first)
	r = r.with(said("final", long("answer")), user(long("second")))
	m.Answered(here, first, "10.0.0.1:8000")
	second := r.print(t)
	m.Keep(here, "two", second)
	r = r.with(said("final", long("answer")), user(long("third")))
	changed := r
	changed.messages = append(changed.messages[:2:2], user("No. "+long("second")), said("final", long("x")), user("y"))
	for _, c := range []struct {
		name    string
		session Session
		reply   string
		now     request
		known   bool
		cause   Cause
		shared  int
	}{
		{"the last one", here, "two", r, true, None, second.tokens},
		{"the one before", here, "one", r, true, None, first.tokens},
		{"the one before, which is not concerned", here, "one", changed, true, None, first.tokens},
		{"the last one, which is", here, "two", changed, true, History, -1},
		{"an unknown one", here, "three", r, false, None, 0},
		{"one of another tenant", Session{"other", "session"}, "two", r, false, None, 0},
		{"one of another session", Session{"tenant", "other"}, "two", r, true, None, second.tokens},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := m.FindReply(c.session, c.reply, c.now.print(t))
			if f.Known != c.known || f.Cause != c.cause || c.shared >= 0 && f.Shared != c.shared/BlockTokens*BlockTokens || f.Elsewhere != (f.Known && c.session != here) {
				t.Errorf("%+v", f)
			}
		})
	}
	third := r.print(t)
	if f := m.Find(here, third); f.Missed(0, "10.0.0.1:8000") != NotCached || f.Missed(0, "10.0.0.2:8000") != NotCached {
		t.Errorf("the replica is not known yet: %+v", f)
	}
	m.Answered(here, second, "10.0.0.1:8000")
	m.Answered(here, third, "10.0.0.2:8000") // which is not remembered
	if f := m.Find(here, third); f.Missed(0, "10.0.0.1:8000") != NotCached || f.Missed(0, "10.0.0.2:8000") != OtherReplica || f.Missed(f.Shared, "10.0.0.2:8000") != None {
		t.Errorf("%+v", f)
	}
	m.Keep(here, "two", NewPrint(Head{Model: "m"}, nil)) // the id is used again
	if f := m.FindReply(here, "two", r.print(t)); f.Cause != Model {
		t.Errorf("%+v", f)
	}
}

// TestTenantsApart requires that a tenant learns nothing of another one's sessions,
// whatever their names.
func TestTenantsApart(t *testing.T) {
	m := NewPrompts(1 << 20)
	r := newRequest()
	m.Keep(Session{"a", "s"}, "id", r.print(t))
	for _, name := range []Session{{"b", "s"}, {"", "s"}, {"as", ""}, {"", "as"}} {
		if f := m.Find(name, r.print(t)); f != (Finding{}) {
			t.Errorf("%v: %+v", name, f)
		}
		if f := m.FindReply(name, "id", r.print(t)); f != (Finding{}) {
			t.Errorf("%v: %+v", name, f)
		}
	}
}

// TestBounds requires that the memory holds what it is allowed to, that what was used
// last stays, and that nothing of what is forgotten is left.
func TestBounds(t *testing.T) {
	p := newRequest().print(t)
	followed := p.Followed(newRequest().render(t), make([]harmony.Token, 600), false)
	limit := 20 * (followed.Bytes() + sessionOverhead + 400)
	m := NewPrompts(limit)
	names := make([]Session, 200)
	for i := range names {
		names[i] = Session{fmt.Sprint("tenant", i%3), fmt.Sprint("session", i)}
		m.Keep(names[i], fmt.Sprint("id", i), p)
		if before := m.bytes; !m.Followed(names[i], p, followed) || i < 10 && m.bytes-before != followed.Bytes()-p.Bytes() {
			t.Fatalf("%d bytes with an output, %d without", m.bytes, before)
		}
		if m.bytes > limit {
			t.Fatalf("%d bytes after %d sessions", m.bytes, i)
		}
		if f := m.Find(names[0], p); !f.Known {
			t.Fatalf("the session that is used all the time is gone after %d", i)
		}
	}
	if n := len(m.sessions); n < 15 || n > 25 || n != m.recent.Len() || n != len(m.replies) {
		t.Errorf("%d sessions, %d in order, %d replies", n, m.recent.Len(), len(m.replies))
	}
	if f := m.Find(names[1], p); f.Known {
		t.Error("the oldest session is still there")
	}
	if f := m.FindReply(names[1], "id1", p); f.Known {
		t.Error("a reply of the oldest session is still there")
	}
	for m.recent.Len() > 0 {
		m.forget(m.recent.Back())
	}
	if m.bytes != 0 || len(m.replies) != 0 || len(m.sessions) != 0 {
		t.Errorf("%d bytes, %d replies and %d sessions are left", m.bytes, len(m.replies), len(m.sessions))
	}
	m = NewPrompts(100)
	m.Keep(here, "id", p)
	if m.Followed(here, p, followed) || (*Prompts)(nil).Followed(here, p, followed) {
		t.Error("the output to a prompt that is not kept is")
	}
	if m.bytes != 0 || m.Find(here, p).Known {
		t.Error("a prompt that is larger than the memory is kept")
	}
}

// TestBoundsOfSession requires that one session cannot grow.
func TestBoundsOfSession(t *testing.T) {
	m := NewPrompts(1 << 30)
	var bytes int64
	for i := range 100 {
		r := newRequest()
		r.messages[0] = user(fmt.Sprint(i, long("question")))
		m.Keep(here, fmt.Sprint("id", i), r.print(t))
		if i == 50 {
			bytes = m.bytes
		}
	}
	if s := m.sessions[here].Value.(*session); len(s.prompts) != maxPrompts || len(m.replies) != maxPrompts || m.bytes > bytes+100 {
		t.Errorf("%d prompts, %d replies, %d bytes and then %d", len(s.prompts), len(m.replies), bytes, m.bytes)
	}
	r := newRequest()
	r.messages = []harmony.Message{user("x"), said("final", "y"), user("z")}
	if f := m.Find(here, r.print(t)); f.Known {
		t.Errorf("a conversation whose prompts may have been dropped: %+v", f)
	}
	r = newRequest()
	for i := range 100 {
		r = r.with(said("final", "x"), user("y"))
		m.Keep(Session{"t", "long"}, strings.Repeat("i", i+1), r.print(t))
	}
	if s := m.sessions[Session{"t", "long"}].Value.(*session); len(s.prompts) != 1 || len(s.prompts[0].replies) != maxReplies || len(m.replies) != maxPrompts+maxReplies {
		t.Errorf("%d prompts, %d replies", len(s.prompts), len(m.replies))
	}
	r = newRequest()
	for i := range 100 { // a conversation whose beginning changes each time
		r.messages = []harmony.Message{user(long("question")), said("final", fmt.Sprint(i, long("answer"))), user("y")}
		m.Keep(Session{"t", "broken"}, "", r.print(t))
	}
	if s := m.sessions[Session{"t", "broken"}].Value.(*session); len(s.prompts) > 3 {
		t.Errorf("%d prompts of one conversation", len(s.prompts))
	}
}

// TestConcurrent lets many agents use one memory, under the race detector.
func TestConcurrent(t *testing.T) {
	m := NewPrompts(100_000)
	base := newRequest()
	tokens, head := base.render(t), base.head()
	var all sync.WaitGroup
	for agent := range 8 {
		all.Go(func() {
			name := Session{"t", strconv.Itoa(agent % 3)}
			for i := range 200 {
				p := NewPrint(head, tokens[:200+(i*7+agent)%100])
				m.Find(name, p)
				m.FindReply(name, strconv.Itoa(i-1), p)
				m.Keep(name, strconv.Itoa(i), p)
				m.Answered(name, p, "10.0.0.1:8000")
			}
		})
	}
	all.Wait()
	for m.recent.Len() > 0 {
		m.forget(m.recent.Back())
	}
	if m.bytes != 0 || len(m.replies) != 0 {
		t.Errorf("%d bytes and %d replies are left", m.bytes, len(m.replies))
	}
}

// TestNoPrompts requires that a memory that is switched off knows nothing.
func TestNoPrompts(t *testing.T) {
	var m *Prompts
	p := newRequest().print(t)
	m.Keep(here, "id", p)
	if m.Find(here, p) != (Finding{}) || m.FindReply(here, "id", p) != (Finding{}) {
		t.Error("something is known")
	}
}
