package harmony

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// appendText appends the text of a system message: sections separated by blank
// lines. functions reports whether a developer message declares functions.
func (s *SystemContent) appendText(dst []byte, functions, referenceSchema bool) ([]byte, error) {
	sections := joiner{dst: dst, start: len(dst), separator: "\n\n"}

	// The sections are in the order of the reference, which is that of the model's training.
	if s.Identity != "" || s.KnowledgeCutoff != "" || s.StartDate != "" {
		sections.next()

		lines := joiner{dst: sections.dst, start: len(sections.dst), separator: "\n"}
		lines.labelled("", s.Identity)
		lines.labelled("Knowledge cutoff: ", s.KnowledgeCutoff)
		lines.labelled("Current date: ", s.StartDate)

		sections.dst = lines.dst
	}

	switch s.Effort {
	case "":
	case EffortLow, EffortMedium, EffortHigh:
		sections.next()
		sections.add("Reasoning: ", string(s.Effort))
	default:
		return dst, fmt.Errorf("effort %q: use low, medium or high", s.Effort)
	}

	if len(s.Tools) > 0 {
		sections.next()
		var err error
		if sections.dst, err = appendTools(sections.dst, s.Tools, referenceSchema); err != nil {
			return dst, err
		}
	}

	if len(s.Channels) > 0 {
		sections.next()
		sections.add("# Valid channels: ", strings.Join(s.Channels, ", "), ".")
		if s.ChannelRequired {
			sections.add(" Channel must be included for every message.")
		}

		// The functions themselves are in the developer message: only this line tells where calls go.
		if functions {
			sections.add("\nCalls to these tools must go to the commentary channel: 'functions'.")
		}
	}

	return sections.dst, nil
}

// appendText appends the text of a developer message.
func (d *DeveloperContent) appendText(dst []byte, referenceSchema bool) ([]byte, error) {
	sections := joiner{dst: dst, start: len(dst), separator: "\n\n"}

	if d.Instructions != "" {
		sections.next()
		sections.add("# Instructions\n\n", d.Instructions)
	}

	if len(d.Tools) > 0 {
		sections.next()
		var err error
		if sections.dst, err = appendTools(sections.dst, d.Tools, referenceSchema); err != nil {
			return dst, err
		}
	}

	if len(d.ResponseFormats) > 0 {
		sections.next()
		sections.add("# Response Formats")
		for _, f := range d.ResponseFormats {
			sections.next()
			sections.add("## ", f.Name, "\n\n")

			if f.Description != "" {
				for line := range commentLines(f.Description) {
					sections.add("// ", line, "\n")
				}
			}

			// White space is not worth its tokens. The order of the members stays.
			compact := bytes.NewBuffer(sections.dst)
			if err := json.Compact(compact, f.Schema); err != nil {
				return dst, fmt.Errorf("response format %q: its schema is not valid JSON: %w", f.Name, err)
			}
			sections.dst = compact.Bytes()
		}
	}

	return sections.dst, nil
}

// joiner appends parts with a separator between them.
type joiner struct {
	dst       []byte
	start     int
	separator string
}

// next starts another part.
func (j *joiner) next() {
	if len(j.dst) > j.start {
		j.dst = append(j.dst, j.separator...)
	}
}

func (j *joiner) add(texts ...string) {
	for _, t := range texts {
		j.dst = append(j.dst, t...)
	}
}

// labelled adds a part unless value is empty.
func (j *joiner) labelled(label, value string) {
	if value != "" {
		j.next()
		j.add(label, value)
	}
}

// appendTools appends the section "# Tools": namespaces sorted by name, with
// their functions as TypeScript types.
func appendTools(dst []byte, tools []Namespace, reference bool) ([]byte, error) {
	dst = append(dst, "# Tools"...)

	// All tools of a message share one count of steps, or many cheap schemas would add up.
	var work schemaWork

	byName := func(a, b Namespace) int { return strings.Compare(a.Name, b.Name) }
	sorted := slices.SortedStableFunc(slices.Values(tools), byName)

	for i, ns := range sorted {
		if i > 0 && ns.Name == sorted[i-1].Name {
			return dst, fmt.Errorf("two namespaces are named %q: merge them", ns.Name)
		}
		var err error
		if dst, err = ns.appendText(dst, reference, &work); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

func (ns *Namespace) appendText(dst []byte, reference bool, work *schemaWork) ([]byte, error) {
	dst = append(dst, "\n\n## "...)
	dst = append(dst, ns.Name...)
	dst = append(dst, '\n')

	// Without functions (python) the description is text of its own, not a comment above types.
	prefix := "\n// "
	if len(ns.Tools) == 0 {
		prefix = "\n"
	}

	for line := range textLines(ns.Description) {
		dst = append(append(dst, prefix...), line...)
	}

	if len(ns.Tools) == 0 {
		return dst, nil
	}

	dst = append(append(append(dst, "\nnamespace "...), ns.Name...), " {\n"...)

	for i := range ns.Tools {
		tool := &ns.Tools[i]
		for line := range textLines(tool.Description) {
			dst = append(append(dst, "\n// "...), line...)
		}
		dst = append(append(append(dst, "\ntype "...), tool.Name...), " = ("...)

		var err error
		if dst, err = appendParameters(dst, tool.Parameters, reference, work); err != nil {
			return dst, fmt.Errorf("tool %q: %w", tool.Name, err)
		}
		dst = append(dst, ") => any;\n"...)
	}

	return append(append(dst, "\n} // namespace "...), ns.Name...), nil
}

// textLines yields lines like Rust's str::lines: a line feed at the end starts
// no further line, and a carriage return before a line feed is not part of the
// line.
func textLines(text string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for line := range strings.Lines(text) {
			if rest, ok := strings.CutSuffix(line, "\n"); ok {
				line = strings.TrimSuffix(rest, "\r")
			}
			if !yield(line) {
				return
			}
		}
	}
}

// appendParameters appends the text in the parentheses of a function type:
// nothing without parameters, else "_: " and their type.
func appendParameters(dst []byte, parameters json.RawMessage, reference bool, work *schemaWork) ([]byte, error) {
	schema, err := parseValue(parameters)
	if err != nil {
		return dst, fmt.Errorf("its parameters are not a valid JSON Schema: %w", err)
	}

	if schema.kind == kindNull {
		return dst, nil
	}

	dst = append(dst, "_: "...)
	if reference {
		return appendReferenceType(dst, schema, "")
	}
	return appendType(dst, schema, len(parameters), work)
}
