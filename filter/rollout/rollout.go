// Package rollout decides which sessions the filter handles while it is rolled out
// to a part of them. It has no state: every replica and every version decides alike,
// and a session that is in at a percentage is in at every higher one.
//
// A session is a number from 0 to 99, [Key.Bucket]; it is in if the number is below the
// percentage. The number is a hash of what stays the same while a conversation
// grows: the session that the request names ([Named]), else the beginning of its
// body ([Request.Beginning]).
package rollout

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"math/bits"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

// Key identifies a session.
type Key [sha256.Size]byte

// Bucket is the number of a session, from 0 to 99: the first eight bytes of the
// key, a big-endian fraction of 2^64, times 100.
func (k Key) Bucket() int {
	bucket, _ := bits.Mul64(binary.BigEndian.Uint64(k[:]), 100)
	return int(bucket)
}

// In reports whether the session is among a percentage of all.
func (k Key) In(percent int) bool { return k.Bucket() < percent }

// Named is the key of a session of a tenant that has a name.
func Named(tenant, session string) Key { return newKey("session", tenant, session) }

// newKey hashes texts, each with its length before it.
func newKey(texts ...string) (k Key) {
	h := sha256.New()
	add(h, "envoy-harmony rollout 1")
	for _, text := range texts {
		add(h, text)
	}
	h.Sum(k[:0])
	return k
}

func add(h hash.Hash, text string) {
	// With its length, so that two texts cannot be cut otherwise to the same bytes.
	h.Write(binary.AppendUvarint(nil, uint64(len(text))))
	h.Write([]byte(text))
}

// Request is what the body of a request says of its session. The system prompt of
// Messages is no part of it: clients write into it what changes with each request.
type Request struct {
	Response     string // previous_response_id
	Conversation string // id of the conversation
	CacheKey     string // prompt_cache_key

	system string // what comes before the first user's message
	user   string // the first user's message
}

// Read reads a body. What is not JSON says nothing.
func Read(body []byte) (r Request) {
	root, err := jsontext.Parse(body)
	if err != nil {
		return r
	}

	var messages []gjson.Result
	root.ForEach(func(name, v gjson.Result) bool {
		switch name.String() {
		case "previous_response_id":
			r.Response = textOf(v)
		case "conversation":
			r.Conversation = textOf(v)
			if v.IsObject() {
				r.Conversation = textOf(v.Get("id"))
			}
		case "prompt_cache_key":
			r.CacheKey = textOf(v)
		case "instructions":
			r.system = textOf(v)
		case "messages", "input":
			messages = append(messages, v)
		}
		return true
	})

	// After all members: instructions come first, wherever they stand in the body.
	var system strings.Builder
	system.WriteString(r.system)
	for _, list := range messages {
		r.begin(&system, list)
	}
	r.system = system.String()
	return r
}

// begin reads the messages up to the first user's, and adds to system what comes
// before that.
func (r *Request) begin(system *strings.Builder, messages gjson.Result) {
	if !messages.IsArray() {
		r.user = textOf(messages)
		return
	}

	var user strings.Builder
	messages.ForEach(func(_, m gjson.Result) bool {
		switch m.Get("role").String() {
		case "user":
			addContent(&user, m)
			// What follows grows with the conversation.
			r.user = user.String()
			return false
		case "system", "developer":
			addContent(system, m)
		default:
			system.WriteString(m.Raw)
		}
		return true
	})
}

// addContent adds the text of a message. Parts that are not text are their JSON.
func addContent(text *strings.Builder, m gjson.Result) {
	content := m.Get("content")
	if !content.IsArray() {
		text.WriteString(textOf(content))
		return
	}

	content.ForEach(func(_, part gjson.Result) bool {
		if t := part.Get("text"); t.Type == gjson.String {
			text.WriteString(t.String())
		} else {
			text.WriteString(part.Raw)
		}
		return true
	})
}

// textOf is a string, "" for anything else.
func textOf(v gjson.Result) string {
	// A number would be a text of its digits, and so another client's session.
	if v.Type != gjson.String {
		return ""
	}
	return v.String()
}

// Beginning is the key of the conversation that the body begins with, for requests
// that name no session. It is the same in Chat Completions and Responses.
func (r *Request) Beginning(tenant, model string) Key {
	return newKey("beginning", tenant, model, r.system, r.user)
}
