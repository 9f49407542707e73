package replay

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/diagnosis"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Difference is one between a record and its replay.
type Difference struct {
	// Cause is what differs: prompt, call, reply, error, store, tool, jobs or ids.
	Cause string
	Where string // in words
	Was   string // a part of what was recorded
	Is    string // a part of what was made
}

// String returns the difference as a sentence.
func (d Difference) String() string {
	if d.Was == "" && d.Is == "" {
		return d.Cause + ": " + d.Where
	}
	return fmt.Sprintf("%s: %s: was %q, is %q", d.Cause, d.Where, d.Was, d.Is)
}

// script is what came in from outside in a record, and what the replay makes of it. It
// implements [record.Effects].
type script struct {
	keeper *record.Keeper

	mu     sync.Mutex
	ids    []string
	times  []time.Time
	last   time.Time
	store  []*record.Access
	tools  []*record.ToolRun
	found  []diagnosis.Finding
	calls  []call
	header map[string]string // of the reply; nil: none was sent
	reply  []byte
	wanted *record.Error
	late   bool // what is made is of a job that was not completed

	made struct {
		calls   []call
		header  map[string]string
		reply   []byte
		refused *apierror.Error
		ids     int
	}
	differences []Difference
}

// call is a model call.
type call struct {
	prompt  []harmony.Token
	options string
	retry   int
	request *engine.Request // of one that was made
}

func newScript(r *record.Record, keeper *record.Keeper) *script {
	s := &script{keeper: keeper, last: r.Started}
	for i := range r.Events {
		switch e := &r.Events[i]; e.Kind {
		case record.KindID:
			s.ids = append(s.ids, e.Text.String())
		case record.KindClock:
			s.times = append(s.times, e.Clock)
		case record.KindStore:
			s.store = append(s.store, e.Store)
		case record.KindTool:
			s.tools = append(s.tools, e.Tool)
		case record.KindCall:
			s.calls = append(s.calls, s.recorded(e.Call))
		case record.KindFound:
			s.found = append(s.found, *e.Found)
		case record.KindHeaders:
			s.header = r.Events[i].Header
		case record.KindSent:
			s.reply = append(s.reply, e.Text.Bytes()...)
		case record.KindRefused:
			s.wanted = e.Error
		}
	}

	return s
}

// recorded is a call of the record with its whole prompt.
func (s *script) recorded(c *record.Call) call {
	var prompt []harmony.Token
	// The record has of each prompt what the one before did not have.
	if n := len(s.calls); n > 0 {
		before := s.calls[n-1].prompt
		prompt = slices.Clone(before[:min(c.Shared, len(before))])
	}
	return call{prompt: append(prompt, c.Prompt...), options: string(c.Options), retry: c.Retry}
}

func (s *script) differ(cause, where, was, is string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.differences = append(s.differences, Difference{cause, where, was, is})
}

// maker returns which process made the response in the background, and its lease.
func (s *script) maker() (owner string, lease time.Duration) {
	for _, a := range s.store {
		var key []json.RawMessage
		var r store.Response
		if a.Operation == "put_response" && json.Unmarshal(a.Key.Bytes(), &key) == nil && len(key) == 2 &&
			json.Unmarshal(key[1], &r) == nil && r.Live {
			return r.Owner, r.Lease
		}
	}
	return "", 0
}

// id returns the next id that was made with a prefix.
func (s *script) id(prefix string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, id := range s.ids {
		if strings.HasPrefix(id, prefix) {
			s.ids = slices.Delete(s.ids, i, i+1)
			return id
		}
	}
	// Another one is made, so that the replay goes on and shows what else differs.
	s.made.ids++
	return fmt.Sprintf("%sreplay%d", prefix, s.made.ids)
}

// clock returns the next time that was read.
func (s *script) clock() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.times) > 0 {
		s.last, s.times = s.times[0], s.times[1:]
	}
	return s.last
}

// Find implements [turn.Prompts].
func (s *script) Find(diagnosis.Session, *diagnosis.Print) (f diagnosis.Finding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.found) > 0 {
		f, s.found = s.found[0], s.found[1:]
	}
	return f
}

// FindReply implements [turn.Prompts].
func (s *script) FindReply(name diagnosis.Session, _ string, now *diagnosis.Print) diagnosis.Finding {
	return s.Find(name, now)
}

// Keep implements [turn.Prompts].
func (s *script) Keep(diagnosis.Session, string, *diagnosis.Print) {}

// Followed implements [turn.Prompts].
func (s *script) Followed(diagnosis.Session, *diagnosis.Print, *diagnosis.Print) bool { return false }

// Answered implements [turn.Prompts].
func (s *script) Answered(diagnosis.Session, *diagnosis.Print, string) {}

