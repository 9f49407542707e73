package responsestest

import (
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/tidwall/gjson"
)

// The items of calls with an action, which clients run.
var (
	shellCall = object(map[string]member{
		"type": must(name), "id": must(prefixed("sh_")), "status": must(itemStatus), "call_id": must(name),
		"action":      must(object(map[string]member{"commands": must(array(text)), "timeout_ms": may(count), "max_output_length": may(count)})),
		"environment": must(object(map[string]member{"type": must(word("local"))})),
	})

	localShellCall = object(map[string]member{
		"type": must(name), "id": must(prefixed("lsh_")), "status": must(itemStatus), "call_id": must(name),
		"action": must(object(map[string]member{
			"type": must(word("exec")), "command": must(array(text)), "env": must(textMap),
			"working_directory": may(text), "timeout_ms": may(count), "user": may(text),
		})),
	})

	applyPatchCall = object(map[string]member{
		"type": must(name), "id": must(prefixed("apc_")), "status": must(word("in_progress", "completed")), "call_id": must(name),
		"operation": must(oneOf(map[string]check{
			"create_file": object(map[string]member{"type": must(name), "path": must(text), "diff": must(text)}),
			"update_file": object(map[string]member{"type": must(name), "path": must(text), "diff": must(text)}),
			"delete_file": object(map[string]member{"type": must(name), "path": must(text)}),
		})),
	})
)

// with is a set of checks with one more.
func with(checks map[string]check, kind string, c check) map[string]check {
	all := maps.Clone(checks)
	all[kind] = c
	return all
}

// textMap is an object whose values are texts.
func textMap(v gjson.Result) error {
	if !v.IsObject() {
		return fmt.Errorf("%.60s is no object", v.Raw)
	}
	for k, value := range v.Map() {
		if err := text(value); err != nil {
			return fmt.Errorf("%s: %w", k, err)
		}
	}
	return nil
}

// What the events of a shell call's commands begin with.
const commandEvent = "response.shell_call_command."

// command is a command of a shell call, as its events tell it.
type command struct {
	text strings.Builder
	done bool
}

// commandStep takes an event of a command. The commands come one after the other.
func (o *streamItem) commandStep(step string, e gjson.Result) error {
	i, last := int(e.Get("command_index").Int()), len(o.commands)-1
	if o.added.Get("type").Str != "shell_call" {
		return errors.New("not an event of this type of item")
	}
	if step == "added" {
		switch {
		case i != last+1:
			return errors.New("not the next command_index")
		case last >= 0 && !o.commands[last].done:
			return errors.New("another command is open")
		case e.Get("command").Str != "":
			return errors.New("the command begins with text")
		}
		o.commands = append(o.commands, &command{})
		return nil
	}
	if i != last || last < 0 || o.commands[last].done {
		return errors.New("not the command_index of an open command")
	}

	c := o.commands[last]
	if step == "delta" {
		c.text.WriteString(e.Get("delta").Str)
		return nil
	}
	if c.done = true; e.Get("command").Str != c.text.String() {
		return fmt.Errorf("the deltas join to %q, not %q", c.text.String(), e.Get("command").Str)
	}

	return nil
}

// sameAction checks that an item has the action that its events tell.
func (o *streamItem) sameAction(item gjson.Result) error {
	switch item.Get("type").Str {
	case "shell_call":
		commands := item.Get("action.commands").Array()
		// A client that builds the item from the events must not get a command twice.
		if len(commands) != len(o.commands) || len(o.added.Get("action.commands").Array()) > 0 {
			return errors.New("the commands are not those of the events")
		}
		for i, c := range commands {
			if !o.commands[i].done || c.Str != o.commands[i].text.String() {
				return errors.New("a command is not that of its events")
			}
		}
	case "apply_patch_call":
		// The diff alone may come later: clients show from the beginning which file is changed.
		for _, field := range []string{"operation.type", "operation.path"} {
			if item.Get(field).Raw != o.added.Get(field).Raw {
				return fmt.Errorf("%s is not that of the added item", field)
			}
		}
		if o.added.Get("operation.diff").Str != "" {
			return errors.New("the item begins with a diff")
		}
	case "local_shell_call":
		if item.Get("action").Raw != o.added.Get("action").Raw {
			return errors.New("the action is not that of the added item")
		}
	}

	return nil
}
