package config

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/header"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// What a configuration is checked for, before anything is made of it.

// faults are the errors of a check. Each names its key, and says what to write there.
type faults []error

// fault is a single one.
func fault(format string, args ...any) faults { return faults{fmt.Errorf(format, args...)} }

func (f *faults) add(format string, args ...any) { *f = append(*f, fmt.Errorf(format, args...)) }

// oneOf adds an error unless the value is one of the words.
func (f *faults) oneOf(key, value string, words ...string) {
	if !slices.Contains(words, value) {
		f.add("%s: must be one of %s, not %q", key, strings.Join(words, ", "), value)
	}
}

// optional is oneOf for a key that may be left out.
func (f *faults) optional(key, value string, words ...string) {
	if value != "" {
		f.oneOf(key, value, words...)
	}
}

// Validate checks the whole configuration and fills the names of unnamed
// engines. Its error names every key at fault and what to write there.
func (c *Config) Validate() error {
	// All checks are made, whatever the first ones find: who mends a file wants to see everything at once.
	_, unsealed := c.Responses.Keys()
	return errors.Join(append(slices.Concat(
		c.checkModels(),
		c.checkAliases(),
		c.checkRollout(),
		c.checkTokenBudgets(),
		c.checkEngines(),
		c.checkWords(),
		c.checkBounds(),
		c.Tools.check(),
		c.checkAddresses(),
		c.checkTLS(),
		c.checkLoopbackTLS(),
		c.checkStore(),
		c.Routing.checkOpenPaths(),
	), unsealed)...)
}

func (c *Config) checkStore() faults {
	if err := store.Check(c.StoreURL); err != nil {
		return fault("store_url: %w", err)
	}
	return nil
}

func (c *Config) checkModels() (errs faults) {
	if len(c.HarmonyModels) == 0 {
		errs.add("harmony_models: name at least one model, such as gpt-oss")
	}
	for i, entry := range c.HarmonyModels {
		if strings.TrimPrefix(entry, "=") == "" {
			errs.add("harmony_models[%d]: must not be empty: it would match every model or none", i)
		}
	}

	if c.ModelDefaults.Match != "" {
		errs.add("model_defaults.match: has no meaning here; move the entry to models")
	}
	errs = append(errs, c.ModelDefaults.check("model_defaults")...)
	for i, m := range c.Models {
		path := fmt.Sprintf("models[%d]", i)
		errs = append(errs, c.checkMatch(i, path+".match")...)
		errs = append(errs, m.check(path)...)
	}

	for i, b := range c.ReasoningBudgets {
		errs = append(errs, atLeast(fmt.Sprintf("reasoning_budgets[%d].tokens", i), b.Tokens, 1)...)
	}
	for i, s := range c.ToolStrictnessFor {
		errs.oneOf(fmt.Sprintf("tool_strictness_for[%d].strictness", i), s.Strictness, strictnesses...)
	}
	return errs
}

// checkMatch refuses an entry of models that no request can reach.
func (c *Config) checkMatch(i int, path string) faults {
	match := c.Models[i].Match
	if strings.TrimPrefix(match, "=") == "" {
		return fault("%s: write a part of the model's name, or =name", path)
	}
	if first := slices.IndexFunc(c.Models[:i], func(m Model) bool { return covers(m.Match, match) }); first >= 0 {
		return fault(
			"%s: %q is never reached: models[%d], %q, takes all that it matches; put the narrower one first",
			path, match, first, c.Models[first].Match)
	}
	// With allow_override a request may name a model that harmony_models does not have.
	if !c.AllowOverride &&
		!slices.ContainsFunc(c.HarmonyModels, func(entry string) bool { return meet(entry, match) }) {
		return fault("%s: %q is never reached: harmony_models has no such model; add it there", path, match)
	}
	return nil
}

// meet reports whether there can be a model that both entries match.
func meet(a, b string) bool { return covers(a, b) || covers(b, a) || !exact(a) && !exact(b) }

