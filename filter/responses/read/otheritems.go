package read

import (
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/fields"
)

// Items of clients' tools that are no functions, of other agents, and of types that
// are not known. What has text for the model becomes a call, an output or a message.

// actionNames are the functions as which the model sees calls with an action.
var actionNames = map[string]string{
	"shell_call":       "shell",
	"local_shell_call": "local_shell",
	"apply_patch_call": "apply_patch",
	"computer_call":    "computer",
}

// addActionCall adds a call with an action.
func (r *itemReader) addActionCall(it item.Item) *apierror.Error {
	it.Name = actionNames[it.Kind]
	r.addTurn(turn.Item{
		Kind:   turn.Call,
		Text:   it.ActionArguments(),
		CallID: it.CallID,
		Name:   it.Name,
		Path:   it.At.Path,
	})
	return it.CheckCall()
}

// addAgentMessage adds a message from another agent.
func (r *itemReader) addAgentMessage(it item.Item) *apierror.Error {
	if !it.Content.Exists() {
		return apierror.Invalid(it.At.Path+".content", "A message has no content.")
	}
	text, err := it.AgentMessage(r.rc.Model.Images)
	r.addTurn(turn.Item{Kind: turn.User, Text: text, Path: it.At.Path})
	return err
}

// addProgram adds a program that called tools, and addProgramOutput its result: the
// calls between them have items of their own.
func (r *itemReader) addProgram(it item.Item) *apierror.Error {
	if text := it.AnyText(); text != "" {
		r.addTurn(turn.Item{Kind: turn.Preamble, Text: text, Path: it.At.Path})
	}
	return nil
}

// addOther adds an item of a type that is not known. One without any content steers the
// client, and is ignored.
func (r *itemReader) addOther(it item.Item) *apierror.Error {
	text := it.AnyText()
	if text == "" {
		r.ignore(it.Kind)
		return fields.CheckUnread(it.At)
	}
	r.addTurn(turn.Item{Kind: turn.User, Text: text, Path: it.At.Path})
	return nil
}

// ignore notes that the request has an item without an effect.
func (r *itemReader) ignore(kind string) {
	if r.ignored != nil && r.ownInput {
		r.ignored.Add("input." + item.Clip(kind))
	}
}

// addContextCompaction adds a compaction that a client has under another name. Without
// a summary it only says that there was one.
func (r *itemReader) addContextCompaction(it item.Item) *apierror.Error {
	if it.Encrypted == "" {
		r.ignore(it.Kind)
		return nil
	}
	return r.addCompaction(it)
}
