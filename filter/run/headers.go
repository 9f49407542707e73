package run

import (
	"slices"
	"strconv"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/header"
)

// ReplyHeaders are the headers of every reply with status 200.
func ReplyHeaders(stream bool, requestID string) []engine.Header {
	if stream {
		return []engine.Header{
			{Name: "content-type", Value: "text/event-stream; charset=utf-8"},
			{Name: "cache-control", Value: "no-cache"},
			{Name: "x-request-id", Value: requestID},
		}
	}
	return []engine.Header{{Name: "content-type", Value: "application/json"}, {Name: "x-request-id", Value: requestID}}
}

// Explain appends to the headers of a reply those that explain what was decided, of
// [Env.Explain]: each if it has something to say. complete says that the reply is
// complete: before, the engine's cache is not known for all of it.
func (r *Run) Explain(headers []engine.Header, complete bool) []engine.Header {
	add := func(name, value string, known bool) {
		if known && slices.Contains(r.env.Explain, name) {
			headers = append(headers, engine.Header{Name: name, Value: value})
		}
	}

	ignored := r.o.Request.Ignored()
	if r.call.request != nil { // else jobs come before the first call
		ignored = slices.Concat(ignored, r.o.Target.Dialect.Ignores(r.call.request))
	}
	if r.o.Mode == api.SingleCall && r.reply.Turn().Budgeted() { // it takes a second call
		ignored = slices.Concat(ignored, []string{"reasoning budget"})
	}

	retries, prompt := r.rec.Retries(), r.rec.PromptTokens()
	add(header.Ignored, strings.Join(ignored, ", "), len(ignored) > 0)
	add(header.Engine, r.o.Target.Engine, true)
	add(header.Upstream, r.call.replica, r.call.replica != "")
	add(header.Retries, strconv.Itoa(retries), retries > 0)
	add(header.PromptTokens, strconv.Itoa(prompt), prompt > 0)
	if complete {
		cached := r.reply.Summary().Cached
		add(header.CachedTokens, strconv.Itoa(cached), cached != engine.Unknown)
	}
	return headers
}
