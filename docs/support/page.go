package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxInCell is the number of components that a cell of the matrix names.
const maxInCell = 3

// page returns docs/support.md. It is a function of the JSON alone.
func (s *Support) page() string {
	var b strings.Builder
	b.WriteString(`# Support matrix

<!-- Written by make support from support.json. Do not edit. -->

What the tests ran, with which versions, and what came of it. Programs read [support.json](support.json).

`)
	s.writeFilter(&b)
	s.writeRuns(&b)
	s.writeMatrix(&b)
	s.writeComponents(&b)
	s.writeNotRun(&b)
	return b.String()
}

// row writes a row of a table.
func row(b *strings.Builder, cells ...string) {
	b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
}

// head writes the head of a table.
func head(b *strings.Builder, cells ...string) {
	row(b, cells...)
	b.WriteString(strings.Repeat("|---", len(cells)) + "|\n")
}

func (s *Support) writeFilter(b *strings.Builder) {
	changed := ""
	// Somebody writes the page before a commit, to have the versions right: it says so.
	if s.Filter.Dirty {
		changed = " with changes that are not committed"
	}
	fmt.Fprintf(b, "The results are for commit `%.12s` of %s%s,\n", s.Filter.Commit, day(s.Filter.Date), changed)
	b.WriteString(`and for later ones that change pages alone. A result of other code does not count: the target is *not
run*, and its last result stands beside it. *In part* means that tests were skipped, because the machine could not run
them.

## Versions of the filter

`)

	// The rule alone until CHANGELOG.md has a version.
	if len(s.Releases) == 0 {
		b.WriteString(`There is no release yet: the main branch is supported. [The rule](release.md#support) for later.

`)
		return
	}
	b.WriteString("By [this rule](release.md#support). A minor without an end is the newest one.\n\n")
	head(b, "minor", "first release", "newest version", "supported until")
	for _, r := range s.Releases {
		row(b, r.Minor, r.Released, r.Latest, orDash(r.End))
	}
	b.WriteString("\n")
}

func (s *Support) writeRuns(b *strings.Builder) {
	b.WriteString("## Runs\n\n*Tests* are those whose names go test prints, *packages* those that passed.\n\n")
	head(b, "command", "what it does", "result", "date", "commit", "minutes", "packages", "tests", "skipped", "failed")
	for i := range s.Targets {
		t := &s.Targets[i]
		if t.Result == notRun {
			row(b, code("make "+t.Target), t.Help, notRun+t.before(), "–", "–", "–", "–", "–", "–", "–")
			continue
		}

		run := t.Run
		result := run.Result
		if run.Reason != "" {
			result += ": " + run.Reason
		}
		row(b, code(run.Command), t.Help, result, day(run.Date), code(fmt.Sprintf("%.12s", run.Commit)),
			fmt.Sprintf("%.1f", run.Seconds/60), count(run.Packages), count(run.Tests),
			names(run.Skipped), names(run.Failed))
	}
	b.WriteString("\n")
	s.writeNotes(b)
}

// writeNotes writes what the runs themselves say that they left out.
func (s *Support) writeNotes(b *strings.Builder) {
	var notes strings.Builder
	for i := range s.Targets {
		if s.Targets[i].Result == notRun {
			continue
		}
		for _, note := range s.Targets[i].Run.Notes {
			// A bar would end the cell.
			note = strings.NewReplacer("`", "'", "|", `\|`).Replace(note)
			row(&notes, code(s.Targets[i].Target), code(note))
		}
	}

	if notes.Len() > 0 {
		b.WriteString("What these runs said about things that they left out:\n\n")
		head(b, "target", "")
		b.WriteString(notes.String() + "\n")
	}
}

