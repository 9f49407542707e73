package config

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// What is said of a text that is no YAML: where it is, and what to write. The parser speaks of its
// own states, and of the line at which the construct began.

// notYAML is what is wrong with a text that is no YAML, or has keys twice.
type notYAML []yamlFault

// yamlFault is one fault of it.
type yamlFault struct {
	line int
	what string
}

func (n notYAML) Error() string {
	texts := make([]string, 0, len(n))
	for _, f := range n {
		texts = append(texts, f.what)
	}
	return strings.Join(texts, "; ")
}

// in returns the error for a file.
func (n notYAML) in(path string) error {
	errs := make([]error, 0, len(n))
	for _, f := range n {
		errs = append(errs, fmt.Errorf("configuration %s, line %d: %s", path, f.line, f.what))
	}
	return errors.Join(errs...)
}

var (
	yamlLine  = regexp.MustCompile(`^yaml: line (\d+): `)
	yamlTwice = regexp.MustCompile(`line (\d+): key ("(?:[^"\\]|\\.)*") already set in map`)
)

// yamlFixes say what to change, by a part of what the parser says.
var yamlFixes = []struct{ said, what string }{
	{"did not find expected ',' or", "a bracket or brace is opened here and not closed: write the ] or } that is " +
		"missing"},
	{"did not find expected node content", "a value is missing behind a bracket, brace or comma: write it, or close " +
		"the bracket"},
	{"unexpected end of stream", "a quote is opened here and not closed: write the second one"},
	{"mapping values are not allowed", "its indentation does not fit: begin it exactly below the key, or the dash, " +
		"that it stands beside; the line above may lack its colon"},
	{"did not find expected", "its indentation does not fit: begin it exactly below the key, or the dash, that it " +
		"stands beside"},
	{"cannot start any token", "a value begins with a character that has a meaning in YAML: put the value in quotes"},
	{"unknown anchor", "a value begins with *, which has a meaning in YAML: put the value in quotes"},
	{"invalid map key", "braces in braces are no value: fill in the template, or put the text in quotes"},
	{"could not find expected ':'", "a key has no colon: write key: value, with a space after the colon"},
}

// explainYAML makes an error of what the parser says of a text.
func explainYAML(text []byte, err error) notYAML {
	repeated := yamlTwice.FindAllStringSubmatch(err.Error(), -1)
	faults := make(notYAML, 0, len(repeated))
	for _, twice := range repeated {
		line, _ := strconv.Atoi(twice[1])
		faults = append(faults, yamlFault{line, "the key " + twice[2] + " is there twice: delete one of the two"})
	}
	if len(faults) > 0 {
		return faults
	}

	// The parser says nothing of the first line.
	said, line := err.Error(), 1
	if found := yamlLine.FindStringSubmatch(said); found != nil {
		line, _ = strconv.Atoi(found[1])
	}
	line, written := faultyLine(text, line)

	indent := written[:len(written)-len(strings.TrimLeft(written, " \t"))]
	switch {
	case strings.Contains(indent, "\t"):
		return notYAML{{line, "it begins with a tab: YAML is indented by spaces alone; replace the tab by spaces"}}
	case strings.Count(written, ": ") > 1 && strings.Contains(said, "mapping values"):
		return notYAML{{line, "a value has a colon with a space after it: put the value in quotes"}}
	}
	for _, fix := range yamlFixes {
		if strings.Contains(said, fix.said) {
			return notYAML{{line, fix.what}}
		}
	}
	return notYAML{{line, "this is no YAML: " + strings.TrimPrefix(yamlLine.ReplaceAllString(said, ""), "yaml: ")}}
}

// faultyLineSearch bounds how many lines are tried, since each costs a reading of the text.
const faultyLineSearch = 200

// faultyLine returns the line after whose end a text is no YAML any more, and what is written
// there. near is where the parser has noticed it: at the next line at the earliest if the
// indentation is wrong, and at the end of the text if a quote is not closed.
func faultyLine(text []byte, near int) (line int, written string) {
	lines := bytes.SplitAfter(text, []byte("\n"))
	last := min(near+1, len(lines))

	for line = last; line > max(1, last-faultyLineSearch); line-- {
		// What stands before it is YAML: the fault begins here.
		if _, err := yaml.YAMLToJSON(bytes.Join(lines[:line-1], nil)); err == nil {
			return line, string(lines[line-1])
		}
	}
	if line > 1 {
		line = min(near, len(lines))
	}
	return line, string(lines[line-1])
}
