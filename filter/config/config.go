// Package config is the filter's configuration: one YAML file, overridden by the
// environment and by flags.
//
//	c, err := config.Parse("harmony.yaml", text)
//	unknown, err := c.ApplyEnv(os.Environ())
//	err = c.Validate()
//
// The keys are the json tags of [Config]; docs/configuration.md lists them. What reads,
// overrides, prints and compares configurations goes by the type (keys.go), so that a key
// is a field, its check (check.go and the files of single keys), and its line in the docs.
// [DefaultsIn] fits the defaults to the memory of the process.
//
// A configuration is data: nothing here opens what it names. What one key means to
// another package is said in that package's words, by methods such as [Config.Model],
// [Config.Budgets] and [Tools.Options]. A configuration does not change once it is handed
// over; [Config.CheckReload] says which keys a running process cannot change.
package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/header"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// The values of the keys that take one of a few words. Those of the settings of
// models are package turn's.
const (
	UnknownPass   = "pass"   // unknown_models: requests are the upstream's
	UnknownReject = "reject" // unknown_models: requests are a 404

	KVHintsNone   = "none"   // engines[].kv_hints: there are none
	KVHintsRetain = "retain" // engines[].kv_hints: what to keep of prompts and outputs, and for how long

	LogFormatAuto = "auto" // log.format: short rows on a terminal, else JSON
	LogFormatJSON = "json" // log.format: one JSON object a line
	LogFormatText = "text" // log.format: names and values
)

const (
	envPrefix = "ENVOY_HARMONY_"
	envModels = "ENABLE_HARMONY_FOR_MODELS"
)

