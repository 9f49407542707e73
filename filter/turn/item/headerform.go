package item

import (
	"slices"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Where the store has not what the model wrote, because it has forgotten it, is another one, or
// there is none, and of steps whose reasoning is dropped with the turn's answer, the client's history
// still has the text of each call, and its id. So the id says in which form the model wrote the
// header: a letter at its end. Every client sends ids back as they are, those that keep reasoning
// themselves and those that know none, and a replica of an earlier version takes a marked id as any
// other. The seal of reasoning has no room for it: clients get it before the call is written, and
// all that it opens to is reasoning for earlier versions. The letter needs no seal: a client that
// makes one up chooses among forms of one meaning, for a call that it may send anyway.

// HeaderForm is the form of a call's header: where the recipient stands, and how the content type
// is written. 0 is that of OpenAI's library: the recipient before the channel, and the type alone.
type HeaderForm uint8

// recipientLast says that the recipient stands after the channel. The other values are the content
// types, of which one is added.
const recipientLast HeaderForm = 1

const (
	typePlain       HeaderForm = 2 * iota // as in the library's form
	typeConstrained                       // after <|constrain|>
	typeLeftOut                           // there is none
	typeCode                              // "code", of whatever tool

	formCount
)

// firstMark is the first letter of the forms. No digit of an id is one of them.
const firstMark = 'h'

// randomDigits is how many hexadecimal digits the id of a call has. An id that is made otherwise is
// not marked, and the letter at its end means nothing.
const randomDigits = 32

// WithMark returns the id of a call with the mark of a form. That of the library has none.
func (f HeaderForm) WithMark(id string) string {
	if f == 0 || !isUnmarked(id) {
		return id
	}
	return id + string(rune(firstMark+f-1))
}

// FormOf returns the form that the id of a call is marked with.
func FormOf(id string) HeaderForm {
	last := len(id) - 1
	if last < 0 || !isUnmarked(id[:last]) || id[last] < firstMark {
		return 0
	}
	if f := HeaderForm(id[last] - firstMark + 1); f < formCount {
		return f
	}
	return 0
}

// IsOwnCall reports whether the id of a call has the form of those that replies have.
func IsOwnCall(id string) bool { return isUnmarked(id) || FormOf(id) != 0 }

// IsMarked reports whether an item is a call whose id has a mark.
func IsMarked(item Item) bool { return item.Kind == Call && FormOf(item.CallID) != 0 }

func isUnmarked(id string) bool {
	digits, ok := strings.CutPrefix(id, CallPrefix)
	return ok && len(digits) == randomDigits && strings.Trim(digits, "0123456789abcdef") == ""
}

// CallPrefix begins the ids of calls.
const CallPrefix = "call_"

// apply gives a call in the library's form this one.
func (f HeaderForm) apply(call *harmony.Message) {
	call.RecipientLast = f&recipientLast != 0

	switch f &^ recipientLast {
	case typeConstrained:
		call.ContentType = constrained + call.ContentType
	case typeLeftOut:
		call.ContentType = ""
	case typeCode:
		call.ContentType = "code"
	}
}

const constrained = "<|constrain|>"

// maxHeader is the most tokens of a header whose form is looked for. Names of tools are short.
const maxHeader = 128

// WrittenForm returns the form of the header that tokens end with: that of a call of the tool. It
// is the library's unless the header has exactly the tokens that are rendered in another one.
func WrittenForm(r *harmony.Renderer, tokens []harmony.Token, tool ToolName) HeaderForm {
	// Output may have calls without <|start|>: what precedes them is not searched each time.
	start := len(tokens) - 1
	for start >= max(0, len(tokens)-maxHeader) && tokens[start] != harmony.TokenStart {
		start--
	}
	if start < 0 || tokens[start] != harmony.TokenStart {
		return 0
	}

	// Without an end it is no message.
	whole := slices.Concat(tokens[start:], []harmony.Token{harmony.TokenCall})
	written, ok := harmony.ReadWritten(whole)
	if !ok || len(written) != 1 || !Calls(&written[0], tool) {
		return 0
	}

	call := Message(Item{Kind: Call}, Callee{Recipient: Recipient(tool), Builtin: tool.Builtin})
	call.Content = []harmony.Content{harmony.Text("")}

	var form HeaderForm
	switch contentType := written[0].ContentType; {
	case slices.Contains(whole, harmony.TokenConstrain):
		form = typeConstrained
	case contentType == call.ContentType:
	case contentType == "":
		form = typeLeftOut
	case contentType == "code":
		form = typeCode
	}
	// After <|start|> and the role.
	if whole[2] == harmony.TokenChannel {
		form |= recipientLast
	}

	form.apply(&call)
	rendered, err := r.AppendConversation(nil, []harmony.Message{call})
	if err != nil || !slices.Equal(rendered, whole) {
		return 0
	}
	return form
}