// covers reports whether one entry, of models or harmony_models, matches all that
// another matches.
func covers(entry, other string) bool {
	if exact(entry) {
		return strings.EqualFold(entry, other)
	}
	return matches(entry, strings.TrimPrefix(other, "="))
}

func exact(entry string) bool { return strings.HasPrefix(entry, "=") }

// strictnesses are the words of tool_strictness.
var strictnesses = []string{
	turn.StrictnessNone, turn.StrictnessNames, turn.StrictnessArguments, turn.StrictnessAll,
}

func (m Model) check(path string) (errs faults) {
	errs.optional(path+".effort", m.Effort,
		string(harmony.EffortLow), string(harmony.EffortMedium), string(harmony.EffortHigh))
	errs.optional(path+".effort_updates", m.EffortUpdates, turn.EffortExact, turn.EffortKeepPrefix)
	errs.optional(
		path+".tool_arguments", m.ToolArguments, turn.ArgumentsRepair, turn.ArgumentsPass, turn.ArgumentsRetry)
	errs.optional(path+".tool_strictness", m.ToolStrictness, strictnesses...)
	errs.optional(path+".history", m.History, turn.HistoryExact, turn.HistoryCanonical)
	if m.ContextLength < 0 {
		errs.add(
			"%s.context_length: must not be negative: leave it out for the engine's own, or write such as 131072", path)
	}

	_, prices := m.Prices.parse(path + ".prices")
	errs = append(errs, prices...)

	values := reflect.ValueOf(m)
	for _, k := range modelKeys {
		if number := values.FieldByIndex(k.index); number.CanInt() && k.path != "context_length" { // which is above
			errs = append(errs, atLeast(path+"."+k.path, number.Int(), 0)...)
		}
	}
	return errs
}

// engineName fits a header value and an Envoy cluster's name alike.
var engineName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

func (c *Config) checkEngines() (errs faults) {
	if len(c.Engines) == 0 {
		errs.add("engines: name at least one engine, such as [{kind: vllm, urls: [http://127.0.0.1:8000]}]")
	}

	names := make([]string, 0, len(c.Engines))
	for i := range c.Engines {
		e := &c.Engines[i]
		path := fmt.Sprintf("engines[%d]", i)
		errs.oneOf(path+".kind", e.Kind, engine.Kinds()...)

		// The name of most engines is left out. It is set here, so that two of a kind are found.
		if e.Name == "" {
			e.Name = e.Kind
		}
		switch {
		case slices.Contains(names, e.Name):
			errs.add("%s.name: %q is used twice; each engine needs a name of its own", path, e.Name)
		case e.Name != "" && !engineName.MatchString(e.Name):
			errs.add("%s.name: %q may hold letters, digits, dots, - and _ only", path, e.Name)
		}
		names = append(names, e.Name)

		if e.EndpointPicker != "" {
			if err := checkURL(e.EndpointPicker); err != nil {
				errs.add("%s.endpoint_picker: %w", path, err)
			}
		}
		for j, u := range e.URLs {
			if err := checkURL(u); err != nil {
				errs.add("%s.urls[%d]: %w", path, j, err)
			}
		}
		errs = append(errs, e.checkHealth(path)...)
		errs = append(errs, e.checkPrefill(path)...)
		errs.optional(path+".kv_hints", e.KVHints, KVHintsNone, KVHintsRetain)
		// That there is no such kind has been said.
		hinted, known := engine.KVHinted(), slices.Contains(engine.Kinds(), e.Kind)
		if e.KVHints == KVHintsRetain && known && !slices.Contains(hinted, e.Kind) {
			errs.add("%s.kv_hints: %s takes no hints; those that do are %s", path, e.Kind, strings.Join(hinted, ", "))
		}
	}

	// Now all names are known.
	for _, e := range c.Engines {
		if len(e.Prefill) > 0 && slices.Contains(names, e.PrefillName()) {
			errs.add(
				"engines: %s is the name of the prefill endpoints of %s; rename that engine", e.PrefillName(), e.Name)
		}
	}
	for path, m := range c.eachModel() {
		if m.Engine != "" && !slices.Contains(names, m.Engine) {
			errs.add("%s.engine: there is no engine %q; engines are: %s", path, m.Engine, strings.Join(names, ", "))
		}
	}
	return errs
}