// Config is the filter's configuration: one YAML file, overridden by the
// environment and by flags. The zero value is not usable; start from
// [Defaults]. It is immutable once handed to New.
//
// It is large because it is the top level of the file.
type Config struct {
	// HarmonyModels says which models are Harmony's: each entry is a
	// case-insensitive substring of the request's model, or, written =name,
	// the whole of it (case-insensitive too).
	HarmonyModels []string `json:"harmony_models"`
	// UnknownModels is what happens to requests for other models at the filter's paths: pass or
	// reject, where nobody behind Envoy serves any.
	UnknownModels string `json:"unknown_models"`
	// ModelDefaults holds the settings of every Harmony model that Models
	// does not set otherwise. Its Match is not used.
	ModelDefaults Model `json:"model_defaults"`
	// Models refines single models. The first entry that matches is taken;
	// its empty fields fall back to ModelDefaults.
	Models []Model `json:"models"`
	// ReasoningBudgets bound the reasoning of tenants, beside the Reasoning of models.
	// The first entry that matches a request is taken.
	ReasoningBudgets []ReasoningBudget `json:"reasoning_budgets"`
	// ToolStrictnessFor sets ToolStrictness for tenants. The first entry that matches a request
	// is taken.
	ToolStrictnessFor []ToolStrictness `json:"tool_strictness_for"`
	// TokenBudgets bound the tokens that tenants, keys and models use. Each name's first
	// entry that matches a request is taken.
	TokenBudgets []TokenBudget `json:"token_budgets"`
	// Aliases are other names for Harmony models. The first entry that matches is
	// taken.
	Aliases []Alias `json:"aliases"`
	// Engines are the backends. The first is the default one.
	Engines []Engine `json:"engines" reload:"envoy"`

	// AllowOverride lets a request's header x-envoy-harmony: on or off
	// decide in place of HarmonyModels.
	AllowOverride bool `json:"allow_override"`
	// OnMalformed is what happens to output that is not well-formed Harmony:
	// repair or fail.
	OnMalformed string `json:"on_malformed"`
	// Images is what happens to pictures in user messages: placeholder or
	// reject.
	Images string `json:"images"`
	// Date is the conversation's date in the system message: utc, none or a
	// fixed YYYY-MM-DD.
	Date string `json:"date"`
	// CanonicalSchemas sorts the members of the schemas of a request's tools, so
	// that the prompts of a client that shuffles them begin with the same tokens.
	CanonicalSchemas bool `json:"canonical_schemas"`
	// UnknownTools says what happens to calls of a chat to tools that the
	// request does not have: client hands them to the client, model returns an
	// error to the model, which has another turn.
	UnknownTools string `json:"unknown_tools"`
	// ReasoningFields names the chat field(s) that carry reasoning: both,
	// reasoning or reasoning_content.
	ReasoningFields string `json:"reasoning_fields"`
	// Rollout is the share of sessions that the filter handles, by model and
	// tenant. The first entry that matches a request is taken. None: all.
	Rollout []Rollout `json:"rollout"`
	// TenantHeader is the request header, set by Envoy's authentication,
	// whose value keeps tenants apart. Empty: there is one tenant. Where it
	// is configured, a request without it is a 401.
	TenantHeader string `json:"tenant_header" reload:"envoy"`
	// KeyHeader is the request header whose credentials Envoy has authenticated, and by
	// which token budgets know clients. Empty: authorization or x-api-key, if a request
	// does not have different ones in both.
	KeyHeader string `json:"key_header"`

	// ReplyHeaders names the response headers by which replies explain what
	// was decided, of header.Explanations.
	ReplyHeaders []string `json:"reply_headers"`

	// Loopback is where Envoy's loopback listener is, host:port,
	// https://host:port or unix:///path: a listener with the routes to the
	// engines and without the filter. Model calls go through it. Empty: run makes one; serve has
	// none, so that Envoy sends the client's own request on to the engine. If
	// an engine disconnects mid-stream, the client's stream is reset then, and
	// background responses and tools are refused.
	Loopback string `json:"loopback" reload:"restart"`
	// LoopbackCoalescing is the time between two reads of a busy connection to
	// Loopback, 0: it is read whenever bytes arrive.
	LoopbackCoalescing Duration `json:"loopback_coalescing" reload:"restart"`
	// LoopbackTLS is that of a Loopback with https.
	LoopbackTLS LoopbackTLS `json:"loopback_tls"`
	// StoreURL is where responses, conversations, kept reasoning and dates
	// are kept: memory:, sqlite:PATH, redis://… or postgres://….
	StoreURL string `json:"store_url" reload:"restart"`

	Routing   Routing   `json:"routing"`
	Responses Responses `json:"responses"`
	Tools     Tools     `json:"tools"`
	Limits    Limits    `json:"limits"`
	Log       Log       `json:"log"`
	Record    Record    `json:"record"`
	Inspector Inspector `json:"inspector"`

	// Listen is where serve takes ext_proc streams: host:port or
	// unix:///path.
	Listen string `json:"listen" reload:"restart"`
	// TLS is that of Listen.
	TLS TLS `json:"tls"`
	// MaxConnectionAge is how long a connection to Listen takes new streams. Then
	// Envoy makes another one, and running streams end on the old one. 0: forever.
	MaxConnectionAge Duration `json:"max_connection_age" reload:"restart"`
	// Admin is host:port of metrics and health. Empty: 127.0.0.1:9003 in
	// serve, a free port of 127.0.0.1 in run.
	Admin     string    `json:"admin" reload:"restart"`
	WebSocket WebSocket `json:"websocket"`

	// ReloadInterval is how often the configuration file is looked at for a
	// change, which is taken over. 0: never.
	ReloadInterval Duration `json:"reload_interval"`
	// DrainDelay is how long serve still takes requests after its health checks
	// begin to fail.
	DrainDelay Duration `json:"drain_delay"`
	// DrainTimeout is how long a shutdown then waits for running requests.
	DrainTimeout Duration `json:"drain_timeout"`
}

// WebSocket is the Responses API over WebSocket.
type WebSocket struct {
	// Listen is where connections come in: host:port or unix:///path. Only Envoy may reach it.
	// Empty: run makes one; serve has none, and upgrades are answered with 426.
	Listen string `json:"listen" reload:"restart"`
	// MaxConnections is how many connections there may be at one time, and MaxResponses how many
	// responses of one connection, those that wait included.
	MaxConnections int `json:"max_connections"`
	MaxResponses   int `json:"max_responses"`
	// IdleTimeout is how long a connection may be without a response, and MaxAge how long it
	// takes new ones.
	IdleTimeout Duration `json:"idle_timeout"`
	MaxAge      Duration `json:"max_age"`
}