// called takes a model call.
func (s *script) called(r *engine.Request, retry int) {
	s.made.calls = append(s.made.calls, call{
		prompt: slices.Clone(r.Prompt), options: string(r.AppendSampling(nil)), retry: retry, request: r,
	})
}

// limit limits the output of the next model call to what was reserved of token quotas, which are
// not replayed: what the request itself does not limit, they did.
func (s *script) limit(r *engine.Request) {
	next := len(s.made.calls)
	if !r.Unlimited || next >= len(s.calls) {
		return
	}

	var was struct {
		MaxTokens int `json:"max_tokens"`
	}
	if err := json.Unmarshal([]byte(s.calls[next].options), &was); err == nil && was.MaxTokens > 0 {
		run.LimitOutput(r, was.MaxTokens*r.N)
	}
}

// errNotRecorded is the error of an access that the record does not have.
var errNotRecorded = errors.New("the record does not have this access")

// Access implements [record.Effects].
func (s *script) Access(
	operation string, key json.RawMessage, _ func() (json.RawMessage, error),
) (json.RawMessage, error) {
	key = s.keeper.Stored(key)
	s.mu.Lock()
	defer s.mu.Unlock()

	// Jobs run side by side, so that the order of accesses is not the record's. The same key is best;
	// else the first access of the kind is the one that has changed.
	found := -1
	for i, a := range s.store {
		if a.Operation != operation {
			continue
		}
		if found < 0 {
			found = i
		}
		if equal(a.Key.Bytes(), key) {
			found = i
			break
		}
	}

	// A job that was given up may have come further in the replay than it did then.
	if found < 0 && s.late {
		return nil, errNotRecorded
	}
	if found < 0 {
		s.differences = append(s.differences, Difference{"store", operation + " is new", "", excerpt(key, 0)})
		return nil, errNotRecorded
	}

	a := s.store[found]
	s.store = slices.Delete(s.store, found, found+1)
	if n, differ := firstDifference(a.Key.Bytes(), key); differ {
		s.differences = append(s.differences, Difference{
			"store", operation, excerpt(unsealed(a.Key.Bytes()), n), excerpt(unsealed(key), n),
		})
	}

	return a.Result, a.Err()
}

// Tool implements [record.Effects].
func (s *script) Tool(j tools.Job, _ func() tools.Result) tools.Result {
	s.mu.Lock()
	defer s.mu.Unlock()

	server := ""
	if j.Server != nil {
		server = j.Server.Label
	}

	// Calls run side by side: the first one with these arguments is it, in whatever order.
	for i, t := range s.tools {
		if t.Server != server || t.Tool != j.Tool || t.Arguments.String() != j.Arguments {
			continue
		}
		s.tools = slices.Delete(s.tools, i, i+1)
		result, err := t.ToolResult()
		if err != nil {
			result.Error = err.Error()
		}
		return result
	}

	if s.late {
		return tools.Result{Error: errNotRecorded.Error()}
	}

	s.differences = append(s.differences, Difference{
		"tool", server + ": " + j.Tool + " is new", "", excerpt([]byte(j.Arguments), 0),
	})
	return tools.Result{Error: "the record does not have this call"}
}

// compare returns the differences.
func (s *script) compare() []Difference {
	s.compareCalls()
	s.compareReply()
	for _, a := range s.store {
		s.differ("store", a.Operation+" is not made any more", excerpt(a.Key.Bytes(), 0), "")
	}

	for _, t := range s.tools {
		s.differ("tool", t.Server+": "+t.Tool+" is not called any more", excerpt(t.Arguments.Bytes(), 0), "")
	}

	if s.made.ids > 0 {
		s.differ("ids", fmt.Sprintf("%d more ids are made", s.made.ids), "", "")
	}
	return s.differences
}

func (s *script) compareCalls() {
	if len(s.calls) != len(s.made.calls) {
		s.differ("call", "the number of model calls", strconv.Itoa(len(s.calls)), strconv.Itoa(len(s.made.calls)))
	}

	for i := range min(len(s.calls), len(s.made.calls)) {
		was, is := &s.calls[i], &s.made.calls[i]
		if n, differ := firstToken(was.prompt, is.prompt); differ {
			s.differ("prompt", fmt.Sprintf("call %d, token %d", i+1, n), textAt(was.prompt, n), textAt(is.prompt, n))
		}
		if was.options != is.options {
			n, _ := firstDifference([]byte(was.options), []byte(is.options))
			s.differ(
				"call", fmt.Sprintf("call %d, its parameters", i+1), excerpt([]byte(was.options), n),
				excerpt([]byte(is.options), n),
			)
		}
		if was.retry != is.retry {
			s.differ("call", fmt.Sprintf("call %d, its retry", i+1), strconv.Itoa(was.retry), strconv.Itoa(is.retry))
		}
	}
}

