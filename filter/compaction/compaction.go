// Package compaction is what the APIs share about compaction: the model writes a summary, and
// later requests have it in the place of the conversation before it.
//
// A request that compacts asks for the summary by a last message of the user ([Ask]), and not
// for an answer ([AskOnly]). [Prepare] makes it fit the model's context. The model call's
// output is gathered by a [Summary]. A conversation that goes on from the summary begins with
// [Item].
//
// How a client asks for a compaction, how it gets and returns the summary, and whether that is
// sealed, is the API's. The package does no I/O.
package compaction

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// Code is the code of the error of a summary that the model has not written.
const Code = "compaction_failed"

// Ask is the user's message that asks the model for a summary. kept says what else remains of
// the conversation, after the instructions; "": nothing does.
func Ask(kept string) string {
	rest := " and the instructions."
	if kept != "" {
		rest = ", the instructions and" + kept + "."
	}
	return begin + rest + task
}

// KeptMessages is what [Ask] says where the newest of the users' messages remain.
const KeptMessages = ", if they are not long, the last of my own messages"

const begin = "Write a summary of our conversation so far. It is going to take the conversation's place: whoever " +
	"goes on, you among them, will know only this summary"

const task = "\n" +
	"\n" +
	"Do not answer my last message, do not go on with the work, and call no tools. Put into the summary, " +
	"as far as there is any:\n" +
	"- what I want, with every constraint and preference that I gave;\n" +
	"- what has been done, and what came of it;\n" +
	"- facts that will still be needed, word for word: names, paths, numbers, identifiers, code, errors, " +
	"results of tools;\n" +
	"- what was decided and why, and what was tried and did not work;\n" +
	"- what is not done yet, and the next steps.\n" +
	"\n" +
	"Leave out everything else. Write the summary only."

// Item is the summary as the conversation that continues from it has it.
func Item(summary, path string) turn.Item {
	const head = "The conversation up to here was shortened to the following summary, which you wrote. Go on " +
		"from it.\n\n"
	return turn.Item{Kind: turn.User, Summary: true, Text: head + summary, Path: path}
}

// AskOnly leaves out of a turn's input what is about an answer: a summary has another form and
// another end.
func AskOnly(in *turn.Input) {
	in.OneCall, in.Choice, in.Format, in.Strict = false, turn.Choice{}, nil, nil
	in.Stop, in.Engine.StopTokens, in.Engine.MinTokens = nil, nil, 0
	in.Engine.Logprobs, in.Engine.TopLogprobs = false, 0
}

// The longest texts of a conversation that is too long to be summarized as it
// is: of so many bytes, then of fewer, until there is room for the summary.
const (
	longestText  = 32 << 10
	ShortestText = 1 << 9
)

// Prepare makes the turn of a summary, for the input of a conversation that ends with the
// request for it. A conversation that is too
// long for the model's context is exactly what has to be compacted: long texts are
// shortened then, and only if that is not enough, turns are dropped.
func Prepare(ctx context.Context, rc *turn.RequestContext, input *turn.Input) (*turn.Turn, *apierror.Error) {
	in := *input
	in.Truncate, in.Summarizes, in.Engine.MaxTokens = false, true, 0
	t, err := turn.Prepare(ctx, rc, &in)
	// Shorter texts keep every turn in the summary; dropping turns loses whole thoughts.
	for size := longestText; size >= ShortestText && cramped(rc, t, err); size /= 4 {
		in.Items = shortened(input.Items, size)
		t, err = turn.Prepare(ctx, rc, &in)
	}

	if cramped(rc, t, err) {
		in.Truncate = true
		t, err = turn.Prepare(ctx, rc, &in)
	}

	// The limit of the request is the client's bound also for a summary, but does not decide what is left out.
	if most := input.Engine.MaxTokens; err == nil && most > 0 {
		t.Engine.MaxTokens, t.Engine.Unlimited = min(t.Engine.MaxTokens, most), false
	}

	return t, err
}

// cramped reports whether the prompt leaves less than an eighth of the context.
func cramped(rc *turn.RequestContext, t *turn.Turn, err *apierror.Error) bool {
	if err != nil || rc.Unbounded {
		return err != nil && err.Code == "context_length_exceeded"
	}
	left := t.Engine.MaxTokens
	return left < (len(t.Engine.Prompt)+left)/8
}

// shortened is the conversation without the middle of texts that are longer
// than size bytes. Instructions, and the demand at its end, stay as they are.
func shortened(items []turn.Item, size int) []turn.Item {
	short := slices.Clone(items)
	for i := range short[:len(short)-1] {
		if it := &short[i]; it.Kind != turn.Instructions {
			it.Text = Shorten(it.Text, size)
		}
	}
	return short
}

// Shorten leaves out the middle of a text that is longer than size bytes.
func Shorten(text string, size int) string {
	if len(text) <= size {
		return text
	}

	begin, end := size/2, len(text)-size/2
	for begin > 0 && !utf8.RuneStart(text[begin]) {
		begin--
	}

	for end < len(text) && !utf8.RuneStart(text[end]) {
		end++
	}

	return text[:begin] + fmt.Sprintf("\n[%d bytes are left out here]\n", end-begin) + text[end:]
}

// Summary gathers the text of the model's turn. The zero value has none.
type Summary struct{ answer, preamble []byte }

// Event takes an event of the turn, and reports whether the summary has grown.
func (s *Summary) Event(e turn.Event) (grown bool) {
	switch {
	case e.Step != turn.Delta:
		return false
	case e.Kind == turn.Answer:
		s.answer = append(s.answer, e.Text...)
	case e.Kind == turn.Preamble:
		s.preamble = append(s.preamble, e.Text...)
	default:
		return false
	}
	return true
}

// Text returns the summary of a turn that has ended. limit is the field of the request that
// bounds it, and written how many tokens the turn has.
func (s *Summary) Text(finish turn.Finish, limit string, written int) (string, *apierror.Error) {
	text := strings.TrimSpace(string(s.answer))
	// Some outputs have no answer: the text is in a preamble then.
	if text == "" {
		text = strings.TrimSpace(string(s.preamble))
	}

	switch {
	case finish == turn.FinishLength:
		return "", apierror.New(http.StatusBadGateway, Code, "",
			"The model had no room to complete its summary: it wrote %d tokens. Raise %s, if it is set, or shorten "+
				"the conversation.", written, limit)
	case text == "":
		return "", apierror.New(http.StatusBadGateway, Code, "",
			"The model wrote no summary of the conversation. Try again.")
	}
	return text, nil
}
