package reply

import (
	"cmp"
	"fmt"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// Run is one access to a server of tools: a call, or a list of its tools.
type Run struct {
	// Call is the call; nil: the server lists its tools.
	Call *turn.CalledTool
	// Job makes the access; its result is a tools.Result. nil: the result is Known.
	Job api.Job
	// Known is the result of an access that is not made; nil: it is made.
	Known *tools.Result
	// Joins are the tools that the call has found, which the model has after the result; nil:
	// none.
	Joins *turn.JoinedTools
	// Server is the server's label, for faults.
	Server string

	// Show writes the result. Results are shown in the order of the runs.
	Show func(dst []byte, result *tools.Result) []byte
	// Cut says that the reply ends before the result; may be nil.
	Cut func()

	result *tools.Result // nil until the run is done
	item   int           // where in the items of the turn the result is; -1: it is not there
}

// runs are the accesses of a reply to servers of tools.
type runs struct {
	pending []*Run // whose results the client does not see yet
	usage   hosted.Usage
	made    int // calls that were made
	failed  int // accesses that failed
}

// called takes a call of the model that the filter makes.
func (rs *runs) called(m *Machine, p *Part) {
	m.current.runs++
	run := m.o.Run(p, m.Refuse())

	// The result has its place behind the call at once: results come in any order, and the
	// model may write more parts before them.
	run.item = -1
	if m.remembers() {
		m.current.compact()
		run.item = m.result(p.Call, "")
		if run.Joins != nil {
			m.current.items = append(m.current.items, turn.Item{Kind: turn.Tools, Tools: run.Joins})
		}
	}
	rs.pending = append(rs.pending, run)
}

// Refuse counts a call that the filter is to make. It returns the result of one that
// breaks a bound, and is not made; nil: it may be made.
func (m *Machine) Refuse() *tools.Result {
	return m.runs.usage.Refuse(m.o.MaxRuns, len(m.runs.pending))
}

// Start adds a run to those of a stage; see [Machine.Runs].
func (m *Machine) Start(run *Run) {
	run.item = -1
	m.runs.pending = append(m.runs.pending, run)
}

// Runs returns the jobs of the runs that a stage has started, and shows the results that
// are known.
func (m *Machine) Runs(dst []byte) ([]byte, []Job) {
	m.dst = dst
	jobs := m.runJobs()
	return m.dst, jobs
}

// runJobs returns the jobs of the pending runs.
func (m *Machine) runJobs() []Job {
	var jobs []Job
	for _, run := range m.runs.pending {
		if run.Job == nil {
			run.result = run.Known
			continue
		}
		if run.Call != nil && run.Known == nil {
			m.runs.made++
		}
		jobs = append(jobs, Job{run.Job, func(dst []byte, result any, err error) ([]byte, *apierror.Error) {
			m.dst = dst
			m.runDone(run, result, err)
			return m.dst, nil
		}})
	}

	m.showResults()
	return jobs
}

// runDone takes what came of a run.
func (m *Machine) runDone(run *Run, result any, err error) {
	// Without a result the job was cancelled, or it panicked. The model is told, and goes on.
	answer, ok := result.(tools.Result)
	if !ok {
		answer = tools.Result{Error: "The tool could not be called.", Cause: err}
	}

	run.result = &answer
	if answer.Error != "" && run.Known == nil {
		m.runs.failed++
	}
	m.runs.usage.Take(&answer)
	m.NoteServer(run.Server, answer.Cause)
	m.showResults()
}

// NoteServer notes a fault of a server of tools; nil is none.
func (m *Machine) NoteServer(label string, fault error) {
	if fault != nil {
		m.Note(fmt.Errorf("%s: %w", label, fault))
	}
}

// showResults shows the results of the runs that are done, up to the first that is not.
func (m *Machine) showResults() {
	for len(m.runs.pending) > 0 && m.runs.pending[0].result != nil {
		run := m.runs.pending[0]
		m.runs.pending[0], m.runs.pending = nil, m.runs.pending[1:]

		if run.item >= 0 {
			m.current.items[run.item].Text = cmp.Or(run.result.Error, run.result.Text)
		}
		m.dst = run.Show(m.dst, run.result)
	}
}

// cutRuns drops the runs whose results the client does not see any more.
func (m *Machine) cutRuns() {
	for _, run := range m.runs.pending {
		if run.Cut != nil {
			run.Cut()
		}
	}
	m.runs.pending = nil
}
