package record

import (
	"bytes"
	"maps"
	"slices"
)

// Redact returns a copy of a record without anything that a client, a model, a tool or a
// store has written. What stays: kinds, order and times of events, lengths and counts,
// the names of fields that the APIs define, numbers and truth values of requests, and
// what the operator has configured.
func Redact(r *Record) Record {
	c := *r
	c.Redacted = true
	c.Request.Path, c.Request.Header = withoutQuery(r.Request.Path), redactHeader(r.Request.Header)
	// A body that was no JSON has only its length, which stays.
	if body := r.Request.Body.bytes; body != nil {
		c.Request.Body = NewText(redactJSON(body))
	}

	c.Result.Error = ""
	c.Settings.Session = lengthOf(r.Settings.Session)
	c.Events = make([]Event, len(r.Events))
	for i := range r.Events {
		c.Events[i] = redactEvent(&r.Events[i])
	}

	return c
}

// redactedTexts are the kinds of events whose text is a client's or a model's.
var redactedTexts = []string{KindSent}

func redactEvent(e *Event) Event {
	c := *e
	if slices.Contains(redactedTexts, e.Kind) {
		c.Text = e.Text.Redacted()
	}
	if e.Call != nil {
		call := *e.Call
		call.Prompt, call.Options = nil, redactJSON(call.Options)
		c.Call = &call
	}

	if e.Tokens != nil {
		c.Tokens = &Tokens{
			Choice: e.Tokens.Choice, Count: len(e.Tokens.IDs), Finish: e.Tokens.Finish, Usage: e.Tokens.Usage,
			Cached: e.Tokens.Cached,
		}
	}
	if e.Store != nil {
		a := *e.Store
		a.Key, a.Result = a.Key.Redacted(), redactJSON(a.Result)
		c.Store = &a
	}

	if e.Tool != nil {
		t := *e.Tool
		// Clients name servers; servers and models name tools.
		t.Server = lengthOf(t.Server)
		if t.Tool != "" {
			t.Tool = lengthOf(t.Tool)
		}
		t.Arguments, t.Result = t.Arguments.Redacted(), redactJSON(t.Result)
		if t.Error != "" {
			t.Error = redacted
		}
		c.Tool = &t
	}

	if e.Error != nil {
		failure := *e.Error
		// Both can quote the request.
		failure.Message, failure.Param = "", ""
		c.Error = &failure
	}

	return c
}

// redacted stands in place of a text whose length does not matter.
const redacted = "[redacted]"

func withoutQuery(path string) string {
	before, _, _ := bytes.Cut([]byte(path), []byte("?"))
	return string(before)
}

// keptHeaders are the request headers whose values say nothing of a client.
var keptHeaders = []string{"content-type", "content-encoding", "accept", "anthropic-version"}

func redactHeader(h map[string]string) map[string]string {
	c := maps.Clone(h)
	for name := range c {
		if !slices.Contains(keptHeaders, name) {
			c[name] = redacted
		}
	}
	return c
}
