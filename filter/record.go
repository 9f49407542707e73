package filter

import (
	"errors"
	"strconv"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// The outcomes of a request in harmony_requests_total.
const (
	outcomeOK      = "ok"
	outcomeRefused = "refused" // an error in place of a reply, the client's fault
	outcomeFailed  = "failed"  // an error in place of a reply or in it, not the client's fault
	outcomeCut     = "cut"     // the client left, or cancelled; without a loopback listener also: the engine's connection broke after the reply had begun
)

// record is what is told of an exchange: one log line and the metrics.
type record struct {
	started  time.Time
	response string // the reply's id; "" where there is none
	prompt   int    // tokens of all model calls; 0 until the request was sent to the engine
	calls    int    // of the model
	tools    int    // calls of tools that were made here
	failures int    // of these, and of listings of tools
	first    time.Duration
	err      *apierror.Error
	content  *content // nil unless it may be logged
}

// content is what was said, for operators who ask to see it.
type content struct {
	prompt []harmony.Token
	output map[int][]harmony.Token // by choice
}

// dispatched notes that a token request goes out.
func (r *record) dispatched(req *engine.Request, keep bool) {
	r.prompt += len(req.Prompt)
	r.calls++
	switch {
	case !keep:
	case r.content == nil:
		r.content = &content{req.Prompt, map[int][]harmony.Token{}}
	default:
		r.content.prompt = req.Prompt // which has the outputs of the calls before it
	}
}

// chunk notes what the engine says.
func (r *record) chunk(c *engine.Chunk, now time.Time) {
	if r.first == 0 {
		r.first = now.Sub(r.started)
	}
	if r.content != nil {
		r.content.output[c.Index] = append(r.content.output[c.Index], c.Tokens...)
	}
}

// works notes that tools are given jobs.
func (r *record) works(list []tools.Job) {
	for i := range list {
		if list[i].Tool != "" { // else the server's tools are listed
			r.tools++
		}
	}
}

// worked notes what came of a job.
func (r *record) worked(result *tools.Result) {
	if result.Error != "" {
		r.failures++
	}
}

// failed notes the error the client got.
func (r *record) failed(err *apierror.Error) { r.err = err }

// subject is what a record is about.
type subject struct {
	s          *Server
	api        *api
	id         string
	tenant     string
	target     target
	run        *run  // nil: no model call was made
	background bool  // the reply was made after its request had been answered
	queued     bool  // this is that request; the making of its reply counts by itself
	fault      error // of what keeps the reply
	over       bool  // the client got a reply to its end
	now        time.Time
}

// answered tells whether the engine has begun to answer.
func (u *subject) answered() bool { return u.run != nil && u.run.answered }

// faults is what went wrong aside.
func (u *subject) faults() error {
	if u.run != nil {
		return errors.Join(u.run.reply.Fault(), u.fault)
	}
	return u.fault
}

// relayed tells of a request that was not ours.
func (r *record) relayed(s *Server, id, path string, now time.Time) {
	s.metrics.relayed.Inc()
	s.log.WithFields(logrus.Fields{"request_id": id, "path": path, "harmony": false, "seconds": now.Sub(r.started).Seconds()}).Debug("relayed")
}

// close writes the log line and counts.
func (r *record) close(u *subject) {
	outcome := r.outcome(u)
	fields := r.fields(u)
	fields["outcome"] = outcome
	if !u.queued {
		r.count(u, outcome)
	}
	fault := u.faults()
	if fault != nil {
		fields["fault"] = fault.Error()
	}
	if u.answered() {
		r.advise(u)
	}
	if r.content != nil {
		r.content.log(u)
	}
	level := logrus.InfoLevel
	if outcome == outcomeFailed || fault != nil {
		level = logrus.WarnLevel
	}
	u.s.log.WithFields(fields).Log(level, "request")
}

// fields are those of the log line. docs/operations.md lists them.
func (r *record) fields(u *subject) logrus.Fields {
	fields := logrus.Fields{
		"request_id": u.id, "harmony": true, "model": u.target.model.UpstreamModel, "seconds": u.now.Sub(r.started).Seconds(),
	}
	add := func(name string, value any, known bool) {
		if known {
			fields[name] = value
		}
	}
	if u.api != nil {
		fields["api"] = u.api.name
	}
	add("tenant", u.tenant, u.tenant != "")
	add("engine", u.target.model.Engine, u.target.known)
	add("response", r.response, r.response != "")
	add("background", true, u.background)
	add("queued", true, u.queued)
	add("prompt_tokens", r.prompt, r.prompt > 0)
	add("model_calls", r.calls, r.calls > 0)
	add("tool_calls", r.tools, r.tools > 0)
	add("tool_errors", r.failures, r.failures > 0)
	if r.err != nil {
		fields["status"], fields["error"], fields["code"] = r.err.Status, r.err.Message, r.err.Code
		if r.err.Cause != nil {
			fields["cause"] = r.err.Cause.Error()
		}
	}
	if u.answered() {
		addSummary(fields, u.run.reply.Summary())
		fields["first_token_seconds"] = r.first.Seconds()
	}
	return fields
}

// log writes the prompt and the model's output, control tokens in their names.
func (c *content) log(u *subject) {
	entry := u.s.log.WithFields(logrus.Fields{"request_id": u.id, "prompt": spelled(c.prompt)})
	for choice, ids := range c.output {
		entry = entry.WithField("output_"+strconv.Itoa(choice), spelled(ids))
	}
	entry.Debug("content")
}

// spelled is tokens as text; ids of no vocabulary are left out.
func spelled(ids []harmony.Token) string {
	var b []byte
	for i := range ids {
		b, _ = harmony.AppendDecode(b, ids[i:i+1])
	}
	return string(b)
}

// advise logs once for each engine what its operator could do better.
func (r *record) advise(u *subject) {
	a, ok := u.run.decoder.(engine.Advisor)
	if !ok || a.Advice() == "" {
		return
	}
	if _, told := u.s.advised.LoadOrStore(u.target.model.Engine, true); !told {
		u.s.log.WithField("engine", u.target.model.Engine).Warn(a.Advice())
	}
}

func (r *record) outcome(u *subject) string {
	switch {
	case r.err != nil && r.err.Status < 500:
		return outcomeRefused
	case r.err != nil:
		return outcomeFailed
	case u.over:
		return outcomeOK
	}
	return outcomeCut
}

func (r *record) count(u *subject, outcome string) {
	m := u.s.metrics
	model, api := "", ""
	if u.target.known { // names come from clients: only one that an engine has served gets a label
		model = m.model(u.target.model.UpstreamModel, u.answered())
	}
	if u.api != nil {
		api = u.api.name
	}
	m.requests.WithLabelValues(api, model, outcome).Inc()
	m.duration.WithLabelValues(api, model).Observe(u.now.Sub(r.started).Seconds())
	m.prompt.WithLabelValues(model).Add(float64(r.prompt))
	if r.first > 0 {
		m.first.WithLabelValues(api, model).Observe(r.first.Seconds())
	}
	if !u.answered() {
		return
	}
	s := u.run.reply.Summary()
	for kind := range s.Repairs {
		m.parsing.WithLabelValues(kind).Inc()
	}
	if s.Cached != engine.Unknown {
		m.cached.WithLabelValues(model).Add(float64(s.Cached))
	}
	if s.ModelCalls > 0 {
		m.calls.WithLabelValues(api).Observe(float64(s.ModelCalls))
	}
	for channel, n := range channels(s.Counts) {
		m.tokens.WithLabelValues(model, channel).Add(float64(n))
	}
}

// channels names the counts of tokens for logs and metrics.
func channels(c turn.Counts) map[string]int {
	return map[string]int{"analysis": c.Reasoning, "call": c.Call, "text": c.Text, "other": c.Output - c.Reasoning - c.Call - c.Text}
}

func addSummary(fields logrus.Fields, s turn.Summary) {
	fields["output_tokens"] = s.Counts.Output
	for channel, n := range channels(s.Counts) {
		fields[channel+"_tokens"] = n
	}
	if s.Cached != engine.Unknown {
		fields["cached_tokens"] = s.Cached
	}
	fields["finish"], fields["calls"] = string(s.Finish), s.Calls
	if len(s.Repairs) > 0 {
		fields["repairs"] = s.Repairs
	}
}
