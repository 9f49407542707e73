package main

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Outcome is what the output of a run says. Without -v go test prints no name of a test that passed or was skipped, so
// most targets have packages alone.
type Outcome struct {
	// Packages is the number of packages of tests that passed, and Cached how many of them Go did not run again, since
	// nothing that they read has changed.
	Packages int `json:"packages,omitempty"`
	Cached   int `json:"cached,omitempty"`

	// Tests is the number of tests that passed, without those below others.
	Tests   int      `json:"tests,omitempty"`
	Failed  []string `json:"failed,omitempty"`
	Skipped []string `json:"skipped,omitempty"`

	// Parts are the results that stand for one component each, by the name of the test or of the section.
	Parts map[string]string `json:"parts,omitempty"`
	// Notes are lines that say what was left out.
	Notes []string `json:"notes,omitempty"`
}

// result is that of a run whose command succeeded.
func (o *Outcome) result() string {
	switch {
	case len(o.Skipped) == 0:
		return passed
	case o.Tests == 0:
		return skipped
	default:
		return inPart
	}
}

var (
	testLine    = regexp.MustCompile(`^( *)--- (PASS|FAIL|SKIP): (\S+) \(`)
	packageLine = regexp.MustCompile(`^(ok {2}|FAIL)\t(\S+)(.*)`)
	sectionLine = regexp.MustCompile(`^== (.+)$`)
	noteLine    = regexp.MustCompile(`(?i)\b(is|was|were) not (tested|checked|run)\b|\bNOT CHECKED\b|\bSKIPPED\b`)
	// filePath is a path of the machine, which has no place in a file that is committed.
	filePath = regexp.MustCompile(`(^|[\s"'=(])/[^\s"')]+`)
)

// maxNotes bounds the notes of a run, and maxNote each of them, in bytes.
const (
	maxNotes = 12
	maxNote  = 200
)

// reader reads the output of a run, line by line, from its streams.
type reader struct {
	mu      sync.Mutex
	outcome Outcome

	// parts are the names of tests and sections whose results are kept; section is the one that is running.
	parts   map[string]bool
	section string

	// versions are those that lines have said, by program.
	versions map[string]string
}

func newReader(parts map[string]bool) *reader {
	return &reader{parts: parts, versions: map[string]string{}}
}

// stream is standard output or standard error. Both are written at the same time, and each has lines of its own: one
// may come between two halves of a line of the other.
type stream struct {
	reader *reader
	// partial is a line whose end has not come.
	partial []byte
}

func (s *stream) Write(b []byte) (int, error) {
	s.reader.mu.Lock()
	defer s.reader.mu.Unlock()
	s.partial = append(s.partial, b...)
	for {
		line, rest, whole := bytes.Cut(s.partial, []byte("\n"))
		if !whole {
			return len(b), nil
		}
		s.reader.line(strings.TrimRight(string(line), "\r"))
		s.partial = rest
	}
}

// end returns the outcome once the command has ended.
func (r *reader) end(succeeded bool) Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	// A command that was stopped has not come to the end of its section, and nothing tells it from one that has.
	if !succeeded && r.outcome.Parts[r.section] == passed {
		delete(r.outcome.Parts, r.section)
	}
	return r.outcome
}

func (r *reader) line(line string) {
	if m := testLine.FindStringSubmatch(line); m != nil {
		r.test(m[3], map[string]string{"PASS": passed, "FAIL": failed, "SKIP": skipped}[m[2]], m[1] == "")
		return
	}
	if m := packageLine.FindStringSubmatch(line); m != nil {
		r.pkg(m[1] != "FAIL", strings.Contains(m[3], "(cached)"))
		return
	}
	if m := sectionLine.FindStringSubmatch(line); m != nil {
		r.section = m[1]
		// Until a package of it fails.
		r.part(r.section, passed)
		return
	}

	for program, says := range versionLines {
		if m := says.FindStringSubmatch(line); m != nil {
			r.versions[program] = m[1]
		}
	}
	r.note(line)
}

// test counts a result. The results of tests below others are in those of the upper ones.
func (r *reader) test(name, result string, upper bool) {
	r.part(name, result)
	switch {
	case result == failed:
		r.outcome.Failed = append(r.outcome.Failed, name)
	case upper && result == skipped:
		r.outcome.Skipped = append(r.outcome.Skipped, name)
	case upper:
		r.outcome.Tests++
	}
}

func (r *reader) pkg(ok, cached bool) {
	// "FAIL" alone, at the end of the output, has no package and is not seen here.
	if !ok {
		r.part(r.section, failed)
		return
	}
	r.outcome.Packages++
	if cached {
		r.outcome.Cached++
	}
}

func (r *reader) part(name, result string) {
	if !r.parts[name] {
		return
	}
	if r.outcome.Parts == nil {
		r.outcome.Parts = map[string]string{}
	}
	r.outcome.Parts[name] = result
}

func (r *reader) note(line string) {
	line = strings.TrimSpace(filePath.ReplaceAllString(line, "${1}PATH"))
	if !noteLine.MatchString(line) || len(line) > maxNote || slices.Contains(r.outcome.Notes, line) {
		return
	}
	// Who says more is a test that logs, and not one that was left out.
	if len(r.outcome.Notes) < maxNotes {
		r.outcome.Notes = append(r.outcome.Notes, line)
	}
}