func (s *script) compareReply() {
	for _, name := range slices.Sorted(maps.Keys(joined(s.header, s.made.header))) {
		if was, is := s.header[name], s.made.header[name]; was != is {
			s.differ("reply", "the header "+name, was, is)
		}
	}

	if n, differ := firstDifference(s.reply, s.made.reply); differ {
		s.differ("reply", fmt.Sprintf("byte %d", n), excerpt(unsealed(s.reply), n), excerpt(unsealed(s.made.reply), n))
	}

	was, is := "", ""
	if s.wanted != nil {
		was = errorText(s.wanted.Err())
	}
	if s.made.refused != nil {
		is = errorText(s.made.refused)
	}
	if was != is {
		s.differ("error", "in place of the reply", was, is)
	}
}

// joined has the keys of two maps.
func joined(a, b map[string]string) map[string]string {
	// A clone of nil is nil, which takes nothing.
	c := maps.Clone(a)
	if c == nil {
		return b
	}
	maps.Copy(c, b)
	return c
}

// errorText is all of an error that a client gets.
func errorText(err error) string {
	var e *apierror.Error
	if !errors.As(err, &e) {
		return err.Error()
	}
	text := fmt.Sprintf("%s (code %q, param %q, retry after %s)", e.Error(), e.Code, e.Param, e.RetryAfter)
	if e.Overflow != nil {
		text += fmt.Sprintf(" (%d of %d tokens)", e.Overflow.Tokens, e.Overflow.Max)
	}
	return text
}

// sealed are texts that are encrypted with random bytes, as package seal has them: base64url
// that begins with the version, of a salt, a sum and the text. Other texts have these names
// too, and are compared.
var sealed = regexp.MustCompile(
	`(\\*"(?:encrypted_content|signature|data)\\*":\\*"(?:steps\.)?)(A[g-v][A-Za-z0-9_\-]{96,})`)

// storedBytes are the items of accesses to the store: bytes, as JSON has them.
var storedBytes = regexp.MustCompile(`"[A-Za-z0-9+/]{128,}={0,2}"`)

// unsealed is p without what encryption makes random. The length of what is sealed stays.
func unsealed(p []byte) []byte {
	p = storedBytes.ReplaceAllFunc(p, func(text []byte) []byte {
		decoded, err := base64.StdEncoding.AppendDecode(nil, bytes.Trim(text, `"`))
		if err != nil || !sealed.Match(decoded) {
			return text
		}
		return unsealed(decoded)
	})

	var out []byte
	at := 0
	for _, m := range sealed.FindAllSubmatchIndex(p, -1) {
		out = append(append(out, p[at:m[4]]...), fmt.Sprintf("…%d…", m[5]-m[4])...)
		at = m[1]
	}
	return append(out, p[at:]...)
}

func equal(a, b []byte) bool { return bytes.Equal(unsealed(a), unsealed(b)) }

// firstDifference returns the first byte in which two texts differ, without what is
// sealed in them.
func firstDifference(a, b []byte) (n int, differ bool) {
	// Most are the same, and large.
	if bytes.Equal(a, b) {
		return 0, false
	}

	// What is sealed differs each time, by random bytes.
	a, b = unsealed(a), unsealed(b)
	for n = range min(len(a), len(b)) {
		if a[n] != b[n] {
			return n, true
		}
	}
	return min(len(a), len(b)), len(a) != len(b)
}

func firstToken(a, b []harmony.Token) (n int, differ bool) {
	for n = range min(len(a), len(b)) {
		if a[n] != b[n] {
			return n, true
		}
	}
	return min(len(a), len(b)), len(a) != len(b)
}

// excerptBytes is about how much of a text a difference shows.
const excerptBytes = 80

// excerpt is a part of a text around byte n.
func excerpt(p []byte, n int) string {
	// A little of what is the same, to find the place by.
	from := max(0, min(n, len(p))-excerptBytes/4)
	return strings.ToValidUTF8(string(p[from:min(len(p), from+excerptBytes)]), "")
}

// textAt is a part of a prompt around token n.
func textAt(prompt []harmony.Token, n int) string {
	from := max(0, min(n, len(prompt))-4)
	// Tokens that no text has are shown as numbers.
	text, err := harmony.AppendDecode(nil, prompt[from:min(len(prompt), from+12)])
	if err != nil {
		return fmt.Sprint(prompt[from:min(len(prompt), from+12)])
	}
	return strings.ToValidUTF8(string(text), "")
}