// Model holds the settings of one model, or of several that match alike.
//
// A key is a field here. The value of model_defaults for it, and that a number below 0 is
// refused, follow from the type; [Config.TurnModel] hands it to turns, and check knows its
// words. modelkeys_test.go has a fault for each place that a new key lacks.
type Model struct {
	// Match selects models as an entry of HarmonyModels does.
	Match string `json:"match"`
	// Engine is the name of the engine that serves the model. Empty: the
	// first engine.
	Engine string `json:"engine"`
	// UpstreamModel is the model's name at the engine. Empty: as the client
	// wrote it.
	UpstreamModel string `json:"upstream_model"`
	// Identity is the first line of the system message.
	Identity string `json:"identity"`
	// KnowledgeCutoff is the system message's cutoff, such as 2024-06.
	KnowledgeCutoff string `json:"knowledge_cutoff"`
	// Effort is the reasoning effort where a request names none: low, medium
	// or high.
	Effort string `json:"effort"`
	// EffortUpdates says what happens to the effort that a conversation sets after its
	// beginning. exact: the prompt says so, in its first tokens. keep_prefix: the prompt stays,
	// for the engine's cache, and a budget of reasoning lowers the effort; it needs the Loopback.
	EffortUpdates string `json:"effort_updates"`
	// ContextLength is how many tokens prompt and output may have together.
	// 0: what the engine reports, if there is a Loopback, else 131072.
	ContextLength int `json:"context_length"`
	// ToolArguments says what happens to arguments of calls that are no JSON object:
	// repair, where there is only one way, or pass. retry: what cannot be repaired, or breaks
	// the tool's schema, is asked for again.
	ToolArguments string `json:"tool_arguments"`
	// ToolStrictness says what the engine's grammar enforces of calls of tools that are not strict.
	// none: nothing. names: they are of tools of the request. arguments: their arguments follow the
	// schema too, unless the client says that they need not. all_arguments: also then.
	ToolStrictness string `json:"tool_strictness"`
	// History says how the model's own steps are rendered in later prompts. exact: as the model
	// wrote them, which is what its engine has in its cache; of a finished turn the headers of calls.
	// canonical: all in the form of OpenAI's library.
	History string `json:"history"`
	// Reasoning bounds the model's reasoning.
	Reasoning Reasoning `json:"reasoning"`
	// Prices are what the model's tokens cost.
	Prices Prices `json:"prices"`
}

// Prices are what a million tokens of a model cost, in any currency, as decimal numbers
// such as 0.15. Empty: nothing.
type Prices struct {
	Input       string `json:"input"`        // prompt tokens that are not in the engine's cache
	CachedInput string `json:"cached_input"` // those that are. Empty: as Input
	Output      string `json:"output"`       // output tokens, with those of reasoning
}

// Reasoning bounds a model's reasoning. A field that is 0 sets no bound. It needs the
// Loopback.
type Reasoning struct {
	// Budget is the most tokens of reasoning of a model call. Then the model has to
	// answer or to call a tool.
	Budget int `json:"budget"`
	// BudgetLow, BudgetMedium and BudgetHigh are the same for one reasoning effort.
	BudgetLow    int `json:"budget_low"`
	BudgetMedium int `json:"budget_medium"`
	BudgetHigh   int `json:"budget_high"`
	// ReserveFinalTokens is how many tokens of the output's limit reasoning leaves to
	// the answer.
	ReserveFinalTokens int `json:"reserve_final_tokens"`
	// MaxRepeats is how often the same sequence of tokens may come in a row.
	MaxRepeats int `json:"max_repeats"`
}

// ReasoningBudget bounds the reasoning of a tenant's or a model's requests.
type ReasoningBudget struct {
	// Match selects models as an entry of HarmonyModels does. Empty: all.
	Match string `json:"match"`
	// Tenant is the tenant. Empty: all.
	Tenant string `json:"tenant"`
	// Tokens is the most tokens of reasoning of a model call.
	Tokens int `json:"tokens"`
}

// ToolStrictness is what is enforced of the calls of a tenant.
type ToolStrictness struct {
	// Match selects models as an entry of HarmonyModels does. Empty: all.
	Match string `json:"match"`
	// Tenant is the tenant. Empty: all.
	Tenant string `json:"tenant"`
	// Strictness is one of the words of a model's ToolStrictness.
	Strictness string `json:"strictness"`
}

