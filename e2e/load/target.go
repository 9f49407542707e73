package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Target is a server that is loaded.
type Target struct {
	Name string
	// Procs are its processes.
	Procs []Process

	URL string
	// Body makes a streamed request with messages of user and assistant in turns.
	Body func(messages []string) []byte
	// Key is the JSON key before the text in its events, with the quote that opens it.
	Key string
	// Script is a user message that the engine answers by so many words. nil: the
	// simulated engine's.
	Script func(words int) string
}

// model is the first of those that the simulated engine serves.
const model = "openai/gpt-oss-20b"

// aloneName is the target that passes the engine's stream through.
const aloneName = "Envoy alone"

// chatPath is the path of Chat Completions, and contentKey the key of the text in its
// events.
const (
	chatPath   = "/v1/chat/completions"
	contentKey = `"content":"`
)

// words returns the user message that has the target answer by so many words.
func (t *Target) words(n int) string {
	if t.Script != nil {
		return t.Script(n)
	}
	return script(n)
}

// chatBody is a request of Chat Completions to the simulated engine's model.
func chatBody(messages []string) []byte { return chatBodyOf(model)(messages) }

// chatBodyOf returns what makes a request of Chat Completions to a model.
func chatBodyOf(model string) func(messages []string) []byte {
	return func(messages []string) []byte { return chatJSON(model, messages) }
}

func chatJSON(model string, messages []string) []byte {
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	all := make([]message, len(messages))
	for i, text := range messages {
		all[i] = message{roleOf(i), text}
	}
	body, err := json.Marshal(map[string]any{"model": model, "stream": true, "messages": all})
	if err != nil {
		panic(err) // strings only
	}
	return body
}

// rawBody is a request of vLLM's completions with token ids, whose stream Envoy passes
// through.
func rawBody(messages []string) []byte {
	var prompt strings.Builder
	for i, text := range messages {
		end := "<|end|>"
		if roleOf(i) == "assistant" {
			prompt.WriteString("<|start|>assistant<|channel|>final<|message|>" + text + end)
			continue
		}
		prompt.WriteString("<|start|>user<|message|>" + text + end)
	}
	prompt.WriteString("<|start|>assistant")
	// Token ids, as the filter itself asks vLLM: the engine does the same work for both targets.
	b := []byte(`{"model":"` + model + `","stream":true,"return_token_ids":true,"max_tokens":100000,"prompt":[`)
	for i, id := range harmony.AppendEncodeSpecial(nil, prompt.String()) {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, uint64(id), 10)
	}
	return append(b, "]}"...)
}

// roleOf returns the role of message i of a conversation.
func roleOf(i int) string {
	if i%2 == 1 {
		return "assistant"
	}
	return "user"
}

// headTokens are the tokens of a reply before its first word: <|channel|>, final and
// <|message|>.
const headTokens = 3

// script is what the simulated engine does for a user message: directives, and then
// an answer of words.
func script(words int, directives ...string) string {
	lead := ""
	if len(directives) > 0 {
		lead = "SIM " + strings.Join(directives, " ") + "\n"
	}
	return fmt.Sprintf("%s@@<channel>final<message><rand %d><return>@@", lead, words)
}

// paced are the directives for a schedule.
func paced(rate float64, start time.Time) []string {
	return []string{
		"rate=" + strconv.FormatFloat(rate, 'g', -1, 64),
		"start=" + strconv.FormatInt(start.UnixMicro(), 10),
	}
}

// words are the texts of tokens that are a lower-case word with a space before it. A
// text of them has a known number of tokens.
var words = sync.OnceValue(func() (all []string) {
	// Frequent words of several letters: lower ids are mostly pieces of words, higher ones are rare.
	for id := harmony.Token(1000); id < 60000; id++ {
		text, err := harmony.AppendDecode(nil, []harmony.Token{id})
		if err != nil || len(text) < 4 || text[0] != ' ' ||
			strings.Trim(string(text[1:]), "abcdefghijklmnopqrstuvwxyz") != "" {
			continue
		}
		all = append(all, string(text))
	}
	return all
})

// prose returns a text of so many tokens.
func prose(random *rand.Rand, tokens int) string {
	var b strings.Builder
	for all := words(); tokens > 0; tokens-- {
		b.WriteString(all[random.IntN(len(all))])
	}
	return b.String()
}
