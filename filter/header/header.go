// Package header has the names of the HTTP headers that the filter, Envoy and
// clients exchange, and the namespace of the filter's dynamic metadata. Package
// filter sets and reads them; package envoy writes Envoy's configuration with
// the same names.
//
// A client must not set the headers of [Own]: the filter removes them from every
// request, whether the request is the filter's or not.
package header

// Request headers that the filter sets for Envoy's routes to the engines.
const (
	// Engine is the name of the engine that takes a model call. Envoy's engine
	// routes match on it.
	Engine = "x-harmony-engine"
	// Prefill is the prefill endpoint, host:port, that takes the prefill
	// request of a disaggregated engine. Only the loopback listener reads it.
	Prefill = "x-harmony-prefill"
	// Upstream is, in an answer on the loopback listener, the replica that
	// answered, IP:port. In a model call it is a list of replicas, separated by
	// commas, of which Envoy takes the first that is available.
	Upstream = "x-harmony-upstream"
	// PromptTokens is the tokens of the prompt of a model call, and in a reply those
	// of all its model calls.
	PromptTokens = "x-harmony-prompt-tokens"
	// Filled says that the client has sent no body, and that Envoy has given the request
	// one: Envoy can only pace the reply to a request that has a body.
	Filled = "x-harmony-filled"
	// Destination is the replica that an endpoint picker chose.
	Destination = "x-gateway-destination-endpoint"
)

// Request headers that clients may set where the configuration allows it.
const (
	// Override switches the filter on or off for one request.
	Override = "x-envoy-harmony"
	// Codex switches Codex compatibility mode on or off for one request.
	Codex = "x-envoy-harmony-codex"
)

// Response headers.
const (
	// Ignored lists the parameters of the request that were accepted and have
	// no effect.
	Ignored = "x-harmony-ignored"
	// Passed says that the filter has passed the request on, and why: [PassedModel].
	Passed = "x-harmony-passed"
	// Retries is how many model calls were repeated for the reply.
	Retries = "x-harmony-retries"
	// CachedTokens is how many tokens of the prompts the engine had in its prefix cache.
	CachedTokens = "x-harmony-cached-tokens"
	// Attempts is how often Envoy has made a call; Envoy sets it on the
	// loopback listener.
	Attempts = "x-envoy-attempt-count"
)

// PassedModel is the value of [Passed] in the reply to a request whose model the filter does not
// take for Harmony's.
const PassedModel = "model"

// MetadataNamespace is the namespace of the dynamic metadata that the filter
// returns to Envoy. The ext_proc filter accepts it if
// metadata_options.receiving_namespaces has the name.
const MetadataNamespace = "envoy_harmony"

// TokenUsageNamespace is the namespace of the typed dynamic metadata of a reply, an
// envoy.data.ai.v3.TokenUsage. Envoy accepts it from version 1.40 on.
const TokenUsageNamespace = "envoy.ai.token_usage"

// PrefillSuffix is the suffix of an engine's name in [Engine] for calls to its
// prefill endpoints.
const PrefillSuffix = "-prefill"

// Pacing is a metadata key of the ext_proc stream, not a header of the request. Envoy's
// configuration sets it where Envoy has a route that matches [PacingRoute].
const Pacing = "x-harmony-pacing"

// PacingRoute is the value of [Engine] by which a request is sent to the service that
// returns the bytes of its body. No engine can have this name.
const PacingRoute = "-pacing"

// Internal returns the request headers that no client may set: Envoy's own
// configuration removes them as well.
func Internal() []string {
	return []string{Engine, Prefill, Upstream, PromptTokens, Filled, Destination}
}

// Explanations returns the response headers by which a reply explains what was
// decided, of which the configuration says which are sent. In a reply [Engine] is
// the engine that has answered, and [Upstream] its replica.
func Explanations() []string {
	return []string{Ignored, Engine, Retries, PromptTokens, CachedTokens, Passed, Upstream}
}

// Own returns the request headers that the filter reads and that go no further: a
// client's values of them never reach an engine or an upstream.
func Own() []string { return append(Internal(), Override, Codex) }