// checkHealth checks the health path of the engine at path.
func (e *Engine) checkHealth(path string) faults {
	switch {
	case e.HealthPath == "":
		return nil
	case engine.IsGRPC(e.Kind):
		return fault("%s.health_path: is for HTTP engines, and %s is none; leave it out", path, e.Kind)
	case !healthPath.MatchString(e.HealthPath):
		return fault("%s.health_path: %q is no path; write such as /health", path, e.HealthPath)
	}
	return nil
}

var healthPath = regexp.MustCompile(`^/[A-Za-z0-9/._-]*$`)

// checkPrefill checks the prefill endpoints of the engine at path.
func (e *Engine) checkPrefill(path string) (errs faults) {
	if len(e.Prefill) == 0 {
		return nil
	}

	room, ok := engine.Disaggregates(e.Kind)
	if !ok {
		return fault(
			"%s.prefill: %s takes no prefill endpoints; those that do are %s",
			path, e.Kind, strings.Join(engine.Disaggregating(), ", "))
	}

	for j, p := range e.Prefill {
		if err := checkURL(p.URL); err != nil {
			errs.add("%s.prefill[%d].url: %w", path, j, err)
		}
		switch {
		case !room && p.BootstrapPort != 0:
			errs.add("%s.prefill[%d].bootstrap_port: is for SGLang only; leave it out", path, j)
		case p.BootstrapPort < 0 || p.BootstrapPort > math.MaxUint16:
			errs.add("%s.prefill[%d].bootstrap_port: %d is no port", path, j, p.BootstrapPort)
		}
	}
	return errs
}

func (c *Config) eachModel() func(yield func(string, Model) bool) {
	return func(yield func(string, Model) bool) {
		if !yield("model_defaults", c.ModelDefaults) {
			return
		}
		for i, m := range c.Models {
			if !yield(fmt.Sprintf("models[%d]", i), m) {
				return
			}
		}
	}
}

func checkURL(raw string) error {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return fmt.Errorf("%q is not a URL; write http://host:port", raw)
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("%q: the scheme must be http or https", raw)
	case u.Hostname() == "":
		return fmt.Errorf("%q: the host is missing; write http://host:port", raw)
	case !fitsPort(u):
		return fmt.Errorf("%q: the port must be a number from 1 to 65535", raw)
	// Envoy's clusters have addresses only.
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return fmt.Errorf("%q: write scheme, host and port only", raw)
	}
	return nil
}

// checkReasoningEvents checks which names the events of reasoning have, and for whom.
func (c *Config) checkReasoningEvents() (errs faults) {
	names := []string{turn.EventsReasoningText, turn.EventsReasoning}
	errs.oneOf("responses.reasoning_events", c.Responses.ReasoningEvents, names...)

	for i, e := range c.Responses.ReasoningEventsFor {
		path := fmt.Sprintf("responses.reasoning_events_for[%d]", i)
		errs.oneOf(path+".events", e.Events, names...)
		switch {
		case e.Tenant == "" && e.Key == "":
			errs.add("%s: write a tenant or a key; responses.reasoning_events is for all", path)
		case e.Tenant != "" && c.TenantHeader == "":
			errs.add("%s.tenant: there are no tenants: set tenant_header", path)
		}
		if e.Key != "" && !keyDigest.MatchString(e.Key) {
			errs.add("%s.key: must be the SHA-256 of the key in hex, as printf %%s KEY | sha256sum prints it", path)
		}
	}
	return errs
}

// keyDigest is a SHA-256 in hex.
var keyDigest = regexp.MustCompile(`^[0-9a-f]{64}$`)

var (
	headerName  = regexp.MustCompile(`^[a-z0-9-]*$`)
	sessionName = regexp.MustCompile(`^[a-z0-9_-]+$`)
)