// Engine is a backend that serves Harmony models from token ids.
type Engine struct {
	// Name is the engine's name in routes, metrics and models. Empty: its
	// kind.
	Name string `json:"name"`
	// Kind is the wire format the engine speaks, such as sglang or vllm.
	Kind string `json:"kind"`
	// URLs are the engine's addresses, http or https. Only run and
	// envoy-config read them: connections are Envoy's.
	URLs []string `json:"urls"`
	// HealthPath is the path, such as /health, of Envoy's health checks of URLs
	// and Prefill. It is for HTTP kinds. Empty: there are no health checks. Only
	// run and envoy-config read it.
	HealthPath string `json:"health_path"`
	// EndpointPicker is the address of the ext_proc service that chooses a
	// replica for each call, http or https. Empty: Envoy chooses. Only run and
	// envoy-config read it.
	EndpointPicker string `json:"endpoint_picker"`
	// KVHints says which hints about their KV cache model calls have: none, or retain, for kinds that
	// take such. Empty: none.
	KVHints string `json:"kv_hints"`
	// Prefill are the processes that compute prompts for those of URLs, which
	// then only generate the output. Empty: each of URLs does both.
	Prefill []Prefill `json:"prefill"`
}

// Prefill is a process that computes prompts.
type Prefill struct {
	// URL is its address, http or https as the engine's URLs. An SGLang decode
	// engine reaches it by the same host.
	URL string `json:"url"`
	// BootstrapPort is the port of SGLang's bootstrap server. 0: 8998.
	BootstrapPort int `json:"bootstrap_port"`
}

// DefaultBootstrapPort is SGLang's own default.
const DefaultBootstrapPort = 8998

// KVHinted reports whether model calls of an engine have hints about its KV cache.
func (c *Config) KVHinted(name string) bool {
	return slices.ContainsFunc(c.Engines, func(e Engine) bool { return e.Name == name && e.KVHints == KVHintsRetain })
}

// PrefillName is what Envoy's route to the engine's prefill endpoints matches.
func (e Engine) PrefillName() string { return e.Name + header.PrefillSuffix }

// PrefillURLs are the addresses of the engine's prefill endpoints.
func (e Engine) PrefillURLs() []string {
	urls := make([]string, len(e.Prefill))
	for i, p := range e.Prefill {
		urls[i] = p.URL
	}
	return urls
}

// Routing is what Envoy gets to choose an engine's replica by, and which paths of the
// upstream are open. The headers are removed from clients' requests.
type Routing struct {
	// PrefixHeader is the header of a key that stays the same while a
	// conversation grows. Empty: it is not sent.
	PrefixHeader string `json:"prefix_header" reload:"envoy"`
	// SessionHeader is the header of a key of the session that the request
	// names, else that of the prefix. Empty: it is not sent.
	SessionHeader string `json:"session_header" reload:"envoy"`
	// SessionFrom names the request headers that name a session, in order of
	// precedence. What the body says precedes them.
	SessionFrom []string `json:"session_from"`
	// SelectionTextBytes is how much of the last user's text is in the dynamic
	// metadata (header.MetadataNamespace), for endpoint pickers that choose by
	// content. 0: nothing.
	SelectionTextBytes int `json:"selection_text_bytes"`
	// SelectionHeader is the header of a model call that carries that text,
	// percent-encoded. Empty: it is not sent.
	SelectionHeader string `json:"selection_header" reload:"envoy"`
	// OpenPaths are paths of the upstream that clients may use beside those that are
	// open by default: a path, or /v1/files/* for it and all below. With
	// /v1/completions among them, requests for Harmony models pass too.
	OpenPaths []string `json:"open_paths" reload:"envoy"`
}

// sessionHeaders are the headers by which Codex, in its versions, and Claude Code name
// a session. A sub-agent of Claude Code has the session of its parent, and a header of
// its own (x-claude-code-agent-id), which is left alone: its requests begin with the
// same tools and instructions.
var sessionHeaders = []string{"session-id", "session_id", "conversation_id", "thread-id", "x-claude-code-session-id"}

// maxSelectionText keeps the text, encoded, well within what headers may have.
const maxSelectionText = 4096

