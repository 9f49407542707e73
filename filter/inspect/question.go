package inspect

import (
	"slices"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/record"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// maxQuestion is how many characters of a question a list has.
const maxQuestion = 120

// maxRead is how many tokens of a question are read: it may begin with white space.
const maxRead = 4 * maxQuestion

// userHeader begins the message of a user.
var userHeader = append([]harmony.Token{harmony.TokenStart}, harmony.AppendEncode(nil, string(harmony.RoleUser))...)

// question returns the first words of what a user asked last, in one line; "" if the record has no prompt, as a
// redacted one has none.
func question(r *record.Record) string {
	// Of the prompt and not of the body: it is the same in all APIs, and has what a request continues.
	prompt := firstPrompt(r)
	for i := len(prompt) - len(userHeader); i >= 0; i-- {
		if !slices.Equal(prompt[i:i+len(userHeader)], userHeader) {
			continue
		}

		message := Messages(prompt[i:min(i+maxRead, len(prompt))], "")[0]
		return firstWords(message.Text())
	}
	return ""
}

func firstWords(text string) string {
	words := strings.Join(strings.Fields(text), " ")
	runes := 0
	for i := range words {
		runes++
		if runes > maxQuestion {
			return words[:i] + "…"
		}
	}
	return words
}
