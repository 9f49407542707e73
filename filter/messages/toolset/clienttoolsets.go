package toolset

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/messages/names"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// A client toolset is an entry of tools that stands for many tools of the client, which are
// published as those of clientTools are. The model sees them as a namespace. Calls are tool_use
// blocks with the name of the member and of its toolset.

// clientToolsets are these toolsets by what their types begin with, before _toolset_ and a
// date. The type of a member's parameter is a key of parameterTypes; a ? says that it may be
// left out.
var clientToolsets = map[string]struct{ description, members string }{
	"computer": {computerDescription, `
key|Presses a key, or several together, such as ctrl+s.|text string, repeat? integer
hold_key|Holds a key, or several together, for some seconds.|text string, duration integer
type|Types a text.|text string
cursor_position|Returns where the cursor is.|
mouse_move|Moves the cursor without a click.|coordinate integers
left_mouse_down|Presses the left button of the mouse where the cursor is, and holds it.|
left_mouse_up|Releases the left button of the mouse.|
left_click|Clicks, at a coordinate if there is one. text is a key that is held.|coordinate? integers, text? string
left_click_drag|Drags from one coordinate to another.|start_coordinate integers, coordinate integers, text? string
right_click|Clicks with the right button.|coordinate? integers, text? string
middle_click|Clicks with the middle button.|coordinate? integers, text? string
double_click|Clicks twice.|coordinate? integers, text? string
triple_click|Clicks three times.|coordinate? integers, text? string
scroll|Turns the wheel.|scroll_direction direction, scroll_amount integer, coordinate? integers, text? string
wait|Waits for some seconds.|duration integer
screenshot|Shows the screen.|
zoom|Shows a part of the screen, by x and y of its upper left and its lower right corner.|region integers`},

	"browser": {"Uses the user's browser. Coordinates are in pixels of the viewport; a ref is of an element that " +
		"read_page or find has returned. Without tab_id the active tab is meant.", `
navigate|Goes to a URL, or back, forward or reload.|url string, tab_id? string
list_tabs|Lists the open tabs, with their tab_id, title and URL.|
new_tab|Opens an empty tab, and returns its tab_id.|
switch_tab|Makes a tab the active one.|tab_id string
close_tab|Closes a tab.|tab_id string
read_page|Returns the elements of a page, or below a ref.|depth? integer, filter? filter, ref? string, tab_id? string
get_page_text|Returns the text of the page.|tab_id? string
read_console|Returns what the page has written to its console since the last read.|tab_id? string
read_network|Returns the page's network requests since the last read.|tab_id? string
find|Finds elements by a description.|query string, tab_id? string
form_input|Sets the value of an element of a form.|target element, value value, tab_id? string
file_upload|Sets an element's files.|target element, paths? strings, document_ids? strings, tab_id? string
scroll_to|Scrolls until an element is in view.|target element, tab_id? string
screenshot|Shows the viewport.|tab_id? string
zoom|Shows a part of the viewport, by x and y of two corners.|region integers, tab_id? string
left_click|Clicks. modifiers are keys that are held.|target target, modifiers? string, tab_id? string
right_click|Clicks with the right button.|target target, modifiers? string, tab_id? string
middle_click|Clicks with the middle button.|target target, modifiers? string, tab_id? string
double_click|Clicks twice.|target target, modifiers? string, tab_id? string
triple_click|Clicks three times, which selects a line or a paragraph.|target target, modifiers? string, tab_id? string
hover|Moves the cursor without a click.|target target, tab_id? string
left_click_drag|Drags from one coordinate to another.|from point, target point, tab_id? string
left_mouse_down|Presses the left button of the mouse, and holds it.|target point, tab_id? string
left_mouse_up|Releases the left button of the mouse.|target point, tab_id? string
mouse_move|Moves the cursor to a coordinate.|target point, tab_id? string
scroll|Turns the wheel.|target point, scroll_direction direction, scroll_amount? integer, tab_id? string
type|Types a text where the cursor is.|text string, tab_id? string
key|Presses a key, several together (ctrl+a), or several in turn.|text string, repeat? integer, tab_id? string
hold_key|Holds a key, or several together, for up to 30 seconds.|text string, duration number, tab_id? string
wait|Waits for up to 30 seconds.|duration number, tab_id? string
javascript_exec|Runs JavaScript in the page, and returns its last value.|text string, tab_id? string`},
}

const (
	pointType = `{"type":"object","properties":{"type":{"type":"string","enum":["coordinate"]},` +
		`"x":{"type":"integer"},"y":{"type":"integer"}},"required":["type","x","y"]}`
	elementType = `{"type":"object","properties":{"type":{"type":"string","enum":["ref"]},` +
		`"ref":{"type":"string"}},"required":["type","ref"]}`
)

