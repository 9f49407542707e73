package item

import (
	"encoding/json"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

// actionOf is the action of a call with these arguments.
func actionOf(k Kind, arguments string) string {
	o := Output{Kind: k, Text: jsontext.AppendEscaped(nil, []byte(arguments))}
	o.SetAction()
	return string(o.Action)
}

// TestActions shows that whatever a model writes becomes a valid action, with all of
// its text.
func TestActions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		kind      Kind
		arguments string
		want      string
	}{
		{"commands", Shell, `{"commands":["ls -l","pwd"],"timeout_ms":2000,"max_output_length":100}`, `{"commands":["ls -l","pwd"],"timeout_ms":2000,"max_output_length":100}`},
		{"limits that are null, none or texts", Shell, `{"commands":[],"timeout_ms":null,"max_output_length":"7"}`, `{"commands":[],"max_output_length":7}`},
		{"limits that are no counts", Shell, `{"commands":[],"timeout_ms":-1,"max_output_length":"many"}`, `{"commands":[]}`},
		{"a limit of any size", Shell, `{"commands":[],"timeout_ms":1e300}`, `{"commands":[]}`},
		{"one text as commands", Shell, `{"commands":"ls"}`, `{"commands":["ls"]}`},
		{"a command", Shell, `{"command":"ls -l | wc"}`, `{"commands":["ls -l | wc"]}`},
		{"the words of a command", Shell, `{"command":["grep","it's","a b",""]}`, `{"commands":["grep 'it'\\''s' 'a b' ''"]}`},
		{"a script for a shell", Shell, `{"cmd":["/bin/bash","-lc","ls | wc"]}`, `{"commands":["ls | wc"]}`},
		{"commands as words", Shell, `{"commands":[["ls","-l"],7]}`, `{"commands":["ls -l","7"]}`},
		{"a list alone", Shell, `["ls","pwd"]`, `{"commands":["ls","pwd"]}`},
		{"a string alone", Shell, `"ls"`, `{"commands":["ls"]}`},
		{"bare text", Shell, "ls -l\npwd", `{"commands":["ls -l\npwd"]}`},
		{"an object that means nothing", Shell, `{"x":1}`, `{"commands":["{\"x\":1}"]}`},
		{"JSON that is cut", Shell, `{"commands":["ls"`, `{"commands":["{\"commands\":[\"ls\""]}`},
		{"nothing for the shell", Shell, `{}`, `{"commands":[]}`},

		{"words", LocalShell, `{"command":["ls","-l"]}`, `{"type":"exec","command":["ls","-l"],"env":{}}`},
		{"all members", LocalShell, `{"user":"me","timeout_ms":5.0,"env":{"A":"1","B":2,"C":null},"working_directory":"/a","command":["ls"]}`, `{"type":"exec","command":["ls"],"env":{"A":"1","B":"2"},"working_directory":"/a","timeout_ms":5,"user":"me"}`},
		{"names of another client", LocalShell, `{"cmd":["ls"],"workdir":"/a"}`, `{"type":"exec","command":["ls"],"env":{},"working_directory":"/a"}`},
		{"a script", LocalShell, `{"command":"ls | wc"}`, `{"type":"exec","command":["bash","-lc","ls | wc"],"env":{}}`},
		{"commands of the other tool", LocalShell, `{"commands":["cd a","ls"]}`, `{"type":"exec","command":["bash","-lc","cd a\nls"],"env":{}}`},
		{"bare text as a script", LocalShell, `ls`, `{"type":"exec","command":["bash","-lc","ls"],"env":{}}`},
		{"an environment of another form", LocalShell, `{"command":["ls"],"env":["A=1"]}`, `{"type":"exec","command":["ls"],"env":{}}`},
		{"nothing for the local shell", LocalShell, `{}`, `{"type":"exec","command":[],"env":{}}`},

		{"create", ApplyPatch, `{"type":"create_file","path":"a","diff":"+x"}`, `{"type":"create_file","path":"a","diff":"+x"}`},
		{"delete", ApplyPatch, `{"path":"a","type":"delete_file","diff":"x"}`, `{"type":"delete_file","path":"a"}`},
		{"an operation in the arguments", ApplyPatch, `{"operation":{"type":"update_file","path":"a","diff":"@@"}}`, `{"type":"update_file","path":"a","diff":"@@"}`},
		{"other words", ApplyPatch, `{"operation":"add","file":"a","patch":"+x"}`, `{"type":"create_file","path":"a","diff":"+x"}`},
		{"no type", ApplyPatch, `{"path":"a","diff":"@@"}`, `{"type":"update_file","path":"a","diff":"@@"}`},
		{"a patch with headers", ApplyPatch, "*** Begin Patch\n*** Update File: a b.txt\n@@\n-x\n+y\n*** End Patch\n", `{"type":"update_file","path":"a b.txt","diff":"@@\n-x\n+y\n"}`},
		{"a patch in the input", ApplyPatch, `{"input":"*** Begin Patch\n*** Add File: a\n+x\n*** End Patch"}`, `{"type":"create_file","path":"a","diff":"+x\n"}`},
		{"a patch in the diff", ApplyPatch, `{"type":"update_file","path":"/w/a","diff":"*** Update File: a\n@@\n+x"}`, `{"type":"update_file","path":"/w/a","diff":"@@\n+x"}`},
		{"a patch that deletes", ApplyPatch, "*** Begin Patch\n*** Delete File: a\n*** End Patch", `{"type":"delete_file","path":"a"}`},
		{"a patch of several files", ApplyPatch, "*** Begin Patch\n*** Delete File: a\n*** Add File: b\n+x\n*** End Patch", `{"type":"update_file","path":"a","diff":"*** Begin Patch\n*** Delete File: a\n*** Add File: b\n+x\n*** End Patch"}`},
		{"bare text for a patch", ApplyPatch, `change it`, `{"type":"update_file","path":"","diff":"change it"}`},
		{"an object without a diff", ApplyPatch, `{"path":"a","x":1}`, `{"type":"update_file","path":"a","diff":"{\"path\":\"a\",\"x\":1}"}`},
		{"nothing for a patch", ApplyPatch, `{}`, `{"type":"update_file","path":"","diff":""}`},
	} {
		if got := actionOf(c.kind, c.arguments); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// callOf is the item of a call, as clients send it back.
func callOf(t testing.TB, k Kind, arguments string) *Item {
	t.Helper()
	member := map[Kind]string{Shell: `"shell_call","action":`, LocalShell: `"local_shell_call","action":`, ApplyPatch: `"apply_patch_call","operation":`}[k]
	raw := `{"type":` + member + actionOf(k, arguments) + `}`
	it, err := Read(jsontext.Field{Result: gjson.Parse(raw)})
	if !json.Valid([]byte(raw)) || err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return &it
}

// TestActionArguments shows that arguments in the function's own form come back as
// they were: the prompt of the next turn begins with the tokens of this one.
func TestActionArguments(t *testing.T) {
	t.Parallel()
	for k, list := range map[Kind][]string{
		Shell:      {`{"commands":["ls -l","echo \"ä\""]}`, `{"commands":["ls"],"timeout_ms":1000,"max_output_length":5}`},
		LocalShell: {`{"command":["ls","-l"]}`, `{"command":["ls"],"working_directory":"/a","timeout_ms":5,"user":"me","env":{"A":"1"}}`},
		ApplyPatch: {`{"type":"update_file","path":"a","diff":"@@\n-x\n+y"}`, `{"type":"delete_file","path":"a"}`},
	} {
		for _, arguments := range list {
			if got := callOf(t, k, arguments).ActionArguments(); got != arguments {
				t.Errorf("%s came back as %s", arguments, got)
			}
		}
	}
}

// FuzzActions shows that every action is JSON with the members that clients need, and
// that it does not change when it is sent back.
func FuzzActions(f *testing.F) {
	for _, seed := range []string{`{"commands":[["a","-c",{}]],"timeout_ms":1e400}`, `{"command":"\ud800"}`, `{"operation":{"diff":"*** Add File: \n*** End Patch"}}`, "*** Update File: a\r\n", `[[[`, ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, arguments string) {
		for k, members := range map[Kind][]string{Shell: {"commands"}, LocalShell: {"type", "command", "env"}, ApplyPatch: {"type", "path"}} {
			action := actionOf(k, arguments)
			if !json.Valid([]byte(action)) {
				t.Fatalf("%q: %s", arguments, action)
			}
			for _, name := range members {
				if !gjson.Get(action, name).Exists() {
					t.Errorf("%q: %s has no %s", arguments, action, name)
				}
			}
			again := callOf(t, k, arguments).ActionArguments()
			if k != ApplyPatch && actionOf(k, again) != action {
				t.Errorf("%q: %s becomes %s", arguments, action, actionOf(k, again))
			}
		}
	})
}