// Responses is about the Responses API.
type Responses struct {
	// StoreBytes bounds the stored responses in memory, per process, and in a
	// SQLite file. 0: none are stored.
	StoreBytes int64 `json:"store_bytes" reload:"restart"`
	// StoreTTL is how long a response is stored after its last use.
	StoreTTL Duration `json:"store_ttl" reload:"restart"`
	// ChainCacheBytes bounds what is remembered of chains of responses, so
	// that they are not read and rendered again at every turn, per process.
	// 0: nothing.
	ChainCacheBytes int64 `json:"chain_cache_bytes"`
	// SealKeys are 32 random bytes each, in base64. The first seals
	// reasoning.encrypted_content and compactions, all of them open them. Empty:
	// a random key of the process does both.
	SealKeys []string `json:"seal_keys"`
	// UsagePerTurn lists the model calls of a response in its usage, also
	// where the request does not ask for it.
	UsagePerTurn bool `json:"usage_per_turn"`
	// ReasoningEvents names the events of reasoning text: reasoning_text or
	// reasoning.
	ReasoningEvents string `json:"reasoning_events"`
	// ReasoningEventsFor name them for the requests of a tenant or a key. The first entry
	// that matches is used.
	ReasoningEventsFor []ReasoningEvents `json:"reasoning_events_for"`
	// CodexCompatibility has a turn be one response from the user's message
	// to the final answer, whatever tools are called in between. With
	// AllowOverride a request's header x-envoy-harmony-codex: on or off
	// decides in its place.
	CodexCompatibility bool `json:"codex_compatibility"`
	// RelayUnknown passes requests for responses and conversations that are not
	// stored here on to the upstream for other models, which may have them. Else they
	// are a 404. Where there is a Rollout, they are passed on in any case.
	RelayUnknown bool `json:"relay_unknown"`
	// ToolTimeout is how long such a turn waits for the outputs of its tools.
	ToolTimeout Duration `json:"tool_timeout"`
}

// ReasoningEvents names the events of reasoning text for some clients.
type ReasoningEvents struct {
	// Tenant is the tenant. Empty: all.
	Tenant string `json:"tenant"`
	// Key is the SHA-256 of the client's key, in hex, so that no file has the key. Empty: all.
	Key string `json:"key"`
	// Events is reasoning_text or reasoning.
	Events string `json:"events"`
}

// Limits bounds what a request may use. Every number is per request unless it
// says otherwise.
type Limits struct {
	// MaxBodyBytes is the largest request body, 413 beyond it. It binds the
	// filter's own requests, and others until they are known to be foreign.
	MaxBodyBytes int64 `json:"max_body_bytes"`
	// MaxConversationBytes bounds the stored items that a request brings in,
	// by a conversation, by the response that it continues and by
	// references, each reference by itself, and those that a conversation
	// can hold; 400 beyond it.
	MaxConversationBytes int `json:"max_conversation_bytes"`
	// MaxInflightBytes bounds the memory that all requests take at one time: their
	// bodies, the stored items that they bring in, what is made of both, and answers;
	// 503 with retry-after beyond it. The default is a part of the process's memory.
	MaxInflightBytes int64 `json:"max_inflight_bytes"`
	// MaxTools is the greatest number of tools.
	MaxTools int `json:"max_tools"`
	// BodyTimeout is how long a client may take to send its request body.
	BodyTimeout Duration `json:"body_timeout"`
	// FirstTokenTimeout is how long the engine may take from the request's
	// end to its first token.
	FirstTokenTimeout Duration `json:"first_token_timeout"`
	// IdleTimeout is how long the engine may be silent between tokens.
	IdleTimeout Duration `json:"idle_timeout"`
	// TotalTimeout is how long a request may take in all.
	TotalTimeout Duration `json:"total_timeout" reload:"envoy"`
	// HeaderHold is how long a streamed reply's headers wait for the
	// engine's first event, so that a late engine error keeps its status.
	HeaderHold Duration `json:"header_hold"`
	// KeepAlive is the time of silence after which a stream gets a keep-alive. 0: never.
	KeepAlive Duration `json:"keep_alive"`
	// MaxContinuations is how many lost model calls of a reply other calls may
	// continue behind their output. 0: a call that is lost after its first token
	// fails the reply.
	MaxContinuations int `json:"max_continuations"`
	// MaxBackground is how many background responses the process makes at
	// one time, 503 with retry-after beyond it.
	MaxBackground int `json:"max_background"`
	// CacheBytes bounds the cache of rendered prompt pieces, per process. 0:
	// no cache.
	CacheBytes int `json:"cache_bytes"`
	// DiagnosisBytes bounds what is remembered of sessions' prompts, per process,
	// to find out why a prompt is not in the engine's cache. 0: nothing.
	DiagnosisBytes int64 `json:"diagnosis_bytes"`
	// KeptReasoningBytes bounds the reasoning of unfinished tool turns that
	// is kept for clients that do not send it back, per process. 0: none.
	KeptReasoningBytes int64 `json:"kept_reasoning_bytes" reload:"restart"`
	// KeptReasoningTTL is how long such reasoning is kept.
	KeptReasoningTTL Duration `json:"kept_reasoning_ttl" reload:"restart"`
}