// parameterTypes are the schemas of the parameters of members.
var parameterTypes = map[string]string{
	"string":    `{"type":"string"}`,
	"strings":   `{"type":"array","items":{"type":"string"}}`,
	"integer":   `{"type":"integer"}`,
	"integers":  `{"type":"array","items":{"type":"integer"}}`,
	"number":    `{"type":"number"}`,
	"direction": `{"type":"string","enum":["up","down","left","right"]}`,
	"filter":    `{"type":"string","enum":["all","interactive"]}`,
	"value":     `{"anyOf":[{"type":"string"},{"type":"number"},{"type":"boolean"}]}`,
	"point":     pointType,
	"element":   elementType,
	"target":    `{"anyOf":[` + pointType + `,` + elementType + `]}`,
}

// toolsetTools are the tools of the toolsets, which are made of the table once they are needed.
var toolsetTools = sync.OnceValue(func() map[string][]harmony.Tool {
	tools := map[string][]harmony.Tool{}
	for family, set := range clientToolsets {
		for line := range strings.SplitSeq(strings.TrimSpace(set.members), "\n") {
			parts := strings.Split(line, "|")
			tools[family] = append(tools[family], harmony.Tool{
				Name: parts[0], Description: parts[1], Parameters: memberParameters(parts[2]),
			})
		}
	}
	return tools
})

// memberParameters returns the schema of parameters such as "url string, tab_id? string".
func memberParameters(list string) json.RawMessage {
	var properties, required []string
	for parameter := range strings.SplitSeq(list, ", ") {
		name, kind, ok := strings.Cut(parameter, " ")
		if !ok {
			continue
		}
		name, optional := strings.CutSuffix(name, "?")
		properties = append(properties, `"`+name+`":`+parameterTypes[kind])
		if !optional {
			required = append(required, `"`+name+`"`)
		}
	}

	schema := `{"type":"object","properties":{` + strings.Join(properties, ",") + `}`
	if required != nil {
		schema += `,"required":[` + strings.Join(required, ",") + `]`
	}
	return json.RawMessage(schema + "}")
}

// toolsetOf returns the toolset of a tool's type, such as computer of computer_toolset_20260801;
// "" if it is none.
func toolsetOf(kind string) string {
	family, date, ok := strings.Cut(kind, "_toolset_")
	if _, known := clientToolsets[family]; ok && known && names.IsDate(date) {
		return family
	}
	return ""
}

// readClientToolset reads {"type":…,"configs":{member:{"enabled":…}}}. All members are enabled
// unless a config says otherwise.
func (r *Reader) readClientToolset(family string, at jsontext.Field) *apierror.Error {
	for i := range r.toolsets {
		if r.toolsets[i].Name == family {
			return apierror.Invalid(at.Path, "The toolset %q is twice among the tools. Send it once.", family)
		}
	}

	off := map[string]bool{}
	err := at.Fields(func(key string, v jsontext.Field) *apierror.Error {
		switch key {
		case "type", "cache_control":
		case "configs":
			return readMembers(family, v, off, r.ignored)
		default:
			r.ignored.Add(v.Path)
		}
		return nil
	})

	space := harmony.Namespace{Name: family, Description: clientToolsets[family].description}
	for _, t := range toolsetTools()[family] {
		if !off[t.Name] {
			space.Tools = append(space.Tools, t)
		}
	}
	r.toolsets = append(r.toolsets, space)
	return err
}

// members returns the members of toolsets that have a name: two toolsets can have it.
func members(toolsets []harmony.Namespace, name string) (found []turn.ToolName) {
	for i := range toolsets {
		space := &toolsets[i]
		if slices.ContainsFunc(space.Tools, func(t harmony.Tool) bool { return t.Name == name }) {
			found = append(found, turn.ToolName{Namespace: space.Name, Name: name})
		}
	}
	return found
}

// readMembers reads which members of a toolset are off.
func readMembers(
	family string, configs jsontext.Field, off map[string]bool, ignored *jsontext.Ignored,
) *apierror.Error {
	known := map[string]bool{}
	for _, t := range toolsetTools()[family] {
		known[t.Name] = true
	}

	return configs.Entries(func(name string, v jsontext.Field) *apierror.Error {
		if !known[name] {
			return apierror.Invalid(v.Path, "A config is of a member that the toolset %q does not have.", family)
		}
		enabled := true
		err := readToolConfig(v, ignored, &enabled, nil)
		off[strings.Clone(name)] = !enabled
		return err
	})
}
