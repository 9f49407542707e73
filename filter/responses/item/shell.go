package item

import (
	"iter"
	"path"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

// appendShellAction appends the action of a shell_call:
//
//	{"commands":["ls"],"timeout_ms":1000,"max_output_length":4096}
//
// The limits are left out where the model sets none.
func appendShellAction(dst []byte, text string) []byte {
	v := arguments(text)
	dst = appendTexts(append(dst, `{"commands":`...), shellCommands(v, text))
	dst = appendCount(dst, "timeout_ms", member(v, "timeout_ms"))
	return append(appendCount(dst, "max_output_length", member(v, "max_output_length")), '}')
}

// shellCommands are the commands of a call: the list of them, one command, or the
// words of one command. Other arguments are a command themselves.
func shellCommands(v gjson.Result, text string) iter.Seq[string] {
	commands := member(v, "commands")
	command := member(v, "command", "cmd")
	switch {
	case v.IsArray():
		commands = v
	case v.Type == gjson.String:
		command = v
	}

	switch {
	case commands.IsArray():
		return func(yield func(string) bool) {
			for c := range jsontext.List(commands) {
				if !yield(oneCommand(c)) {
					return
				}
			}
		}
	case commands.Exists():
		return words(oneCommand(commands))
	case command.Exists():
		return words(oneCommand(command))
	// A call without arguments has no command, but the list must be there.
	case v.Raw == "" || isEmpty(v):
		return words()
	}

	return words(text)
}

// words are texts one after the other, as those of an array are, of which no list is made.
func words(list ...string) iter.Seq[string] { return slices.Values(list) }

// isEmpty reports whether v is an object without members.
func isEmpty(v gjson.Result) bool { return v.IsObject() && jsontext.Empty(v) }

// oneCommand is a command for a shell. A list is a command's words: those that call a
// shell with a script are the script.
func oneCommand(v gjson.Result) string {
	if !v.IsArray() {
		return plain(v)
	}

	// The script alone: the client's shell needs no second shell around it.
	if script, ok := shellScript(v); ok {
		return script
	}

	var command strings.Builder
	between := ""
	for w := range texts(v) {
		command.WriteString(between)
		command.WriteString(quoted(w))
		between = " "
	}

	return command.String()
}

// shellScript returns the script of a list of words that calls a shell with one.
func shellScript(v gjson.Result) (script string, ok bool) {
	var first [4]string
	n := 0
	for w := range texts(v) {
		first[n] = w
		n++
		if n == len(first) {
			return "", false
		}
	}

	return first[2], n == 3 && isShell(first[0]) && (first[1] == "-c" || first[1] == "-lc")
}

// isShell reports whether a program runs scripts.
func isShell(program string) bool {
	return slices.Contains([]string{"sh", "bash", "zsh"}, path.Base(program))
}

// quoted is a word as a POSIX shell reads it.
func quoted(word string) string {
	isSafe := func(c rune) bool {
		isLetter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		return isLetter || c >= '0' && c <= '9' || strings.ContainsRune("_-./:=@%+,", c)
	}
	if word != "" && !strings.ContainsFunc(word, func(c rune) bool { return !isSafe(c) }) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// appendLocalAction appends the action of a local_shell_call:
//
//	{"type":"exec","command":["ls","-l"],"env":{},"working_directory":"/tmp","timeout_ms":1000,"user":"me"}
//
// The members after env are left out where the model sets none.
func appendLocalAction(dst []byte, text string) []byte {
	v := arguments(text)
	dst = appendTexts(append(dst, `{"type":"exec","command":`...), localCommand(v, text))
	dst = append(appendEnv(append(dst, `,"env":{`...), v), '}')
	return append(appendLocalLimits(dst, v), '}')
}

// appendLocalLimits appends where, how long and as whom a command runs.
func appendLocalLimits(dst []byte, v gjson.Result) []byte {
	dst = appendText(dst, "working_directory", member(v, "working_directory", "workdir", "cwd"))
	dst = appendCount(dst, "timeout_ms", member(v, "timeout_ms"))
	return appendText(dst, "user", member(v, "user"))
}

// localCommand is the words of the command. A script runs in a shell.
func localCommand(v gjson.Result, text string) iter.Seq[string] {
	command := member(v, "command", "cmd")
	if v.IsArray() {
		command = v
	}

	if command.IsArray() {
		return texts(command)
	}

	script := ""
	switch commands := member(v, "commands"); {
	case command.Exists():
		script = plain(command)
	case commands.Exists():
		var lines jsontext.Joined
		for command := range shellCommands(v, text) {
			lines.NewLine()
			lines.Add(command)
		}
		script = lines.String()
	case v.Type == gjson.String:
		script = v.Str
	case !isEmpty(v):
		script = text
	}

	if script == "" {
		return words()
	}

	// The client executes words without a shell, and a script needs one.
	return words("bash", "-lc", script)
}

// appendEnv appends the members of the environment.
func appendEnv(dst []byte, v gjson.Result) []byte {
	comma := false
	member(v, "env").ForEach(func(k, v gjson.Result) bool {
		// Env is no object, or has no value.
		// ForEach of a value that is no object calls this once, without a key.
		if k.Type != gjson.String || v.Type == gjson.Null {
			return true
		}
		if comma {
			dst = append(dst, ',')
		}
		comma = true
		dst = jsontext.AppendString(append(jsontext.AppendString(dst, k.Str), ':'), plain(v))
		return true
	})

	return dst
}

// localArguments are the arguments of the function for a local_shell_call.
func localArguments(action gjson.Result) []byte {
	dst := appendTexts([]byte(`{"command":`), localCommand(action, action.Raw))
	dst = appendLocalLimits(dst, action)
	if env := appendEnv(nil, action); len(env) > 0 {
		dst = append(append(append(dst, `,"env":{`...), env...), '}')
	}
	return append(dst, '}')
}
