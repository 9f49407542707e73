package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
)

// randomID matches an id that the filter makes.
var randomID = regexp.MustCompile(`([a-z]+[_-])[0-9a-f]{24,}`)

// verdict is what becomes of a row: a section of a file of verdicts.
type verdict struct {
	number int
	// status is the status, the error, and which members were ignored: one line.
	status string
	// calls are what the model was asked: settings, paragraphs and length of the prompt, one after another.
	calls []string
	// reasons say why the verdict is not what it was at first.
	reasons []string
}

func newVerdict(r *row, a answered, calls []modelCall, missing []string) *verdict {
	v := &verdict{number: r.Number}
	switch {
	case a.passed:
		v.status = "passes through"
	default:
		// A stream that ends well has no status of its own.
		v.status = strconv.Itoa(max(a.status, 200))
	}
	for _, object := range objectsOf(a.body) {
		failed := object.Get("error")
		if response := object.Get("response.error"); response.IsObject() {
			failed = response
		}
		if failed.IsObject() {
			v.status += fmt.Sprintf(" %s %s %s: %s", failed.Get("type").Str, failed.Get("code").Str, failed.Get("param").Str,
				withoutIDs(failed.Get("message").Str))
			break
		}
	}
	if a.ignored != "" {
		v.status += ", ignored: " + a.ignored
	}
	if len(missing) > 0 {
		v.status += ", without what earlier replies gave: " + strings.Join(missing, ", ")
	}
	v.status = strings.Join(strings.Fields(v.status), " ")

	for _, call := range calls {
		prompt := withoutIDs(call.prompt)
		v.calls = append(v.calls, "call "+shortened(withoutIDs(call.settings)))
		v.calls = append(v.calls, paragraphs(prompt)...)
		// Paragraphs do not say where lines are empty.
		v.calls = append(v.calls, fmt.Sprintf("%d tokens, %s", call.tokens, hashed(prompt, 10)))
	}
	return v
}

// withoutIDs hides the ids that differ each time.
func withoutIDs(text string) string {
	return randomID.ReplaceAllString(text, "$1…")
}

// shortened returns settings with long values, such as grammars, by what they hash to.
func shortened(settings string) string {
	return string(eachMember([]byte(settings), func(_ string, value gjson.Result) string {
		if len(value.Raw) > 300 {
			return `"hash ` + hashed(value.Raw, 12) + `"`
		}
		return value.Raw
	}))
}

// paragraphs returns the paragraphs of a prompt's messages: a tool is one.
func paragraphs(prompt string) []string {
	var parts []string
	for message := range strings.SplitSeq(prompt, "<|start|>") {
		for part := range strings.SplitSeq(message, "\n\n") {
			if part != "" {
				parts = append(parts, part)
			}
		}
	}
	return parts
}

// refused reports whether the client gets an error.
func (v *verdict) refused() bool {
	return !strings.HasPrefix(v.status, "2") && v.status != "passes through" && !strings.HasPrefix(v.status, "101")
}

func (v *verdict) same(other *verdict) bool {
	return v.status == other.status && slices.Equal(v.calls, other.calls)
}

// writeVerdicts returns a file of verdicts. A paragraph that an earlier one is equal to is named by
// its hash, which stays if there are more before it.
func writeVerdicts(rows []*row, verdicts []*verdict) string {
	byNumber := map[int]*row{}
	for _, r := range rows {
		byNumber[r.Number] = r
	}

	var out strings.Builder
	seen := map[string]bool{}
	for _, v := range verdicts {
		r := byNumber[v.number]
		fmt.Fprintf(&out, "## %d %s (%s)\n%s\n", v.number, request(r), r.Test, v.status)
		for _, reason := range v.reasons {
			fmt.Fprintf(&out, "reason: %s\n", reason)
		}
		for _, text := range v.calls {
			if seen[text] {
				fmt.Fprintf(&out, "= %s\n", hashed(text, 10))
				continue
			}
			// Short ones are shown where they are.
			if len(text) > 60 {
				seen[text] = true
				fmt.Fprintf(&out, "= %s:\n", hashed(text, 10))
			}
			for line := range strings.SplitSeq(text, "\n") {
				fmt.Fprintf(&out, "| %s\n", line)
			}
			out.WriteString(".\n")
		}
		out.WriteString("\n")
	}
	return out.String()
}

// readVerdicts reads a file of verdicts.
func readVerdicts(text string) map[int]*verdict {
	verdicts, seen := map[int]*verdict{}, map[string]string{}
	var v *verdict
	var lines []string
	name, begins := "", false
	for line := range strings.SplitSeq(text, "\n") {
		switch {
		case strings.HasPrefix(line, "## "):
			number, _ := strconv.Atoi(strings.Fields(line)[1])
			v = &verdict{number: number}
			verdicts[number], begins = v, true
		case v == nil:
		case begins:
			v.status, begins = line, false
		case strings.HasPrefix(line, "reason: "):
			v.reasons = append(v.reasons, strings.TrimPrefix(line, "reason: "))
		case strings.HasPrefix(line, "= ") && strings.HasSuffix(line, ":"):
			name = strings.TrimSuffix(line, ":")
		case strings.HasPrefix(line, "= "):
			v.calls = append(v.calls, seen[line])
		case strings.HasPrefix(line, "| "):
			lines = append(lines, strings.TrimPrefix(line, "| "))
		case line == ".":
			whole := strings.Join(lines, "\n")
			v.calls = append(v.calls, whole)
			if name != "" {
				seen[name] = whole
			}
			lines, name = nil, ""
		}
	}
	return verdicts
}