func (c *Config) checkWords() (errs faults) {
	errs.oneOf("on_malformed", c.OnMalformed, turn.MalformedRepair, turn.MalformedFail)
	errs.oneOf("unknown_models", c.UnknownModels, UnknownPass, UnknownReject)
	errs.oneOf("images", c.Images, turn.ImagesPlaceholder, turn.ImagesReject)
	errs.oneOf("unknown_tools", c.UnknownTools, turn.UnknownToClient, turn.UnknownToModel)
	errs.oneOf("reasoning_fields", c.ReasoningFields, turn.ReasoningBoth, turn.ReasoningShort, turn.ReasoningContent)
	errs = append(errs, c.checkReasoningEvents()...)
	errs = append(errs, c.Record.check()...)

	errs.oneOf("log.format", c.Log.Format, LogFormatAuto, LogFormatJSON, LogFormatText)
	if _, err := logrus.ParseLevel(c.Log.Level); err != nil {
		errs.add("log.level: must be error, warning, info, debug or trace, not %q", c.Log.Level)
	}
	if _, err := time.Parse(time.DateOnly, c.Date); err != nil && c.Date != turn.DateUTC && c.Date != turn.DateNone {
		errs.add("date: must be utc, none or a date such as 2025-06-28, not %q", c.Date)
	}

	for i, name := range c.ReplyHeaders {
		errs.oneOf(fmt.Sprintf("reply_headers[%d]", i), name, header.Explanations()...)
	}

	// Two of these in one header would be read as each other.
	headers := []struct{ key, name, example string }{
		{"tenant_header", c.TenantHeader, "x-tenant"},
		{"routing.prefix_header", c.Routing.PrefixHeader, "x-harmony-prefix"},
		{"routing.session_header", c.Routing.SessionHeader, "x-harmony-session"},
		{"routing.selection_header", c.Routing.SelectionHeader, "x-harmony-selection"},
	}
	names := make([]string, 0, len(headers))
	for _, h := range headers {
		if !headerName.MatchString(h.name) {
			errs.add("%s: %q is no lower-case header name, such as %s", h.key, h.name, h.example)
		}
		if h.name != "" && slices.Contains(names, h.name) {
			errs.add("%s: tenant, prefix, session and selection need a header of their own each", h.key)
		}
		names = append(names, h.name)
	}

	if !headerName.MatchString(c.KeyHeader) {
		errs.add("key_header: %q is no lower-case header name, such as x-api-key", c.KeyHeader)
	}
	for i, name := range c.Routing.SessionFrom {
		if !sessionName.MatchString(name) {
			errs.add("routing.session_from[%d]: %q is no lower-case header name, such as session-id", i, name)
		}
	}

	if n := c.Routing.SelectionTextBytes; n < 0 || n > maxSelectionText {
		errs.add("routing.selection_text_bytes: must be from 0 to %d, not %d", maxSelectionText, n)
	} else if n == 0 && c.Routing.SelectionHeader != "" {
		errs.add("routing.selection_header: there is nothing to send: set routing.selection_text_bytes, such as 256")
	}
	return errs
}

