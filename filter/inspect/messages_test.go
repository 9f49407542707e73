package inspect

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/record"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// brief is messages as lines: role, channel, recipient, type, and the text of the content.
func brief(messages []Message) string {
	var b strings.Builder
	for i := range messages {
		m := &messages[i]
		fmt.Fprintf(&b, "%d %s|%s|%s|%s|%s\n", m.Start, m.Role, m.Channel, m.Recipient, m.Type, m.Text())
	}
	return b.String()
}

func TestMessages(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		begun      harmony.Role
		want       string
	}{
		{"a prompt", "<|start|>system<|message|>You.<|end|><|start|>user<|message|>Hi 🙂<|end|><|start|>assistant", "", "0 system||||You.\n6 user||||Hi 🙂\n12 assistant||||\n"},
		{
			"an output", "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant to=functions.f<|channel|>commentary <|constrain|>json<|message|>{}<|call|>", harmony.RoleAssistant,
			"0 assistant|analysis|||Hm.\n6 assistant|commentary|functions.f|json|{}\n",
		},
		{"a recipient behind the channel", "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>", harmony.RoleAssistant, "0 assistant|commentary|functions.f|json|{}\n"},
		{"a type without its marker", "<|channel|>commentary to=functions.f json<|message|>{}<|call|>", harmony.RoleAssistant, "0 assistant|commentary|functions.f|json|{}\n"},
		{"a tool's answer", "<|start|>functions.f to=assistant<|channel|>commentary<|message|>7<|end|>", "", "0 functions.f|commentary|assistant||7\n"},
		{"no end", "<|start|>user<|message|>a<|start|>user<|message|>b", "", "0 user||||a\n4 user||||b\n"},
		{"no message", "text", "", "0 ||||text\n"},
		{"nothing", "", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			tokens := harmony.AppendEncodeSpecial(nil, c.text)
			if diff := cmp.Diff(c.want, brief(Messages(tokens, c.begun))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Any tokens are shown: each is there once, and no text is lost.
func FuzzMessages(f *testing.F) {
	f.Add("<|start|>user<|message|>Grüße 🙂<|end|>", true)
	f.Add("\x00\x01\xff<|channel|>", false)
	f.Fuzz(func(t *testing.T, text string, begun bool) {
		tokens := harmony.AppendEncodeSpecial(nil, text)
		if len(text) > 4 { // and such that no text has
			tokens = append(tokens, harmony.Token(text[0])<<16|harmony.Token(text[1])<<8, harmony.Token(text[2]))
		}
		role := harmony.Role("")
		if begun {
			role = harmony.RoleAssistant
		}
		at := 0
		for _, m := range Messages(tokens, role) {
			if m.Start != at {
				t.Fatalf("a message begins at %d, not %d", m.Start, at)
			}
			for i := range m.Pieces {
				if m.Pieces[i].ID != tokens[at] {
					t.Fatalf("token %d is %d", at, m.Pieces[i].ID)
				}
				at++
			}
		}
		if at != len(tokens) {
			t.Fatalf("%d of %d tokens", at, len(tokens))
		}

		// So are those of an output, whatever its prompt has begun, and whatever is repaired in it.
		half := len(tokens) / 2
		at = 0
		output := outputMessages(tokens[:half], tokens[half:])
		newMarker(&record.Record{}).read(tokens[:half], output)
		for _, m := range output {
			if m.Start != at {
				t.Fatalf("a message of the output begins at %d, not %d", m.Start, at)
			}
			at += len(m.Pieces)
		}
		if at != len(tokens)-half {
			t.Fatalf("%d of %d tokens of the output", at, len(tokens)-half)
		}
	})
}
