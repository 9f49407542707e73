package extproc

import (
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// beginRecord begins the record of an exchange that is recorded, when all of its
// request is there. The ids and times that its turns get are taken down from now on.
func (s *Server) beginRecord(x *exchange, r *api.HTTPRequest) {
	if x.request.endpoint.Public { // the list of models: there is nothing to replay
		return
	}

	q := &x.request
	begin := func() record.Record { return s.newRecord(x, r) }
	recording := s.telemetry.Recorder.Begin(q.tenant, x.target.Model, q.asked, begin)
	if recording == nil {
		return
	}

	// The environment is shared by all exchanges: this one gets a copy that notes what it says.
	x.runner.Record.Tape = recording
	env := *r.Context.Env
	newID, now := env.NewID, env.Now
	env.NewID = func(prefix string) string { return recording.ID(newID(prefix)) }
	env.Now = func() time.Time { return recording.Clock(now()) }
	env.Prompts = recording.Prompts(env.Prompts)
	r.Context.Env = &env
}

// newRecord is what is known of an exchange before its endpoint handles it.
func (s *Server) newRecord(x *exchange, r *api.HTTPRequest) record.Record {
	q, t := &x.request, &x.target

	rec := record.Record{
		ID:      q.id,
		Tenant:  q.tenant,
		Started: x.runner.Record.Started,
		Request: record.Request{
			Method: q.method,
			Path:   record.Path(q.path, q.query),
			Header: record.Header(r.Header),
			Body:   s.telemetry.Recorder.Keeper().Body(r.Body),
		},
		Target: record.Target{
			API:           q.endpoint.API,
			Model:         t.Model,
			Engine:        t.Engine,
			Disaggregated: t.Disaggregated,
			Direct:        s.o.Client == nil,
		},
		Settings: record.Settings{
			Model:         *r.Context.Model,
			Session:       r.Context.Session,
			Checked:       r.Context.Checked,
			Codex:         r.Codex,
			Connected:     store.HasLocal(x.ctx),
			Continuations: s.o.Env.Limits.Continuations,
		},
	}

	if t.Dialect != nil {
		rec.Target.Kind = t.Dialect.Kind()
	}
	s.o.Recording(&rec)
	return rec
}