// Log says what is logged and how.
type Log struct {
	// Level is the least severe level: error, warning, info, debug or trace.
	Level string `json:"level"`
	// Format is auto, json or text.
	Format string `json:"format" reload:"restart"`
	// Content allows prompts and replies in debug logs.
	Content bool `json:"content"`
}

// Record says which exchanges are recorded, to be looked at and replayed. None are,
// unless Percent or Header is set.
type Record struct {
	// Percent is the share of the exchanges that are recorded.
	Percent int `json:"percent"`
	// Header is a request header with which a client decides for its request: on or
	// off. Empty: there is none.
	Header string `json:"header"`
	// Tenants, Models and Outcomes are the only ones that are recorded. Empty: all.
	Tenants  []string `json:"tenants"`
	Models   []string `json:"models"`
	Outcomes []string `json:"outcomes"`
	// Content keeps texts and tokens in records. Else their lengths are kept.
	Content bool `json:"content"`
	// MaxRecordBytes bounds what one record has; it is cut beyond it.
	MaxRecordBytes int `json:"max_record_bytes"`
	// MemoryBytes bounds the records that are kept in memory.
	MemoryBytes int64 `json:"memory_bytes" reload:"restart"`
	// Folder is where records are kept as files. Empty: they are not.
	Folder string `json:"folder" reload:"restart"`
	// FolderBytes and FolderAge bound the files. An age of 0 is none.
	FolderBytes int64    `json:"folder_bytes" reload:"restart"`
	FolderAge   Duration `json:"folder_age" reload:"restart"`
}

// Inspector is the page on the admin port that shows the records in memory.
type Inspector struct {
	// Enabled serves it, under /inspector/.
	Enabled bool `json:"enabled" reload:"restart"`
	// Token is the bearer token that its data needs. Empty: none is needed.
	Token string `json:"token" reload:"restart"`
}

// On reports whether any exchange may be recorded.
func (r *Record) On() bool { return r.Percent > 0 || r.Header != "" }

// Duration is a [time.Duration] that YAML writes as text, such as 2s or 1m30s.
type Duration struct{ time.Duration }

