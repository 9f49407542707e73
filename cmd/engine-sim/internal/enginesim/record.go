package enginesim

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// States of a Record.
const (
	StateRunning   = "running"
	StateFinished  = "finished"
	StateCancelled = "cancelled" // the client disconnected or aborted the request
	StateFailed    = "failed"    // rejected, or ended by a fault
)

// Record describes a request and its response.
type Record struct {
	Number     int               `json:"number"` // starts at 1, in the order of arrival
	Method     string            `json:"method"`
	Path       string            `json:"path"`
	Header     map[string]string `json:"header"` // names in lower case
	RequestID  string            `json:"request_id,omitempty"`
	Role       string            `json:"role,omitempty"` // of a disaggregated request
	PromptIDs  []harmony.Token   `json:"prompt_ids,omitempty"`
	Params     json.RawMessage   `json:"params,omitempty"` // the body without the prompt
	BodyBytes  int64             `json:"body_bytes"`
	BodySHA256 string            `json:"body_sha256,omitempty"` // of requests that are not for gpt-oss
	OutputIDs  [][]harmony.Token `json:"output_ids,omitempty"`  // by choice, at the end of the request
	Cached     int               `json:"cached_tokens"`
	Status     int               `json:"status"`
	State      string            `json:"state"`
	Started    time.Time         `json:"started"`
	Ended      time.Time         `json:"ended,omitzero"`
}

// Prompt returns the prompt as text, with the names of special tokens.
func (r Record) Prompt() string { return show(r.PromptIDs) }

// Output returns the output of a choice as text, with the names of special tokens.
// It is "" if there is no such choice.
func (r Record) Output(choice int) string {
	if choice < 0 || choice >= len(r.OutputIDs) {
		return ""
	}
	return show(r.OutputIDs[choice])
}

// MarshalJSON adds the prompt and the outputs as text.
func (r Record) MarshalJSON() ([]byte, error) {
	type plain Record // without this method
	outputs := make([]string, len(r.OutputIDs))
	for i := range outputs {
		outputs[i] = r.Output(i)
	}
	return json.Marshal(struct {
		plain
		Prompt string   `json:"prompt,omitempty"`
		Output []string `json:"output,omitempty"`
	}{plain(r), r.Prompt(), outputs})
}

// recorder keeps the last records.
type recorder struct {
	limit int
	now   func() time.Time

	mu      sync.Mutex
	number  int
	records []*Record
	changed chan struct{} // closed at the next change
}

func newRecorder(limit int, now func() time.Time) *recorder {
	return &recorder{limit: limit, now: now, changed: make(chan struct{})}
}

// begin adds a record of a request.
func (k *recorder) begin(r *http.Request) *Record {
	header := make(map[string]string, len(r.Header)+1)
	for name, values := range r.Header {
		header[strings.ToLower(name)] = strings.Join(values, ", ")
	}
	// net/http takes the host out of the headers. Tests look for it there, as Envoy sent it.
	header["host"] = r.Host

	k.mu.Lock()
	defer k.mu.Unlock()
	k.number++
	rec := &Record{
		Number: k.number, Method: r.Method, Path: r.URL.Path, Header: header, State: StateRunning, Started: k.now(),
	}
	// The caller gets a record in any case, so it need not know whether records are kept.
	if k.limit > 0 {
		if len(k.records) == k.limit {
			k.records = slices.Delete(k.records, 0, 1)
		}
		k.records = append(k.records, rec)
	}

	k.notify()
	return rec
}

// change edits a record.
func (k *recorder) change(rec *Record, edit func(*Record)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	edit(rec)
	k.notify()
}

// end sets the state of a record that still runs.
func (k *recorder) end(rec *Record, state string, status int) {
	k.change(rec, func(r *Record) {
		if r.State == StateRunning {
			r.State, r.Status, r.Ended = state, status, k.now()
		}
	})
}

func (k *recorder) notify() {
	close(k.changed)
	k.changed = make(chan struct{})
}

func (k *recorder) list() []Record {
	records, _ := k.watch()
	return records
}

func (k *recorder) watch() (records []Record, changed <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	// Copies, because a handler may still change the records.
	records = make([]Record, len(k.records))
	for i, r := range k.records {
		records[i] = *r
	}
	return records, k.changed
}

func (k *recorder) reset() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.records = nil
	k.notify()
}

// await waits for a record for which wanted returns true, and returns the first.
func (k *recorder) await(ctx context.Context, wanted func(Record) bool) (Record, error) {
	// The channel is taken under the lock that the list is read under, so no change in between is lost.
	for {
		records, changed := k.watch()
		if i := slices.IndexFunc(records, wanted); i >= 0 {
			return records[i], nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Record{}, context.Cause(ctx)
		}
	}
}
