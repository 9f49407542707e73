package item

import (
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

// Some tools are run by the client, but their calls are no function calls: they have
// an action in place of arguments. The model sees each as a function whose parameters
// are the action's members. So arguments become an action here, and the action of an
// item becomes arguments again.
//
// Whatever the model writes becomes a valid action. Arguments in another form than
// the function's are read by what they mean, such as one command in place of a list.
// Those that mean nothing known are the command, or the diff, as they are: then the
// client's error tells the model what is wrong.

// SetAction makes the action of a call whose arguments are complete. The kind must
// be one of those with an action.
func (o *Output) SetAction() {
	text := o.PlainText()
	switch o.Kind {
	case Shell:
		o.Action = appendShellAction(nil, text)
	case LocalShell:
		o.Action = appendLocalAction(nil, text)
	case ApplyPatch:
		o.Action = appendOperation(nil, text)
	}
}

// appendAction appends the JSON of a call with an action. In progress it has no
// commands and no diff yet.
func (o *Output) appendAction(dst []byte, status string) []byte {
	begun := status == StatusInProgress
	action := o.Action
	switch o.Kind {
	case Shell:
		dst = jsontext.AppendString(append(o.appendHead(dst, "shell_call", status), `,"call_id":`...), o.Call.ID)
		// The events of the item add its commands one by one.
		if begun {
			action = []byte(`{"commands":[]}`)
		}
		return append(append(append(dst, `,"action":`...), action...), `,"environment":{"type":"local"}}`...)
	case LocalShell:
		dst = jsontext.AppendString(append(o.appendHead(dst, "local_shell_call", status), `,"call_id":`...), o.Call.ID)
		return append(append(append(dst, `,"action":`...), action...), '}')
	}

	dst = jsontext.AppendString(append(o.appendHead(dst, "apply_patch_call", status), `,"call_id":`...), o.Call.ID)
	if begun {
		action = withoutDiff(action)
	}

	return append(append(append(dst, `,"operation":`...), action...), '}')
}

// Commands are the commands of a shell call, in their order.
func (o *Output) Commands() []string {
	return slices.Collect(texts(gjson.GetBytes(o.Action, "commands")))
}

// arguments are the arguments of a call that the model has written; none if there is no
// text. Text that is no JSON is a string.
func arguments(text string) gjson.Result {
	switch {
	case text == "":
		return gjson.Result{}
	case !jsontext.Valid(text):
		return gjson.Result{Type: gjson.String, Str: text, Raw: text}
	}
	return gjson.Parse(text)
}

// member is the first of an object's members with one of the names; none if v is no
// object.
func member(v gjson.Result, names ...string) gjson.Result {
	if v.IsObject() {
		for _, name := range names {
			if m := v.Get(name); m.Exists() && m.Type != gjson.Null {
				return m
			}
		}
	}
	return gjson.Result{}
}

// plain is a value as text: of a string its text, else the JSON.
func plain(v gjson.Result) string {
	if v.Type == gjson.String {
		return v.Str
	}
	return v.Raw
}

// texts are the elements of an array as texts.
func texts(v gjson.Result) iter.Seq[string] {
	return func(yield func(string) bool) {
		for e := range jsontext.List(v) {
			if !yield(plain(e)) {
				return
			}
		}
	}
}

func appendTexts(dst []byte, list iter.Seq[string]) []byte {
	dst = append(dst, '[')
	first := true
	for s := range list {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = jsontext.AppendString(dst, s)
	}
	return append(dst, ']')
}

// maxCount is the largest number that every client can read.
const maxCount = 1 << 31

// appendCount appends a member that is a number of things. A value that is none is
// left out.
func appendCount(dst []byte, name string, v gjson.Result) []byte {
	n := v.Num
	if v.Type == gjson.String {
		// 0 if it is no number.
		n, _ = strconv.ParseFloat(strings.TrimSpace(v.Str), 64)
	}
	if !(n >= 1 && n < maxCount) {
		return dst
	}
	dst = append(append(append(dst, `,"`...), name...), `":`...)
	return strconv.AppendInt(dst, int64(n), 10)
}

// appendText appends a member that is a text, if there is one.
func appendText(dst []byte, name string, v gjson.Result) []byte {
	if v.Type != gjson.String || v.Str == "" {
		return dst
	}
	return jsontext.AppendString(append(append(append(dst, `,"`...), name...), `":`...), v.Str)
}

// ActionArguments are the arguments with which the model sees the call of an item with
// an action: the same for an item that was made here and comes back.
func (it *Item) ActionArguments() string {
	// What is not in the function's form is shown as a text, such as a command that is an object.
	switch it.Kind {
	case "shell_call":
		return string(appendShellAction(nil, shown(it.At.Get("action"))))
	case "local_shell_call":
		return string(localArguments(gjson.Parse(shown(it.At.Get("action")))))
	case "apply_patch_call":
		return string(appendOperation(nil, shown(it.At.Get("operation"))))
	}

	dst := []byte{'{'}
	// A computer_call has one of the two; no function here has its form, so that it is shown as it is.
	for _, name := range []string{"action", "actions"} {
		if v := it.At.Get(name); v.Exists() && v.Type != gjson.Null {
			if len(dst) > 1 {
				dst = append(dst, ',')
			}
			dst = jsontext.AppendShown(append(append(append(dst, '"'), name...), `":`...), v.Raw)
		}
	}

	return string(append(dst, '}'))
}
