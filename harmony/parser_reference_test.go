package harmony

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// parserStep is the state of the reference's parser after a token.
type parserStep struct {
	Err, State, Delta, Role, Channel, Recipient, Type string
}

type parserCase struct {
	Name   string
	Role   Role
	Strict bool
	T      []Token
	Steps  []parserStep // one per token, and one for the end of the tokens
	Msgs   [][6]string  // role, name, channel, recipient, content type, text
}

func (c parserCase) mode() Mode {
	if c.Strict {
		return Strict
	}
	return Permissive
}

var stateNames = map[State]string{StateExpectStart: "ExpectStart", StateHeader: "Header", StateContent: "Content"}

// TestParserReference compares every step of the parsers, including those after
// errors.
func TestParserReference(t *testing.T) {
	for _, c := range readLines[parserCase](t, "parser.jsonl") {
		t.Run(c.Name, func(t *testing.T) {
			p := NewParser(c.mode(), c.Role)
			var all collector
			for i, want := range c.Steps {
				var events []Event
				var err error
				if i < len(c.T) {
					events, err = p.Push(c.T[i])
				} else {
					events, err = p.Close()
				}
				all.add(events)
				got := parserStep{
					State: stateNames[p.State()], Delta: string(p.LastDelta()), Role: string(p.Role()),
					Channel: p.Channel(), Recipient: p.Recipient(), Type: p.ContentType(),
				}
				if err != nil {
					got.Err = err.Error()
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("token %d of %v (-want +got):\n%s", i, c.T, diff)
				}
			}
			msgs := make([][6]string, 0, len(all.msgs))
			for _, m := range all.msgs {
				msgs = append(msgs, [6]string{string(m.Role), m.Name, m.Channel, m.Recipient, m.ContentType, string(m.Content[0].(Text))})
			}
			if diff := cmp.Diff(c.Msgs, msgs); diff != "" {
				t.Errorf("messages (-want +got):\n%s", diff)
			}
		})
	}
}

// TestParseReferenceErrors compares the first errors that Parse returns.
func TestParseReferenceErrors(t *testing.T) {
	for _, c := range readLines[parserCase](t, "parser.jsonl") {
		want := ""
		for _, s := range c.Steps {
			if s.Err != "" {
				want = s.Err
				break
			}
		}
		_, err := Parse(c.mode(), c.Role, c.T)
		if got := errorText(err); got != want {
			t.Errorf("%s: error %q, want %q", c.Name, got, want)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
