package toolset

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/messages/names"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// clientTool is a version of a tool that the client runs, and whose parameters Anthropic
// has published: a request has nothing but its type. The model sees it as a function.
type clientTool struct {
	// since is the date of the first type with these parameters.
	since       string
	name        string
	description string
	parameters  string
}

// clientTools are the versions of these tools by what their types begin with, the newest
// first. A type that is newer than all of them has the newest parameters.
var clientTools = map[string][]clientTool{
	"bash": {{
		name: "bash",
		description: "Runs a command in a shell of the user's computer, and returns what it prints. The shell stays " +
			"between calls.",
		parameters: `{"type":"object","properties":{"command":{"type":"string","description":"The command to run. ` +
			`Required unless the shell is restarted."},"restart":{"type":"boolean","description":"Start a new ` +
			`shell, and run no command."}}}`,
	}},

	"text_editor": {
		{
			since: "20250429", name: "str_replace_based_edit_tool", description: editorDescription,
			parameters: editorParameters("", `"insert_text":{"type":"string","description":"Of insert: the text."},`+
				`"new_str":{"type":"string","description":"Of str_replace: the new text; empty if left out."}`),
		},
		{
			name: "str_replace_editor", description: editorDescription,
			parameters: editorParameters(`,"undo_edit"`, `"new_str":{"type":"string","description":"Of str_replace: `+
				`the new text; empty if left out. Of insert: the text."}`),
		},
	},

	"memory": {{
		name: "memory",
		description: "Keeps notes in files below /memories, which stay between conversations. Look into the " +
			"directory before a task, and note what later conversations need.",
		parameters: `{"type":"object","properties":{` +
			`"command":{"type":"string","enum":["view","create","str_replace","insert","delete","rename"]},` +
			`"path":{"type":"string","description":"A file or directory, such as /memories/notes.txt. Of all ` +
			`commands but rename."},` +
			`"view_range":{"type":"array","items":{"type":"integer"},"description":"Of view: the first and the last ` +
			`line."},` +
			`"file_text":{"type":"string","description":"Of create: the text of the file."},` +
			`"old_str":{"type":"string","description":"Of str_replace: the text that is replaced, which the file has ` +
			`once."},` +
			`"new_str":{"type":"string","description":"Of str_replace: the new text."},` +
			`"insert_line":{"type":"integer","description":"Of insert: the line after which the text comes; 0: ` +
			`before the first."},` +
			`"insert_text":{"type":"string","description":"Of insert: the text."},` +
			`"old_path":{"type":"string","description":"Of rename: the path so far."},` +
			`"new_path":{"type":"string","description":"Of rename: the new path."}},"required":["command"]}`,
	}},

	"computer": {
		{
			since: "20251124", name: "computer", description: computerDescription,
			parameters: computerParameters(firstActions+laterActions+zoomAction, laterParameters+zoomParameter),
		},
		{
			since: "20250124", name: "computer", description: computerDescription,
			parameters: computerParameters(firstActions+laterActions, laterParameters),
		},
		{name: "computer", description: computerDescription, parameters: computerParameters(firstActions, "")},
	},
}

const editorDescription = "Shows, creates and edits text files of the user's computer. The text that str_replace " +
	"replaces must be in the file exactly once, with all its white space."

// editorParameters returns the parameters of an editor of files: with more commands, and with
// the members that have the new text.
func editorParameters(commands, texts string) string {
	return `{"type":"object","properties":{` +
		`"command":{"type":"string","enum":["view","create","str_replace","insert"` + commands + `]},` +
		`"path":{"type":"string","description":"The absolute path of a file, or of a directory to view."},` +
		`"view_range":{"type":"array","items":{"type":"integer"},"description":"Of view: the first and the last ` +
		`line, from 1; -1 is the end of the file."},` +
		`"file_text":{"type":"string","description":"Of create: the text of the file."},` +
		`"old_str":{"type":"string","description":"Of str_replace: the text that is replaced."},` +
		`"insert_line":{"type":"integer","description":"Of insert: the line after which the text comes; 0: before ` +
		`the first."},` + texts + `},"required":["command","path"]}`
}

const computerDescription = "Uses the screen, the mouse and the keyboard of the user's computer. Coordinates are in " +
	"pixels from the upper left corner."

// The actions of the computer, and the parameters that came with the later ones.
const (
	firstActions = `"key","type","mouse_move","left_click","left_click_drag","right_click","middle_click",` +
		`"double_click","screenshot","cursor_position"`
	laterActions = `,"hold_key","left_mouse_down","left_mouse_up","triple_click","scroll","wait"`
	zoomAction   = `,"zoom"`

	laterParameters = `,"start_coordinate":{"type":"array","items":{"type":"integer"},"description":"Of ` +
		`left_click_drag: where the drag begins."},` +
		`"scroll_direction":{"type":"string","enum":["up","down","left","right"]},` +
		`"scroll_amount":{"type":"integer","description":"Of scroll: how many clicks of the wheel."},` +
		`"duration":{"type":"number","description":"Of hold_key and wait: seconds."}`
	zoomParameter = `,"region":{"type":"array","items":{"type":"integer"},"description":"Of zoom: x and y of the ` +
		`upper left corner, then of the lower right one."}`
)

// computerParameters returns the parameters of a computer with these actions.
func computerParameters(actions, more string) string {
	return `{"type":"object","properties":{"action":{"type":"string","enum":[` + actions + `]},` +
		`"coordinate":{"type":"array","items":{"type":"integer"},"description":"x and y of an action of the mouse."},` +
		`"text":{"type":"string","description":"Of type: the text. Of key and hold_key: the key, or several as in ` +
		`ctrl+s. Of clicks and scroll: a key that is held."}` + more + `},"required":["action"]}`
}

// findClientTool returns the tool of a type such as bash_20250124; nil if it is none that
// the client runs.
func findClientTool(kind string) *clientTool {
	at := strings.LastIndexByte(kind, '_')
	if at < 0 || !names.IsDate(kind[at+1:]) {
		return nil
	}

	versions := clientTools[kind[:at]]
	for i := range versions {
		// Dates of this form are in the order of their texts.
		if kind[at+1:] >= versions[i].since {
			return &versions[i]
		}
	}
	return nil
}

// define completes a tool with what is published. What the request says itself stays.
func (c *clientTool) define(t *harmony.Tool, v jsontext.Field) {
	if t.Name == "" {
		t.Name = c.name
	}
	if t.Description == "" {
		t.Description = c.description + describeSettings(v)
	}
	if t.Parameters == nil {
		parameters := c.parameters
		// The newest computer can zoom only if the request says so.
		if !v.Get("enable_zoom").Bool() {
			parameters = strings.Replace(strings.Replace(parameters, zoomAction, "", 1), zoomParameter, "", 1)
		}
		t.Parameters = json.RawMessage(parameters)
	}
}

// describeSettings tells the model what a request says of its screen or its editor.
func describeSettings(v jsontext.Field) string {
	var text strings.Builder
	width, height := v.Get("display_width_px").Int(), v.Get("display_height_px").Int()
	if width > 0 && height > 0 {
		fmt.Fprintf(&text, " The screen has %d x %d pixels.", width, height)
	}
	if display := v.Get("display_number"); display.Exists() && display.Raw != "null" {
		text.WriteString(" Its X11 display is :" + strconv.FormatInt(display.Int(), 10) + ".")
	}
	if most := v.Get("max_characters").Int(); most > 0 {
		fmt.Fprintf(&text, " A view has at most %d characters.", most)
	}
	return text.String()
}
