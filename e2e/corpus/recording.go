package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// recordings are the requests by client, one list for each of its runs, in the order of arrival.
type recordings map[string][][]*stack.RecordedRequest

func (r recordings) clients() []string {
	clients := make([]string, 0, len(r))
	for client := range r {
		clients = append(clients, client)
	}
	slices.Sort(clients)
	return clients
}

// version matches what a client's name has behind it in another version than the newest.
var version = regexp.MustCompile(`-\d+\.\d+\.\d+$`)

// readRecordings reads the recordings of folders.
func readRecordings(folders []string) (recordings, error) {
	all := recordings{}
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join(folder, "*.jsonl"))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			if err := all.read(file); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	return all, nil
}

func (r recordings) read(file string) error {
	opened, err := os.Open(file)
	if err != nil {
		return err
	}
	defer opened.Close()

	runs := map[string][]*stack.RecordedRequest{}
	lines := bufio.NewScanner(opened)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var q stack.RecordedRequest
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			return err
		}
		client := version.ReplaceAllString(q.Client, "")
		runs[client] = append(runs[client], &q)
	}
	for client, run := range runs {
		sort.SliceStable(run, func(i, j int) bool { return run[i].Number < run[j].Number })
		r[client] = append(r[client], run)
	}
	return lines.Err()
}

// withRecordings adds the shapes that rows do not have.
func withRecordings(rows []*row, runs [][]*stack.RecordedRequest) []*row {
	c := &collection{rows: rows, byShape: map[string]*row{}}
	for _, r := range rows {
		c.next = max(c.next, r.Number)
		if shape := shapeOf(r); c.byShape[shape] == nil {
			c.byShape[shape] = r
		}
	}

	// The newest version first, so that a shape has its row from there.
	slices.SortStableFunc(runs, func(a, b []*stack.RecordedRequest) int {
		return cmp.Compare(numbers(b[0].Version), numbers(a[0].Version))
	})
	for _, run := range runs {
		c.add(run)
	}
	return c.rows
}

// numbers returns a version in a form that sorts as versions do.
func numbers(version string) string {
	var out strings.Builder
	for _, n := range strings.Split(version, ".") {
		fmt.Fprintf(&out, "%8s.", n)
	}
	return out.String()
}

// collection is the rows of a client while recordings are added.
type collection struct {
	rows    []*row
	byShape map[string]*row
	next    int
}

// candidate is a request of a run that may become a row.
type candidate struct {
	request *stack.RecordedRequest
	row     *row
	kept    bool
}

// add adds the requests of a run whose shapes are new, and those whose replies they need.
func (c *collection) add(run []*stack.RecordedRequest) {
	references := map[string]string{}
	candidates := map[int]*candidate{}
	bySocket := map[int]*candidate{}
	var order []*candidate
	first := c.next

	for _, q := range run {
		if q.Body == "" && q.Method == "" {
			// Of a connection: what the filter sent. It is the reply to the last message.
			if last := bySocket[q.Socket]; last != nil {
				last.request.Reply += q.Reply + "\n"
				addReferences(references, last.row.Number, last.request.Reply)
			}
			continue
		}

		c.next++
		r := newRow(q, c.next, references)
		k := &candidate{request: q, row: r}
		candidates[r.Number] = k
		order = append(order, k)
		if q.Socket != 0 {
			for _, opened := range order {
				if opened.request.Number == q.Socket && opened.request.Method != "" {
					r.Socket = opened.row.Number
				}
			}
			bySocket[q.Socket] = k
		}
		addReferences(references, r.Number, q.Reply)
	}

	for _, k := range order {
		k.row.Output = outputOf(pathOf(k, candidates), k.request.Reply)
		shape := shapeOf(k.row)
		if known := c.byShape[shape]; known != nil {
			known.Versions = withVersion(known.Versions, k.request.Version)
			continue
		}
		c.byShape[shape] = k.row
		keep(k, candidates, order)
	}
	c.number(order, first)
}

// pathOf returns the path of a request, or of the connection that it came over.
func pathOf(k *candidate, candidates map[int]*candidate) string {
	if opened := candidates[k.row.Socket]; opened != nil {
		return opened.row.Path
	}
	return k.row.Path
}

