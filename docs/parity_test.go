package docs

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// parityCase is a case of NVIDIA Dynamo's table of Harmony parsers: what the model writes, what three
// parsers make of it, and why they and this one are not of one mind.
type parityCase struct {
	Case, What, Dynamo, VLLM, SGLang, Why string
}

// TestParserCases compares the table of parser cases in harmony.md with the cases that
// filter/api/apitest plays, and with the replies of the chat API. -update writes the table.
func TestParserCases(t *testing.T) {
	const head = "| case | the output | Dynamo | vLLM | SGLang | here | why |\n|---|---|---|---|---|---|---|\n"
	page := readAll(t, "harmony.md")
	before, rest, ok := strings.Cut(page, head)
	if !ok {
		t.Fatal("harmony.md has no table of parser cases")
	}
	had, after, _ := strings.Cut(rest, "\n\n")

	want := strings.Join(parityRows(t), "\n")
	if *update {
		if err := os.WriteFile("harmony.md", []byte(before+head+want+"\n\n"+after), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, had); diff != "" {
		t.Errorf("the parser cases of harmony.md, which -update writes (-cases +harmony.md):\n%s", diff)
	}
}

// parityRows returns the rows of the table. Cases that differ in the output only share one.
func parityRows(t *testing.T) (rows []string) {
	t.Helper()
	replies := parityReplies(t)
	var last []string
	cases := strings.Split(strings.TrimSpace(readAll(t, "../filter/api/apitest/testdata/parity.jsonl")), "\n")
	for _, line := range cases {
		var c parityCase
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		here := inWords(replies[c.Case])
		if (c.Dynamo != here || c.VLLM != here || c.SGLang != here) && c.Why == "" {
			t.Errorf("%s differs without a reason", c.Case)
		}

		// The page says this once for all cases.
		if cut, ok := replies[c.Case+" cut"]; ok && cut != endReason.ReplaceAllString(replies[c.Case], "length") {
			t.Errorf("%s: the reply to an output that was cut is another one: %s", c.Case, cut)
		}

		row := []string{c.Case, c.What, c.Dynamo, c.VLLM, c.SGLang, here, c.Why}
		if last != nil && slices.Equal(last[2:], row[2:]) {
			row[0], row[1] = last[0]+", "+row[0], last[1]+"; "+row[1]
			rows = rows[:len(rows)-1]
		}
		last = row
		// A bar in a cell would end it, in code too.
		rows = append(rows, "| "+strings.ReplaceAll(strings.ReplaceAll(strings.Join(row, "\t"), "|", `\|`), "\t", " | ")+" |")
	}

	if len(cases) < 33 {
		t.Errorf("only %d cases", len(cases))
	}
	return rows
}

// parityReplies are the replies of the chat API, by the names of the cases.
func parityReplies(t *testing.T) map[string]string {
	t.Helper()
	replies := map[string]string{}
	for line := range strings.Lines(readAll(t, "../filter/chat/testdata/parity.txt")) {
		name, reply, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		replies[name] = reply
	}
	return replies
}

var (
	replyContent = regexp.MustCompile(`content ("(?:[^"\\]|\\.)*") `)
	replyCall    = regexp.MustCompile(`\w+\(\{`)
	endReason    = regexp.MustCompile(`\w+$`)
)

// inWords says in the table's words what a reply has beside its reasoning.
func inWords(reply string) string {
	var parts []string
	if text := replyContent.FindStringSubmatch(reply); text != nil && text[1] != `""` {
		parts = append(parts, "text")
	}

	switch calls := len(replyCall.FindAllString(replyContent.ReplaceAllString(reply, ""), -1)); calls {
	case 0:
	case 1:
		parts = append(parts, "call")
	default:
		parts = append(parts, strconv.Itoa(calls)+" calls")
	}

	switch {
	case reply == "":
		return "no reply"
	case parts == nil:
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

// readAll returns the text of a file.
func readAll(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
