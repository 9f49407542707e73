package item

import (
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// ReadOutput reads what the model sees of a tool's output.
func (it *Item) ReadOutput() (string, *apierror.Error) {
	switch it.Kind {
	// An output that is a text, as of a function, is read below.
	case "shell_call_output":
		if it.Output.IsArray() {
			return shellOutput(it.Output)
		}
	case "apply_patch_call_output":
		return it.patchOutput()
	case "computer_call_output":
		if it.Output.IsObject() {
			text, _, err := readPart(it.Output, turn.ImagesPlaceholder, true)
			return text, err
		}
	}

	if !it.Output.Exists() {
		return "", apierror.Invalid(it.At.Path+".output",
			"A tool's output is missing. Send an empty text if there is none.")
	}
	// A picture that a tool returns is never an error: the session could not go on.
	return ReadContent(it.Output, turn.ImagesPlaceholder, true)
}

// shellOutput is what commands have written, each with how it has ended:
//
//	a.txt
//	[stderr]
//	ls: b: No such file or directory
//	[exit code 2]
//
// Of several, each begins with its number.
func shellOutput(v jsontext.Field) (string, *apierror.Error) {
	var text strings.Builder
	several := v.Get("1").Exists()
	err := v.Elements(func(i int, v jsontext.Field) *apierror.Error {
		if i >= maxParts {
			return apierror.Invalid(v.Path, "The output of a shell call has more than %d elements.", maxParts)
		}
		if !v.IsObject() {
			return apierror.Invalid(v.Path,
				"The output of a shell call must be a list of objects with stdout, stderr and outcome.")
		}

		// A single output has no number: most calls have one command.
		if several {
			appendLine(&text, "[output "+strconv.Itoa(i+1)+"]")
		}

		appendLine(&text, v.Get("stdout").Str)
		if stderr := v.Get("stderr").Str; stderr != "" {
			appendLine(&text, "[stderr]")
			appendLine(&text, stderr)
		}

		switch outcome := v.Get("outcome"); outcome.Get("type").Str {
		case "exit":
			appendLine(&text, "[exit code "+shown(outcome.Get("exit_code"))+"]")
		case "timeout":
			appendLine(&text, "[timed out]")
		}

		return nil
	})

	return text.String(), err
}

// appendLine appends a text that begins on a line of its own.
func appendLine(dst *strings.Builder, text string) {
	if text == "" {
		return
	}
	if dst.Len() > 0 && !strings.HasSuffix(dst.String(), "\n") {
		dst.WriteByte('\n')
	}
	dst.WriteString(text)
}

// patchOutput is what came of a patch. The text is optional.
func (it *Item) patchOutput() (text string, err *apierror.Error) {
	if it.Output.Exists() && it.Output.Type != gjson.Null {
		text, err = ReadContent(it.Output, turn.ImagesPlaceholder, true)
	}
	// The status alone may say what came of the patch: the output is optional.
	switch failed := it.At.Get("status").Str == StatusFailed; {
	case failed:
		return strings.TrimSuffix("The patch was not applied.\n"+text, "\n"), err
	case text == "":
		return "The patch was applied.", err
	}
	return text, err
}

// withCallID gives an item the call_id by which it and the call, or its output, belong together. The API's
// own form of a local shell call's output has the id of the call as its id. Some clients send the id of
// the item that is the call as its call_id.
func (it *Item) withCallID() {
	named := it.CallID
	alone := it.Kind == "local_shell_call_output" && named == "" && it.ID != ""
	if alone {
		named = it.ID
	}
	callID := callOfItem(named)
	if id, ok := strings.CutPrefix(named, LocalShell.Names().Prefix); ok && alone {
		callID = CallPrefix + id
	}
	if callID == it.CallID {
		return
	}
	it.CallID = callID

	// The item is rewritten, because it is stored as it is here: later requests find the call_id.
	dst := jsontext.AppendString([]byte(`{"call_id":`), it.CallID)
	it.At.ForEach(func(k, v gjson.Result) bool {
		// The id of the call is not the output's: an item of its own gets another one.
		if k.Str != "call_id" && (k.Str != "id" || !alone) {
			dst = append(append(jsontext.AppendString(append(dst, ','), k.Str), ':'), v.Raw...)
		}
		return true
	})

	it.At.Result = gjson.ParseBytes(append(dst, '}'))
	if alone {
		it.ID = ""
	}
}

// AgentMessage is what the model sees of a message between agents: who has sent it to
// whom, and its text. Content that an agent's client calls encrypted, and that no
// service has encrypted, is text.
func (it *Item) AgentMessage(images string) (string, *apierror.Error) {
	var text jsontext.Joined
	// Harmony has no role for another agent: the first line says who speaks.
	text.Add("[Message from " + it.At.Get("author").Str + " to " + it.At.Get("recipient").Str + "]\n")
	if !it.Content.IsArray() {
		content, err := ReadContent(it.Content, images, true)
		text.Add(content)
		return text.String(), err
	}

	err := it.Content.Elements(func(_ int, v jsontext.Field) *apierror.Error {
		if v.Get("type").Str == "encrypted_content" {
			text.Add(v.Get("encrypted_content").Str)
			return nil
		}
		part, placeholder, err := readPart(v, images, true)
		if placeholder {
			text.NewLine()
		}
		text.Add(part)
		return err
	})

	return text.String(), err
}

// textMembers are the members in which items of an unknown type can have text for the
// model.
var textMembers = []string{
	"content", "text", "message", "code", "input", "arguments", "action", "output", "result", "summary",
}

// AnyText is the text of an item of an unknown type, with the type before it; "" if
// it has none.
func (it *Item) AnyText() string {
	var text strings.Builder
	for _, name := range textMembers {
		v := it.At.Get(name)
		switch {
		case !v.Exists(), v.Type == gjson.Null:
			continue
		case v.IsArray():
			appendParts(&text, v)
		case v.Type == gjson.String:
			appendLine(&text, v.Str)
		default:
			appendLine(&text, shown(v))
		}
	}

	if text.Len() == 0 {
		return ""
	}

	// The type tells the model what the text is about, and comes from the client: it is cut.
	return "[" + Clip(it.Kind) + "]\n" + text.String()
}

// appendParts appends the texts among the parts of a content.
func appendParts(dst *strings.Builder, parts gjson.Result) {
	for p := range jsontext.List(parts) {
		switch {
		case p.Type == gjson.String:
			appendLine(dst, p.Str)
		// A list can have a million numbers, and each look for a member in one takes its time.
		case p.IsObject():
			if text := p.Get("text"); text.Type == gjson.String {
				appendLine(dst, text.Str)
			}
		}
	}
}

// callOfItem returns the id of the call whose item has this id; the id itself if it is of none.
func callOfItem(id string) string {
	for _, kind := range [...]Kind{Function, Custom, Shell, LocalShell, ApplyPatch} {
		if rest, ok := strings.CutPrefix(id, kind.Names().Prefix); ok && turn.IsOwnCall(CallPrefix+rest) {
			return CallPrefix + rest
		}
	}
	return id
}