// writeMatrix writes a row for each target, and in it what ran together.
func (s *Support) writeMatrix(b *strings.Builder) {
	b.WriteString(`## What ran together

Each row is one combination with the filter of this commit. A number leads to the table that has so many of them.

`)
	columns := kinds[:len(kinds)-1]
	head(b, append(append([]string{"target"}, columns...), "result")...)
	for i := range s.Targets {
		t := &s.Targets[i]
		cells := make([]string, 0, len(kinds))
		for _, kind := range columns {
			cells = append(cells, s.cell(t.Target, kind))
		}

		// Fuzzing and the archives have nothing beside the filter.
		if strings.Trim(strings.Join(cells, ""), "–") != "" {
			row(b, append(append([]string{code(t.Target)}, cells...), t.Result)...)
		}
	}
	b.WriteString("\n")
}

// cell names the components of a kind that take part in a target.
func (s *Support) cell(target, kind string) string {
	var found []string
	for _, c := range s.Components {
		for _, check := range c.Checks {
			if c.Kind == kind && check.Target == target {
				found = append(found, c.short(check.Version))
			}
		}
	}

	switch {
	case len(found) == 0:
		return "–"
	case len(found) > maxInCell:
		return fmt.Sprintf("[%d](#%s)", len(found), strings.ToLower(kind))
	default:
		return strings.Join(found, ", ")
	}
}

// short names a component in a cell whose column is headed by its kind. ran is the version that a run had.
func (c *Component) short(ran string) string {
	version := c.Version
	if version == "" {
		version = ran
	}
	if c.Name == c.Kind {
		return version
	}
	return strings.TrimSpace(c.Name + " " + version)
}

func (s *Support) writeComponents(b *strings.Builder) {
	for _, kind := range kinds {
		heading := strings.ToUpper(kind[:1]) + kind[1:]
		b.WriteString("## " + heading + "\n\n")
		// Gaps of a client are expectations of its test.
		if kind == clientKind {
			b.WriteString("*Passed*: the client does what [clients](clients.md#what-works-with-each) says.\n\n")
		}
		head(b, "name", "version", "from", "results")
		for _, c := range s.Components {
			if c.Kind == kind {
				row(b, c.Name, c.versions(), c.from(), c.results())
			}
		}
		b.WriteString("\n")
	}
}

// versions returns the version of the tree, or those that runs had.
func (c *Component) versions() string {
	if c.Version != "" {
		return c.Version
	}
	var found []string
	for _, check := range c.Checks {
		if check.Version != "" && !slices.Contains(found, check.Version) {
			found = append(found, check.Version)
		}
	}
	return orDash(strings.Join(found, ", "))
}

func (c *Component) from() string {
	switch {
	case c.Source != "":
		return code(c.Source)
	case len(c.Checks) > 0:
		return "the machine"
	default:
		return "–"
	}
}

// results returns what came of a component, by result: the targets and how it took part in them.
func (c *Component) results() string {
	if len(c.Checks) == 0 {
		return notRun + ": no target has it"
	}

	var order []string
	of := map[string][]string{}
	for _, check := range c.Checks {
		// A row for each target would hide what matters, whether all of them passed.
		key := check.Result
		if check.What != "" {
			key += " (" + check.What + ")"
		}
		if of[key] == nil {
			order = append(order, key)
		}
		of[key] = append(of[key], code(check.Target))
	}
	for i, key := range order {
		order[i] = key + ": " + strings.Join(of[key], ", ")
	}
	return strings.Join(order, "; ")
}

func (s *Support) writeNotRun(b *strings.Builder) {
	b.WriteString("## What no target runs\n\n")
	for _, what := range s.Uncovered {
		fmt.Fprintf(b, "- %s\n", what)
	}
}

// day is the date of a time.
func day(date string) string { return date[:min(len(date), len(time.DateOnly))] }

func orDash(text string) string {
	if text == "" {
		return "–"
	}
	return text
}

func count(n int) string {
	if n == 0 {
		return "–"
	}
	return strconv.Itoa(n)
}

func code(text string) string { return "`" + text + "`" }

// names returns the names of tests, or how many there are.
func names(tests []string) string {
	const most = 5
	switch {
	case len(tests) == 0:
		return "–"
	case len(tests) > most:
		return fmt.Sprintf("%d, see support.json", len(tests))
	default:
		return "`" + strings.Join(tests, "`, `") + "`"
	}
}
