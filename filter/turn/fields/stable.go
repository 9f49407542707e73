package fields

import (
	"strings"
)

// Billing begins a line that a client, Claude Code, puts before its system prompt, and
// that changes with every request. Shown to the model, it would end the prefix that the
// engine has cached before all that follows.
const Billing = "x-anthropic-billing-header:"

// WithoutBilling returns the first instructions of a conversation without such lines before
// them. Text that follows on the line of one stays.
func WithoutBilling(instructions string) string {
	for {
		rest, ok := strings.CutPrefix(strings.TrimLeft(instructions, " \t\r\n"), Billing)
		if !ok {
			return instructions
		}
		rest = withoutValues(rest)
		instructions = strings.TrimPrefix(strings.TrimPrefix(rest, "\r"), "\n")
	}
}

// withoutValues returns what follows a billing header, without the header's values, such as
// cc_version=2.1.330; cc_entrypoint=cli; where the last one need not end with a semicolon. A
// word that follows the colon directly, or alone on the line, is a value of any form.
func withoutValues(text string) string {
	glued := text != "" && !strings.ContainsRune(" \t\r\n", rune(text[0]))
	line, _, _ := strings.Cut(text, "\n")
	anyForm := glued || len(strings.Fields(line)) == 1

	for {
		text = strings.TrimLeft(text, " \t")
		end := strings.IndexAny(text, "; \t\r\n")
		if end < 0 {
			end = len(text)
		}

		closed := end < len(text) && text[end] == ';'
		if !anyForm && !closed && !strings.Contains(text[:end], "=") {
			return text
		}
		if text = text[end:]; closed {
			text = text[1:]
		}
		anyForm = false
	}
}