// keep keeps a request, and those that it follows.
func keep(k *candidate, candidates map[int]*candidate, order []*candidate) {
	if k == nil || k.kept {
		return
	}
	k.kept = true
	keep(candidates[k.row.Socket], candidates, order)
	for _, number := range k.row.follows() {
		keep(candidates[number], candidates, order)
	}

	// What is in a conversation, the requests before have put there.
	for _, of := range k.row.conversations() {
		for _, before := range order[:slices.Index(order, k)] {
			if slices.Contains(before.row.conversations(), of) {
				keep(before, candidates, order)
			}
		}
	}
}

// number gives the kept requests of a run the numbers after first, without gaps.
func (c *collection) number(order []*candidate, first int) {
	names := map[int]int{}
	c.next = first
	for _, k := range order {
		if !k.kept {
			continue
		}
		c.next++
		names[k.row.Number] = c.next
		k.row.rename(names)
		c.rows = append(c.rows, k.row)
	}
}

func withVersion(versions []string, version string) []string {
	if slices.Contains(versions, version) {
		return versions
	}
	versions = append(versions, version)
	slices.SortFunc(versions, func(a, b string) int { return cmp.Compare(numbers(b), numbers(a)) })
	return versions
}

// newRow returns a request as a row.
func newRow(q *stack.RecordedRequest, number int, references map[string]string) *row {
	r := &row{
		Number: number, Versions: []string{q.Version}, Test: q.Test, Method: q.Method, Recorded: q.Status,
		Header: neutralHeader(q.Header), Path: neutralPath(q.Path, references),
	}
	switch {
	case q.Body == "":
	case gjson.Valid(q.Body):
		r.Body = json.RawMessage(neutralBody(q.Body, references))
	default:
		r.Text = prose(q.Body)
	}
	return r
}

// neutralPath returns a path with references in place of ids.
func neutralPath(path string, references map[string]string) string {
	path, query, queried := strings.Cut(path, "?")
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		if of, ok := references[segment]; ok {
			segments[i] = of
		} else if isID(segment) {
			segments[i] = fakeID(segment)
		}
	}
	path = strings.Join(segments, "/")
	if !queried {
		return path
	}

	// A reference stands in the query as it is, not encoded.
	parameters := strings.Split(query, "&")
	for i, parameter := range parameters {
		name, text, _ := strings.Cut(parameter, "=")
		if value, err := url.QueryUnescape(text); err == nil && references[value] != "" {
			parameters[i] = name + "=" + references[value]
		}
	}
	return path + "?" + strings.Join(parameters, "&")
}

// keptHeaders are the headers that a row has: those by which the filter, or a gateway before it, may
// decide. Others are of the connection, or say on what the client runs.
var keptHeaders = set(`accept anthropic-beta anthropic-version content-encoding content-type openai-beta user-agent
	originator session_id session-id conversation_id x-session-id x-session-affinity x-claude-code-session-id
	x-claude-code-agent-id x-codex-beta-features x-codex-window-id x-codex-turn-metadata x-codex-turn-state x-app
	x-client-request-id x-stainless-helper-method x-stainless-helper x-stainless-raw-response openai-organization
	openai-project x-initiator prefer idempotency-key x-codex-installation-id x-codex-parent-thread-id
	x-openai-subagent thread_id thread-id version`)

// neutralHeader returns the headers that a row has.
func neutralHeader(header http.Header) map[string]string {
	kept := map[string]string{}
	for name, values := range header {
		name = strings.ToLower(name)
		if !keptHeaders[name] || len(values) == 0 {
			continue
		}
		text := strings.Join(values, ",")
		switch {
		case name == codexMetadata:
			text = noMetadata
		case name == "user-agent":
			text, _, _ = strings.Cut(text, " ")
		case gjson.Valid(text) && strings.HasPrefix(text, "{"):
			text = neutralBody(text, nil)
		case uuid.MatchString(text) || isID(text):
			text = value(text)
		}
		kept[name] = text
	}
	return kept
}
