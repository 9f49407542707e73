package telemetry

import (
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// The values of the label outcome of harmony_requests_total.
const (
	outcomeOK       = "ok"
	outcomeRejected = "rejected" // an error in place of a reply, because of the request
	outcomeFailed   = "failed"   // an error in place of a reply or in it, not because of the request
	outcomeDrain    = "drain"    // the process was shut down before the reply was complete
	// outcomeCanceled: the client left or canceled. Without a loopback listener also: the engine
	// disconnected after the reply had begun.
	outcomeCanceled = "canceled"
)

// Record gathers what an exchange, or the making of a background response, is
// logged and counted by. It is used by one goroutine.
type Record struct {
	Started time.Time
	// Response is the id of the reply; "": there is none.
	Response string
	// Tape is nil where the exchange is not recorded.
	Tape *record.Tape
	// Rollout is the side of the rollout that the request is part of; "": it is part of none.
	Rollout string

	// promptTokens are those of all model calls.
	promptTokens int
	modelCalls   int
	// retries are model calls that were repeated.
	retries int
	// continuations are model calls that were lost, and that others continued.
	continuations int
	// interrupted says why the model was interrupted; "": it was not.
	interrupted string
	// firstToken is the time from Started; 0: there is none yet.
	firstToken time.Duration
	err        *apierror.Error
	// content is nil where it must not be logged.
	content *content
	// request is nil where there is no OpenTelemetry, or it has not begun.
	request *requestSpan
}

// content is prompt and output, for operators who ask to see them.
type content struct {
	prompt []harmony.Token
	output map[int][]harmony.Token // by choice
}

// Err is the error that the client got; nil: none.
func (r *Record) Err() *apierror.Error { return r.err }

// Failed notes the error that the client got.
func (r *Record) Failed(err *apierror.Error) { r.err = err }

// Chunk notes output of the engine.
func (r *Record) Chunk(c *engine.Chunk, now time.Time) {
	if r.firstToken == 0 {
		r.firstToken = now.Sub(r.Started)
	}
	if r.request != nil {
		r.request.call.chunk(c, now)
	}
	if r.content != nil {
		r.content.output[c.Index] = append(r.content.output[c.Index], c.Tokens...)
	}
}

// Kind is what a record is about.
type Kind uint8

// The kinds. The request that queues a background response and the making of
// the response have a record each; only the second is counted.
const (
	Foreground Kind = iota
	Queued
	Background
)

// Outcome is how what a [Record] is about has ended.
type Outcome struct {
	Kind      Kind
	API       string // "": none
	RequestID string
	Tenant    string
	Model     string // name at the engine
	Engine    string // "": the model was not known
	Complete  bool   // the client got a reply to its end
	Answered  bool   // an engine has begun to answer
	Summary   turn.Summary
	ToolCalls int     // made by the filter
	ToolFails int     // of these and of listings of tools
	Priced    bool    // the model has prices
	Cost      float64 // of the reply's tokens, in the currency of the prices
	Fault     error   // what went wrong without an error for the client
	Advice    string  // what the operator can improve at the engine
	Now       time.Time
}

// Telemetry writes the log lines and counts the metrics of all exchanges. It is
// safe for concurrent use.
type Telemetry struct {
	Log     *logrus.Logger
	Metrics *Metrics
	OTel    *OTel // nil: no spans and no metrics for OpenTelemetry are made
	// Recorder gets the tapes of exchanges that have ended.
	Recorder *record.Recorder
	content  bool
	advised  *sync.Map // engine name: its advice has been logged
}

// New makes telemetry that logs to log. content allows prompts and replies in
// debug logs.
func New(log *logrus.Logger, metrics *Metrics, content bool) *Telemetry {
	return &Telemetry{Log: log, Metrics: metrics, content: content, advised: &sync.Map{}}
}

// With returns the same telemetry, in which content allows prompts and replies in debug
// logs, and recorder gets the tapes of exchanges.
func (t *Telemetry) With(content bool, recorder *record.Recorder) *Telemetry {
	next := *t
	next.content, next.Recorder = content, recorder
	return &next
}

// ModelCall notes in a record that a model call is made.
func (t *Telemetry) ModelCall(r *Record, req *engine.Request, now time.Time) {
	r.promptTokens += len(req.Prompt)
	r.modelCalls++
	if r.request != nil {
		r.request.beginCall(req, now)
	}

	switch {
	case !t.content || !t.Log.IsLevelEnabled(logrus.DebugLevel):
	case r.content == nil:
		r.content = &content{req.Prompt, map[int][]harmony.Token{}}
	default:
		// It includes the outputs of the calls before.
		r.content.prompt = req.Prompt
	}
}

// PassedThrough counts a request that was not the filter's.
func (t *Telemetry) PassedThrough(r *Record, requestID, path string, now time.Time) {
	t.Recorder.Drop(r.Tape)
	t.Metrics.passedThrough.Inc()

	// There is a span where an endpoint has looked for what is not stored here.
	if r.request != nil {
		r.request.span.SetAttributes(keyOutcome.String("passed_through"))
		r.request.span.End(at(now))
	}
	if !t.Log.IsLevelEnabled(logrus.DebugLevel) {
		return
	}

	fields := logrus.Fields{
		"request_id": requestID, "path": path, "harmony": false, "seconds": now.Sub(r.Started).Seconds(),
	}
	if r.Rollout != "" {
		fields["rollout"] = r.Rollout
	}
	t.log(logrus.DebugLevel, "passed through", fields)
}

// Close writes the log line of a record, ends its span and counts it.
func (t *Telemetry) Close(r *Record, o *Outcome) {
	label := r.outcome(o)
	if r.request != nil {
		r.request.end(r, o, label)
	}
	// A queued response is counted when it has been made; its tape goes on with the making.
	if o.Kind != Queued {
		t.count(r, o, label)
		if r.Tape != nil {
			t.Recorder.End(r.Tape, r.result(o, label))
		}
	}

	t.advise(o)
	if r.content != nil {
		t.logContent(r, o)
	}

	level := logrus.InfoLevel
	if label == outcomeFailed || label == outcomeDrain || o.Fault != nil {
		level = logrus.WarnLevel
	}
	// The fields of each request are made only to be written.
	if !t.Log.IsLevelEnabled(level) {
		return
	}
	fields := r.fields(o)
	fields["outcome"] = label
	if o.Fault != nil {
		fields["fault"] = o.Fault.Error()
	}
	t.log(level, "request", fields)
}

// log writes a line with these fields, which are not copied.
func (t *Telemetry) log(level logrus.Level, message string, fields logrus.Fields) {
	(&logrus.Entry{Logger: t.Log, Data: bounded(fields)}).Log(level, message)
}

// result is how an exchange has ended, for its record.
func (r *Record) result(o *Outcome, label string) record.Result {
	s := &o.Summary
	result := record.Result{
		Outcome: label, Status: http.StatusOK, Response: r.Response, Prompt: r.promptTokens,
		Calls: r.modelCalls, Retries: r.retries, Continuations: r.continuations,
	}
	if r.err != nil {
		result.Status, result.Code, result.Error = r.err.Status, r.err.Code, r.err.Message
	}
	// Without an answer the counts are zero because nothing is known, not because nothing came.
	if !o.Answered {
		return result
	}
	result.Output, result.Reasoning = s.Counts.Output, s.Counts.Reasoning
	result.Repairs, result.Finish = s.Repairs, string(s.Finish)
	if s.Cached != engine.Unknown {
		result.Cached = &s.Cached
	}

	return result
}

func (r *Record) outcome(o *Outcome) string {
	switch {
	case r.err != nil && r.err.Status < 500:
		return outcomeRejected
	// Before other failures: operators expect these with each restart.
	case r.err != nil && r.err.Code == apierror.CodeShutdown:
		return outcomeDrain
	case r.err != nil:
		return outcomeFailed
	case o.Complete:
		return outcomeOK
	}
	return outcomeCanceled
}

// fields are those of the log line. docs/operations.md lists them.
func (r *Record) fields(o *Outcome) logrus.Fields {
	// Room for all fields that most requests have: the map grows once a request otherwise.
	fields := make(logrus.Fields, 32)
	fields["request_id"], fields["harmony"], fields["model"] = o.RequestID, true, o.Model
	fields["seconds"] = o.Now.Sub(r.Started).Seconds()

	add := func(name string, value any, known bool) {
		if known {
			fields[name] = value
		}
	}

	add("api", o.API, o.API != "")
	add("tenant", o.Tenant, o.Tenant != "")
	add("engine", o.Engine, o.Engine != "")
	add("response", r.Response, r.Response != "")
	add("rollout", r.Rollout, r.Rollout != "")
	add("background", true, o.Kind == Background)
	add("queued", true, o.Kind == Queued)
	add("prompt_tokens", r.promptTokens, r.promptTokens > 0)
	add("model_calls", r.modelCalls, r.modelCalls > 0)
	add("retries", r.retries, r.retries > 0)
	add("interrupted", r.interrupted, r.interrupted != "")
	add("continuations", r.continuations, r.continuations > 0)
	add("tool_calls", o.ToolCalls, o.ToolCalls > 0)
	add("tool_errors", o.ToolFails, o.ToolFails > 0)

	if r.err != nil {
		fields["status"], fields["error"], fields["code"] = r.err.Status, r.err.Message, r.err.Code
		if r.err.Cause != nil {
			fields["cause"] = r.err.Cause.Error()
		}
		if r.err.Limit != nil {
			fields["budget"] = r.err.Limit.Budget
		}
	}
	if o.Answered {
		addSummary(fields, o.Summary)
		add("cost", o.Cost, o.Priced)
		fields["first_token_seconds"] = r.firstToken.Seconds()
	}

	return fields
}

func addSummary(fields logrus.Fields, s turn.Summary) {
	fields["output_tokens"] = s.Counts.Output
	for _, c := range channels(s.Counts) {
		fields[c.field] = c.tokens
	}

	if s.Cached != engine.Unknown {
		fields["cached_tokens"] = s.Cached
	}

	fields["finish"], fields["calls"] = string(s.Finish), s.Calls
	if len(s.Repairs) > 0 {
		fields["repairs"] = s.Repairs
	}
	if s.Diagnosis != nil {
		addDiagnosis(fields, s.Diagnosis)
	}
}

// addDiagnosis adds where and why a prompt does not continue those of its session, and
// why the engine did not have it in its cache.
func addDiagnosis(fields logrus.Fields, d *turn.Diagnosis) {
	f, missed := d.Session, d.Missed().String()

	// Against the session's last prompt; missed is against what the engine said it had.
	broken := f.Cause.String()
	if broken != "" {
		fields["prefix_broken"], fields["prefix_lost_tokens"] = broken, f.Lost
		fields["prefix_token"], fields["prefix_message"], fields["prefix_role"] = f.Token, f.Message, f.Role.String()
	}
	if missed != "" {
		fields["prefix_missed"] = missed
	}
	if broken != "" || missed != "" {
		fields["prefix_shared_tokens"] = f.Shared
	}
}

// channelTokens is the tokens of a channel, by the names of metrics and of log lines.
type channelTokens struct {
	name, field string
	tokens      int
}

func channels(c turn.Counts) [4]channelTokens {
	return [...]channelTokens{
		{"analysis", "analysis_tokens", c.Reasoning},
		{"call", "call_tokens", c.Call},
		{"text", "text_tokens", c.Text},
		{"other", "other_tokens", c.Output - c.Reasoning - c.Call - c.Text},
	}
}

func (t *Telemetry) count(r *Record, o *Outcome, label string) {
	m := t.Metrics

	// Names come from clients: only a served one becomes a label, as each label is kept for good.
	model := noModel
	if o.Engine != "" {
		model = m.model(o.Model, o.Answered)
	}

	m.requests.WithLabelValues(o.API, model, label).Inc()
	if r.err != nil && r.err.Limit != nil {
		m.budgetRefused.WithLabelValues(r.err.Limit.Budget).Inc()
	}
	if o.Priced {
		m.cost.WithLabelValues(model).Add(o.Cost)
	}

	exemplar := r.exemplar()
	observe(m.duration.WithLabelValues(o.API, model), o.Now.Sub(r.Started), exemplar)
	m.prompt.WithLabelValues(model).Add(float64(r.promptTokens))
	if r.firstToken > 0 {
		observe(m.first.WithLabelValues(o.API, model), r.firstToken, exemplar)
	}
	if !o.Answered {
		return
	}

	if d := o.Summary.Diagnosis; d != nil {
		for _, cause := range []string{d.Session.Cause.String(), d.Missed().String()} {
			if cause != "" {
				m.prefixBroken.WithLabelValues(cause).Inc()
			}
		}
	}

	for kind := range o.Summary.Repairs {
		m.parsing.WithLabelValues(kind).Inc()
	}

	if o.Summary.Cached != engine.Unknown {
		m.cached.WithLabelValues(model).Add(float64(o.Summary.Cached))
	}
	if o.Summary.ModelCalls > 0 {
		m.calls.WithLabelValues(o.API).Observe(float64(o.Summary.ModelCalls))
	}

	for _, c := range channels(o.Summary.Counts) {
		m.tokens.WithLabelValues(model, c.name).Add(float64(c.tokens))
	}
}

// advise logs once for each engine what its operator can improve.
func (t *Telemetry) advise(o *Outcome) {
	if o.Advice == "" {
		return
	}
	// Once for each engine and process: it is about the engine, not about the request.
	if _, logged := t.advised.LoadOrStore(o.Engine, true); !logged {
		t.Log.WithField("engine", o.Engine).Warn(o.Advice)
	}
}

// logContent writes the prompt and the model's output, control tokens by name, and the
// error of an engine in its own words.
func (t *Telemetry) logContent(r *Record, o *Outcome) {
	// Only at debug level, and only if the operator wants content: ModelCall has looked.
	entry := t.Log.WithFields(logrus.Fields{"request_id": o.RequestID, "prompt": decoded(r.content.prompt)})
	for choice, ids := range r.content.output {
		entry = entry.WithField("output_"+strconv.Itoa(choice), decoded(ids))
	}

	// An error that the client did not get is none of this request.
	var cause *engine.Cause
	if r.err != nil && errors.As(r.err.Cause, &cause) && cause.Text != "" {
		entry = entry.WithField("engine_error", cause.Text)
	}
	entry.Debug("content")
}

// decoded is tokens as text, without ids that the vocabulary does not have.
func decoded(ids []harmony.Token) string {
	var b []byte
	// One by one, so that an unknown token loses only its own text.
	for i := range ids {
		b, _ = harmony.AppendDecode(b, ids[i:i+1])
	}
	return string(b)
}
