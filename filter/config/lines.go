package config

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Locate adds to each error of [Config.Validate] the line of the file on which its key
// stands. inFile reports whether the value of a key comes from the file: what a flag has
// set is not to be looked for there.
func Locate(path string, text []byte, err error, inFile func(key string) bool) error {
	lines := newLines(text)
	return located(err, func(key string) string {
		if line := lines.of(key); line > 0 && inFile(key) {
			return fmt.Sprintf("configuration %s, line %d", path, line)
		}
		return "configuration"
	})
}

// located puts before each of the joined errors where its key stands.
func located(err error, where func(key string) string) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		errs := slices.Clone(joined.Unwrap())
		for i := range errs {
			errs[i] = located(errs[i], where)
		}
		return errors.Join(errs...)
	}
	if err == nil {
		return nil
	}

	// The errors of this package begin with the path of their key.
	key := ""
	if found := keyAtFault.FindStringSubmatch(err.Error()); found != nil {
		key = found[1]
	}
	return fmt.Errorf("%s: %w", where(key), err)
}

// keyAtFault matches the path of a key at the beginning of an error.
var keyAtFault = regexp.MustCompile(`^(?:unknown key )?([a-z][A-Za-z0-9_]*(?:\.[^\s.:;\[]+|\[\d+\])*)[:;]`)

// lines knows on which line of a file a key stands.
type lines struct{ root *yaml.Node }

// newLines reads a file a second time, since what sets the keys has no lines. It is called
// only if something is wrong.
func newLines(text []byte) lines {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil || len(document.Content) == 0 {
		return lines{&yaml.Node{}} // another error says what is wrong
	}
	return lines{document.Content[0]}
}

// of returns the line of a key such as engines[0].urls, or of the last one on the way to it
// that is written: a key that is missing is missed there. 0: not even the first one is.
func (l lines) of(path string) (line int) {
	node := l.root
	for _, step := range strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		if node.Kind == yaml.AliasNode {
			node = node.Alias
		}

		var next *yaml.Node
		switch node.Kind {
		// A mapping has its keys and values in turn.
		case yaml.MappingNode:
			for i := 0; i+1 < len(node.Content); i += 2 {
				if node.Content[i].Value == step {
					line, next = node.Content[i].Line, node.Content[i+1]
				}
			}
		case yaml.SequenceNode:
			if i, err := strconv.Atoi(step); err == nil && i < len(node.Content) {
				next = node.Content[i]
				line = next.Line
			}
		}
		if next == nil {
			break
		}
		node = next
	}
	return line
}