// checkBounds checks the keys that are numbers and times.
func (c *Config) checkBounds() faults {
	l, r, t := &c.Limits, &c.Responses, &c.Tools
	return slices.Concat(
		atLeast("limits.max_body_bytes", l.MaxBodyBytes, 1),
		atLeast("limits.max_conversation_bytes", l.MaxConversationBytes, 1),
		l.checkInflight(),
		atLeast("limits.max_tools", l.MaxTools, 0),
		atLeast("limits.max_continuations", l.MaxContinuations, 0),
		atLeast("limits.max_background", l.MaxBackground, 0),
		atLeast("limits.cache_bytes", l.CacheBytes, 0),
		atLeast("limits.diagnosis_bytes", l.DiagnosisBytes, 0),
		atLeast("limits.kept_reasoning_bytes", l.KeptReasoningBytes, 0),
		atLeast("limits.kept_reasoning_ttl", l.KeptReasoningTTL.Duration, time.Millisecond),

		// Without these deadlines nothing ends a request: in full-duplex mode Envoy has none.
		atLeast("limits.body_timeout", l.BodyTimeout.Duration, time.Millisecond),
		atLeast("limits.first_token_timeout", l.FirstTokenTimeout.Duration, time.Millisecond),
		atLeast("limits.idle_timeout", l.IdleTimeout.Duration, time.Millisecond),
		atLeast("limits.total_timeout", l.TotalTimeout.Duration, time.Millisecond),

		// 0 switches these off.
		atLeast("limits.header_hold", l.HeaderHold.Duration, 0),
		atLeast("limits.keep_alive", l.KeepAlive.Duration, 0),

		atLeast("responses.store_bytes", r.StoreBytes, 0),
		atLeast("responses.store_ttl", r.StoreTTL.Duration, time.Millisecond),
		atLeast("responses.chain_cache_bytes", r.ChainCacheBytes, 0),
		atLeast("responses.tool_timeout", r.ToolTimeout.Duration, time.Second),

		// The largest message has to fit into what all of them may take.
		atLeast("tools.max_sessions", t.MaxSessions, 1),
		atLeast("tools.max_processes", t.MaxProcesses, 1),
		atLeast("tools.max_listed", t.MaxListed, 1),
		atLeast("tools.max_message_bytes", t.MaxMessageBytes, 64<<10),
		atLeast("tools.max_inflight_bytes", t.MaxInflightBytes, int64(t.MaxMessageBytes)),
		atLeast("tools.max_result_bytes", t.MaxResultBytes, 1024),
		atLeast("tools.max_turns", t.MaxTurns, 1),
		atLeast("tools.list_timeout", t.ListTimeout.Duration, time.Millisecond),
		atLeast("tools.call_timeout", t.CallTimeout.Duration, time.Millisecond),
		atLeast("tools.idle_timeout", t.IdleTimeout.Duration, time.Millisecond),

		atLeast("max_connection_age", c.MaxConnectionAge.Duration, 0),
		atLeast("websocket.max_connections", c.WebSocket.MaxConnections, 1),
		atLeast("websocket.max_responses", c.WebSocket.MaxResponses, 1),
		atLeast("websocket.idle_timeout", c.WebSocket.IdleTimeout.Duration, time.Second),
		atLeast("websocket.max_age", c.WebSocket.MaxAge.Duration, time.Second),
		atLeast("reload_interval", c.ReloadInterval.Duration, 0),
		atLeast("loopback_coalescing", c.LoopbackCoalescing.Duration, 0),
		c.checkCoalescing(),
		atLeast("drain_delay", c.DrainDelay.Duration, 0),
		atLeast("drain_timeout", c.DrainTimeout.Duration, 0),
	)
}

// checkInflight: a body that is allowed has to fit, with what is made of it.
func (l *Limits) checkInflight() faults {
	least := BytesOfBody * l.MaxBodyBytes
	if l.MaxInflightBytes >= least {
		return nil
	}
	return fault(
		"limits.max_inflight_bytes: must be at least %d, not %d: %d times limits.max_body_bytes, "+
			"which is what a body takes while it is decoded. Raise it, or lower limits.max_body_bytes",
		least, l.MaxInflightBytes, BytesOfBody)
}

func atLeast[T int | int64 | time.Duration](key string, value, least T) faults {
	if value >= least {
		return nil
	}
	return fault("%s: must be at least %v, not %v", key, least, value)
}

// maxCoalescing is the greatest loopback_coalescing.
const maxCoalescing = 20 * time.Millisecond

func (c *Config) checkCoalescing() faults {
	if c.LoopbackCoalescing.Duration <= maxCoalescing {
		return nil
	}
	return fault("loopback_coalescing: must be at most %v, not %v", maxCoalescing, c.LoopbackCoalescing)
}