// Defaults is the configuration of an empty file.
func Defaults() *Config {
	return &Config{
		// A part of the name under which all providers have the models, such as openai/gpt-oss-20b.
		HarmonyModels: []string{"gpt-oss"},
		// Listeners with other models behind them exist: the filter must not be in their way.
		UnknownModels: UnknownPass,
		ModelDefaults: Model{
			Identity:        turn.DefaultIdentity,
			KnowledgeCutoff: turn.DefaultKnowledgeCutoff,
			Effort:          string(harmony.EffortMedium),
			EffortUpdates:   turn.EffortExact,
			ToolArguments:   turn.ArgumentsRepair,
			ToolStrictness:  turn.StrictnessNone,
			History:         turn.HistoryExact,
		},
		OnMalformed:     turn.MalformedRepair,
		Images:          turn.ImagesPlaceholder,
		Date:            turn.DateUTC,
		ReasoningFields: turn.ReasoningBoth,
		UnknownTools:    turn.UnknownToClient,
		// The replica is an address inside: an operator has to ask for it.
		ReplyHeaders: slices.DeleteFunc(header.Explanations(), func(name string) bool {
			return name == header.Upstream
		}),

		Routing: Routing{
			PrefixHeader:  "x-harmony-prefix",
			SessionHeader: "x-harmony-session",
			SessionFrom:   slices.Clone(sessionHeaders),
		},
		// A token is a millisecond later, for much less CPU time (docs/decisions/003-own-http2-client.md).
		LoopbackCoalescing: Duration{2 * time.Millisecond},

		Responses: Responses{
			StoreBytes:      256 << 20,
			StoreTTL:        Duration{24 * time.Hour},
			ChainCacheBytes: 64 << 20,
			ReasoningEvents: turn.EventsReasoningText,
			ToolTimeout:     Duration{5 * time.Minute},
		},
		Limits: Limits{
			MaxBodyBytes:         32 << 20,
			MaxConversationBytes: turn.DefaultLimits().Bytes,
			MaxInflightBytes:     1 << 30,
			MaxTools:             turn.DefaultLimits().Tools,
			BodyTimeout:          Duration{time.Minute},
			FirstTokenTimeout:    Duration{5 * time.Minute},
			IdleTimeout:          Duration{2 * time.Minute},
			TotalTimeout:         Duration{time.Hour},
			HeaderHold:           Duration{2 * time.Second},
			KeepAlive:            Duration{15 * time.Second},
			MaxContinuations:     2,
			MaxBackground:        1000,
			CacheBytes:           64 << 20,
			DiagnosisBytes:       32 << 20,
			KeptReasoningBytes:   64 << 20,
			KeptReasoningTTL:     Duration{time.Hour},
		},

		WebSocket: WebSocket{
			MaxConnections: 4096,
			MaxResponses:   16,
			IdleTimeout:    Duration{10 * time.Minute},
			MaxAge:         Duration{time.Hour},
		},

		Tools:    defaultTools(),
		StoreURL: "memory:",
		Log:      Log{Level: "info", Format: LogFormatAuto},
		Record: Record{
			MaxRecordBytes: 8 << 20,
			MemoryBytes:    64 << 20,
			FolderBytes:    1 << 30,
			FolderAge:      Duration{7 * 24 * time.Hour},
		},

		Listen:         "127.0.0.1:9002",
		ReloadInterval: Duration{5 * time.Second},
		DrainDelay:     Duration{3 * time.Second},
		DrainTimeout:   Duration{30 * time.Second},
	}
}

// Parse reads the YAML of a file over the defaults. A key that does not exist, or
// is repeated, is an error that names it. With an error about single keys, the
// configuration has the other keys; if the text is not YAML, there is none. Call
// [Config.Validate] once every override is applied.
func Parse(path string, text []byte) (*Config, error) { return Defaults().Parse(path, text) }

// Parse is [Parse] with c as the defaults, which it changes.
func (c *Config) Parse(path string, text []byte) (*Config, error) {
	err := readYAML(text, c, "")
	var unread notYAML
	switch {
	case errors.As(err, &unread):
		return nil, unread.in(path)
	case err != nil:
		lines := newLines(text)
		return c, located(err, func(key string) string {
			if line := lines.of(key); line > 0 {
				return fmt.Sprintf("configuration %s, line %d", path, line)
			}
			return "configuration " + path
		})
	}
	return c, nil
}

// Model returns the settings of the model that a request names, which may be an
// alias, and whether the model is Harmony's. Settings are returned in any case: they
// are used for another model if the request overrides the detection.
func (c *Config) Model(name string) (Model, bool) {
	name = c.unaliased(name)
	m := c.ModelDefaults
	// The first entry that matches is the only one: entries do not add up.
	for _, entry := range c.Models {
		if matches(entry.Match, name) {
			m = entry.over(m)
			break
		}
	}

	if m.Engine == "" && len(c.Engines) > 0 {
		m.Engine = c.Engines[0].Name
	}
	// As the client wrote it, without an alias: vLLM has a 404 for a name that it does not serve.
	if m.UpstreamModel == "" {
		m.UpstreamModel = name
	}
	return m, c.isHarmony(name)
}

// over fills m's empty fields from d.
//
// An empty text and 0 are not written, of any key: a model cannot switch off what the defaults
// switch on.
func (m Model) over(d Model) Model {
	to, from := reflect.ValueOf(&m).Elem(), reflect.ValueOf(&d).Elem()
	for _, k := range modelKeys {
		if field := to.FieldByIndex(k.index); field.IsZero() {
			field.Set(from.FieldByIndex(k.index))
		}
	}
	return m
}

// matches reports whether an entry (a substring, or =name) selects a model.
func matches(entry, name string) bool {
	if exact, ok := strings.CutPrefix(entry, "="); ok {
		return strings.EqualFold(exact, name)
	}
	return entry != "" && strings.Contains(strings.ToLower(name), strings.ToLower(entry))
}

// MarshalJSON writes what a configuration file has, such as "2s".
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }
