package probes

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// File is what an engine of one version answers, with the differences of engine-sim that have
// a reason.
type File struct {
	Engine, Version string
	Rows            []Row
}

// Row is the answer to a probe. Where engine-sim answers otherwise, Simulator is its answer,
// and Because is why.
type Row struct {
	Answer
	Because, Simulator string
}

// The marks of a file.
const (
	rowMark     = "== "
	becauseMark = "-- engine-sim, because: "
	// NoReason is what a new difference has until somebody has judged it.
	NoReason = "?"
)

// String returns the file's text.
func (f *File) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s %s, as it answers the probes of e2e/engines/probes. docs/simulator.md explains the file.\n",
		f.Engine, f.Version)
	for _, row := range f.Rows {
		fmt.Fprintf(&b, "\n%s%s\n%s", rowMark, row.Probe, row.Text)
		if row.Because != "" {
			fmt.Fprintf(&b, "%s%s\n%s", becauseMark, row.Because, row.Simulator)
		}
	}
	return b.String()
}

// parse parses the text of a file.
func parse(text string) (*File, error) {
	f := &File{}
	head, rest, _ := strings.Cut(text, "\n")
	if _, err := fmt.Sscanf(head, "# %s %s", &f.Engine, &f.Version); err != nil {
		return nil, fmt.Errorf("the first line %q: %w", head, err)
	}
	f.Version = strings.TrimSuffix(f.Version, ",")

	for part := range strings.SplitSeq("\n"+rest, "\n"+rowMark) {
		name, body, ok := strings.Cut(part, "\n")
		if name == "" {
			continue // before the first row
		}
		if !ok {
			return nil, fmt.Errorf("row %q has no answer", name)
		}
		row := Row{Answer: Answer{Probe: name, Text: strings.TrimRight(body, "\n") + "\n"}}
		if answer, other, differs := strings.Cut(body, becauseMark); differs {
			row.Text = answer
			row.Because, row.Simulator, _ = strings.Cut(strings.TrimRight(other, "\n")+"\n", "\n")
		}
		f.Rows = append(f.Rows, row)
	}
	return f, nil
}

func (f *File) row(probe string) *Row {
	for i := range f.Rows {
		if f.Rows[i].Probe == probe {
			return &f.Rows[i]
		}
	}
	return nil
}

// Newest reads the file of an engine's newest version in a directory. It returns nil if
// there is none.
func Newest(dir string, e Engine) (*File, error) {
	paths, err := filepath.Glob(filepath.Join(dir, e.Name+"-[0-9b]*.txt"))
	if err != nil || len(paths) == 0 {
		return nil, err
	}
	newest := slices.MaxFunc(paths, func(a, b string) int { return slices.Compare(numbers(a), numbers(b)) })
	b, err := os.ReadFile(newest) //nolint:gosec // of the repository
	if err != nil {
		return nil, err
	}
	f, err := parse(string(b))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", newest, err)
	}
	return f, nil
}

// numbers are the numbers of a version, in order.
func numbers(path string) []int {
	between := func(r rune) bool { return r < '0' || r > '9' }
	parts := strings.FieldsFunc(filepath.Base(path), between)
	list := make([]int, len(parts))
	for i, part := range parts {
		list[i], _ = strconv.Atoi(part)
	}
	return list
}

// Save writes the file of its engine and version in a directory.
func (f *File) Save(dir string) error {
	path := filepath.Join(dir, f.Engine+"-"+f.Version+".txt")
	return os.WriteFile(path, []byte(f.String()), 0o644) //nolint:gosec // of the repository
}

// Renew returns the file of a version, with the reasons that last has for differences of engine-sim.
func Renew(e Engine, version string, answers []Answer, last *File) *File {
	f := &File{Engine: e.Name, Version: version}
	for _, a := range answers {
		row := Row{Answer: a}
		if last != nil {
			if old := last.row(a.Probe); old != nil {
				row.Because, row.Simulator = old.Because, old.Simulator
			}
		}
		f.Rows = append(f.Rows, row)
	}
	return f
}

// Check compares the answers of engine-sim with the file. It returns an error for every
// difference that the file does not explain, and for every explanation of none. Differences
// are put into the file, without a reason.
func (f *File) Check(answers []Answer) error {
	var faults []error
	for _, a := range answers {
		row := f.row(a.Probe)

		switch {
		case row == nil:
			faults = append(faults, fmt.Errorf("%s: the engine has not been asked: run make test-engines", a.Probe))
			continue
		case a.Text == row.Text && row.Because == "":
			continue
		case a.Text == row.Text:
			faults = append(faults, fmt.Errorf("%s: engine-sim answers as the engine does: the reason %q is for nothing",
				a.Probe, row.Because))
			row.Because, row.Simulator = "", ""
			continue
		case row.Because == "":
			faults = append(faults, fmt.Errorf("%s: engine-sim answers\n%sthe engine\n%s", a.Probe, a.Text, row.Text))
		case row.Because == NoReason:
			faults = append(faults, fmt.Errorf("%s: write why engine-sim answers otherwise", a.Probe))
		case a.Text != row.Simulator:
			faults = append(faults, fmt.Errorf("%s: engine-sim answers\n%swhere the file explains\n%s",
				a.Probe, a.Text, row.Simulator))
		}

		// For -update, which keeps the reason of a difference that has changed.
		row.Because, row.Simulator = cmp.Or(row.Because, NoReason), a.Text
	}

	for _, row := range f.Rows {
		if !slices.ContainsFunc(answers, func(a Answer) bool { return a.Probe == row.Probe }) {
			faults = append(faults, fmt.Errorf("%s: there is no such probe", row.Probe))
		}
	}
	return errors.Join(faults...)
}
