package messages

import (
	"cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// runs are the calls of a reply that the filter makes.
type runs struct {
	reply    *Reply
	current  *run   // that the model is writing; nil: none
	pending  []*run // complete, and clients do not see the results yet
	count    int    // of the current turn
	usage    hosted.Usage
	searches int // that were made
}

// run is one call of a hosted tool.
type run struct {
	server *hosted.Server
	call   *turn.CalledTool // by the server's name of the tool
	text   []byte           // what the model has written
	at     int              // where in the turn's parts the result is; -1: no turn follows
	code   string           // why the call is not made, for web_search; "": it is
	known  *tools.Result    // the result of a call that is not made; nil: it is made
	result *tools.Result    // nil until the run is done
}

// searchTool is the tool of the browser that searches.
const searchTool = "search"

// hostedOf returns the server of the tool that a call is of; nil if the client's.
func (r *Request) hostedOf(e turn.Event) *hosted.Server {
	if e.Kind != turn.Call {
		return nil
	}
	return r.hosted[hosted.SpaceOf(e.Call)]
}

// event takes an event of a call that the filter makes. The input of code is written
// at its end.
func (rs *runs) event(s *hosted.Server, e turn.Event) {
	r := rs.reply
	switch e.Step {
	case turn.Start:
		rs.current = &run{server: s, call: s.Named(e.Call), at: -1}
		r.blocks.server = s
		r.startBlock(turn.Event{Step: e.Step, Kind: e.Kind, Call: rs.current.call})
	case turn.Delta:
		run := rs.current
		run.text = append(run.text, e.Text...)
		if !e.Call.IsCode() {
			r.addText(e)
		}
	case turn.End:
		run := rs.current
		rs.current = nil
		switch {
		case !e.Call.IsCode():
			r.endInput(e.Cut)
		case !e.Cut:
			r.addInput(append(r.blocks.text, hosted.CodeArguments(string(run.text))...))
		}
		r.endBlock()
		r.blocks.server = nil
		if !e.Cut {
			rs.queue(run)
		}
	}
}

// queue adds a call to those of the next step, in which no call is made that breaks a
// limit.
func (rs *runs) queue(run *run) {
	r := rs.reply
	rs.count++
	if run.known = rs.usage.Refuse(run.call, 0, len(rs.pending)); run.known != nil {
		run.code = "too_many_requests"
	}
	if run.server.Builtin != nil && run.call.Name == searchTool && run.known == nil {
		if most := r.request.maxSearches; most > 0 && rs.searches >= most {
			run.code, run.known = "max_uses_exceeded", &tools.Result{Error: "The limit of searches is reached. Answer with what you have."}
		} else {
			rs.searches++
		}
	}
	if r.repeats() {
		run.at = len(r.turns.parts)
		call := &r.turns.parts[run.at-1]
		call.text = compacted(run.call, call.text)
		r.turns.parts = append(r.turns.parts, part{item: turn.Item{Kind: turn.Result, CallID: run.call.ID, Hosted: true}})
	}
	rs.pending = append(rs.pending, run)
}

// compacted returns the arguments of a call as the history will have them.
func compacted(call *turn.CalledTool, text []byte) []byte {
	if call.IsCode() || !jsontext.IsObject(string(text)) {
		return text
	}
	return jsontext.AppendCompact(nil, string(text))
}

// begin returns the jobs of the pending calls.
func (rs *runs) begin() []stepJob {
	r := rs.reply
	var jobs []stepJob
	for _, run := range rs.pending {
		if run.known != nil {
			run.result = run.known
			continue
		}
		job := hosted.Job{Runner: r.request.api.runner(), Job: run.server.Job(run.call, string(run.text), r.request.container)}
		jobs = append(jobs, stepJob{job, func(result any, err error) { rs.done(run, result, err) }})
	}
	rs.show()
	return jobs
}

// done takes what came of a call.
func (rs *runs) done(run *run, result any, err error) {
	r := rs.reply
	answer, ok := result.(tools.Result)
	if !ok {
		answer = tools.Result{Error: "The tool could not be called.", Cause: err}
	}
	run.result = &answer
	rs.usage.Take(&answer)
	r.note(run.server.MCP, answer.Cause)
	if r.failure == nil {
		rs.show()
	}
}

// show writes the results of the calls that are done, up to the first that is
// not: results are in the order of the calls.
func (rs *runs) show() {
	r := rs.reply
	for len(rs.pending) > 0 && rs.pending[0].result != nil {
		run := rs.pending[0]
		rs.pending[0], rs.pending = nil, rs.pending[1:]
		if run.at >= 0 {
			r.turns.parts[run.at].item.Text = cmp.Or(run.result.Error, run.result.Text)
		}
		r.writeBlock(rs.appendResult(nil, run))
	}
}
