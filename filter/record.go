package filter

import (
	"strconv"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// The outcomes of a request in harmony_requests_total.
const (
	outcomeOK      = "ok"
	outcomeRefused = "refused" // an error in place of a reply, the client's fault
	outcomeFailed  = "failed"  // an error in place of a reply or in it, not the client's fault
	outcomeCut     = "cut"     // the client left, or the engine's connection broke after the reply had begun: Envoy does not tell which
)

// record is what is told of an exchange: one log line and the metrics.
type record struct {
	started time.Time
	prompt  int // tokens; 0 until the request was sent to the engine
	first   time.Duration
	err     *apierror.Error
	content *content // nil unless it may be logged
}

// content is what was said, for operators who ask to see it.
type content struct {
	prompt []harmony.Token
	output map[int][]harmony.Token // by choice
}

// dispatched notes that the token request went out.
func (r *record) dispatched(req *engine.Request, keep bool) {
	r.prompt = len(req.Prompt)
	if keep {
		r.content = &content{req.Prompt, map[int][]harmony.Token{}}
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

// failed notes the error the client got.
func (r *record) failed(err *apierror.Error) { r.err = err }

// close writes the log line and counts.
func (r *record) close(x *exchange) {
	relayed := x.api == nil || x.phase == phaseNew || x.phase == phaseRelay
	if relayed && r.err == nil {
		x.s.metrics.relayed.Inc()
		x.s.log.WithFields(logrus.Fields{"request_id": x.id, "path": x.path, "harmony": false, "seconds": x.now.Sub(r.started).Seconds()}).Debug("relayed")
		return
	}
	outcome := r.outcome(x)
	fields := logrus.Fields{
		"request_id": x.id, "harmony": true, "outcome": outcome,
		"model": x.target.model.UpstreamModel, "seconds": x.now.Sub(r.started).Seconds(),
	}
	if x.api != nil {
		fields["api"] = x.api.name
	}
	r.count(x, outcome)
	if r.err != nil {
		fields["status"], fields["error"], fields["code"] = r.err.Status, r.err.Message, r.err.Code
		if r.err.Cause != nil {
			fields["cause"] = r.err.Cause.Error()
		}
	}
	if r.prompt > 0 {
		fields["prompt_tokens"] = r.prompt
	}
	if f, ok := x.reply.reply.(faulty); ok && f.Fault() != nil {
		fields["fault"] = f.Fault().Error()
	}
	if x.reply.reply != nil {
		addSummary(fields, x.reply.reply.Summary())
		fields["first_token_seconds"] = r.first.Seconds()
	}
	r.advise(x)
	if r.content != nil {
		r.content.log(x)
	}
	entry := x.s.log.WithFields(fields)
	if outcome == outcomeFailed {
		entry.Warn("request")
		return
	}
	entry.Info("request")
}

// log writes the prompt and the model's output, control tokens in their names.
func (c *content) log(x *exchange) {
	entry := x.s.log.WithFields(logrus.Fields{"request_id": x.id, "prompt": spelled(c.prompt)})
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
func (r *record) advise(x *exchange) {
	a, ok := x.reply.decoder.(engine.Advisor)
	if !ok || a.Advice() == "" {
		return
	}
	if _, told := x.s.advised.LoadOrStore(x.target.model.Engine, true); !told {
		x.s.log.WithField("engine", x.target.model.Engine).Warn(a.Advice())
	}
}

func (r *record) outcome(x *exchange) string {
	switch {
	case r.err != nil && r.err.Status < 500:
		return outcomeRefused
	case r.err != nil:
		return outcomeFailed
	case x.phase == phaseOver || x.phase == phaseAnswered:
		return outcomeOK
	}
	return outcomeCut
}

func (r *record) count(x *exchange, outcome string) {
	m := x.s.metrics
	model, api := "", ""
	if x.target.known { // names come from clients: only one that an engine has served gets a label
		model = m.model(x.target.model.UpstreamModel, x.reply.reply != nil)
	}
	if x.api != nil {
		api = x.api.name
	}
	m.requests.WithLabelValues(api, model, outcome).Inc()
	m.duration.WithLabelValues(api, model).Observe(x.now.Sub(r.started).Seconds())
	m.prompt.WithLabelValues(model).Add(float64(r.prompt))
	if r.first > 0 {
		m.first.WithLabelValues(api, model).Observe(r.first.Seconds())
	}
	if x.reply.reply == nil {
		return
	}
	s := x.reply.reply.Summary()
	for kind := range s.Repairs {
		m.parsing.WithLabelValues(kind).Inc()
	}
	if s.Cached != engine.Unknown {
		m.cached.WithLabelValues(model).Add(float64(s.Cached))
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
