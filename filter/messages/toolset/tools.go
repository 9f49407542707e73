package messages

import (
	"encoding/json"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

func (d *decoder) readTools(v jsontext.Field) *apierror.Error {
	return v.Elements(func(i int, v jsontext.Field) *apierror.Error {
		if i >= d.rc.Limits.Tools {
			return apierror.Invalid("tools", "The request has more than %d tools.", d.rc.Limits.Tools)
		}
		// In this API custom is the type of the client's functions, which older clients leave out.
		kind := v.Get("type").Str
		published := findClientTool(kind)
		if kind == "" || kind == "custom" || published != nil {
			return d.readTool(v, published)
		}
		return d.readServerTool(kind, v)
	})
}

// readTool reads a tool of the client. published is its definition, if the type says it; nil:
// the request has all of it.
func (d *decoder) readTool(v jsontext.Field, published *clientTool) *apierror.Error {
	t, err := d.parseTool(v, published)
	switch {
	case err != nil:
		return err
	case t.deferred:
		d.deferTool(t.Tool, t.strict)
		return nil
	}

	d.tools = append(d.tools, t.Tool)
	if t.strict {
		d.input.Strict[toolName(t.Name)] = true
	}
	return nil
}

// definedTool is a tool of the client, as a request defines it.
type definedTool struct {
	harmony.Tool

	strict   bool
	deferred bool
}

// parseTool reads the definition of a tool of the client.
func (d *decoder) parseTool(v jsontext.Field, published *clientTool) (t definedTool, err *apierror.Error) {
	var examples jsontext.Field

	err = v.Fields(func(key string, v jsontext.Field) (err *apierror.Error) {
		switch key {
		case "name":
			t.Name, err = v.Text()
		case "description":
			t.Description, err = v.Text()
		case "input_schema":
			if !v.IsObject() {
				return apierror.Invalid(v.Path, "A tool's input_schema must be a JSON Schema object.")
			}
			t.Parameters = json.RawMessage(v.Raw)
		case "strict":
			t.strict, err = v.Switch()
		case "defer_loading":
			t.deferred, err = v.Switch()
		case "input_examples":
			examples = v
		// Input is always streamed as it is written.
		case "type", "cache_control", "eager_input_streaming":
		// Of a tool whose definition is published, define reads these.
		case "display_width_px", "display_height_px", "display_number", "enable_zoom", "max_characters":
		default:
			err = toolFields.Other(key, v, &d.ignored)
		}
		return err
	})

	if published != nil && err == nil {
		published.define(&t.Tool, v)
	}
	switch {
	case err != nil:
		return t, err
	case t.Name == "":
		return t, apierror.Invalid(v.Path+".name", "A tool has no name. Give every tool one.")
	}

	// Harmony has no place for examples: the model reads them in the description.
	if examples.Exists() {
		t.Description, err = withExamples(t.Description, examples)
	}
	return t, err
}

// deferTool notes a tool that is offered once the conversation refers to it.
func (d *decoder) deferTool(t harmony.Tool, strict bool) {
	if d.deferred == nil {
		d.deferred, d.strict = map[string]harmony.Tool{}, map[string]bool{}
	}

	d.strict[t.Name] = strict
	// A reference names the tool alone, so that two of one name could not be told apart.
	if _, twice := d.deferred[t.Name]; twice {
		d.twice = append(d.twice, t.Name)
	} else {
		d.deferredNames = append(d.deferredNames, t.Name)
	}
	d.deferred[t.Name] = t
}

// withExamples returns a description with examples of a tool's input.
func withExamples(description string, examples jsontext.Field) (string, *apierror.Error) {
	text := []byte(description)
	err := examples.Elements(func(i int, v jsontext.Field) *apierror.Error {
		if i == 0 {
			if len(text) > 0 {
				text = append(text, "\n\n"...)
			}
			text = append(text, "Examples of the input:"...)
		}
		text = jsontext.AppendShown(append(text, '\n'), v.Raw)
		return nil
	})
	return string(text), err
}

// joining are the tools that an item of the conversation refers to, by name, or the changes
// of tools that it makes.
type joining struct {
	tools   *turn.JoinedTools // of the item
	names   []string
	changes []toolChange

	// Of the outcome of a search: the tools that it names, and where its result is.
	found []string
	path  string
}

// join adds an item with the tools of these names, which join the conversation there.
// They stand where they were found, and not among the others, so that the prompt of
// the request before is a prefix of this one.
func (m *message) join(names []string) turn.Item {
	j := &joining{tools: &turn.JoinedTools{}, names: names}
	m.d.joining = append(m.d.joining, j)
	return turn.Item{Kind: turn.Tools, Tools: j.tools, Path: m.at.Path}
}

// offerTools offers the tools that are not deferred, and gives the items that refer
// to deferred ones their tools. The tools of servers are listed.
func (d *decoder) offerTools() *apierror.Error {
	if d.twice != nil {
		return apierror.Invalid("tools", "%s Give every tool a name of its own.",
			apierror.One(d.twice, "Two tools have the name %s.", "Two tools have each of the names %s."))
	}

	d.deferServed()
	d.offerSearches()
	if len(d.tools) > 0 {
		d.input.Tools = []harmony.Namespace{{Name: turn.FunctionsNamespace, Tools: d.tools}}
	}
	d.input.Tools = append(d.input.Tools, d.toolsets...)
	if err := d.joinTools(); err != nil {
		return err
	}

	d.offerServed()
	// It takes back what the tools demand, for the request of the summary alone.
	d.askForSummary()
	return d.choose()
}

// joinTools gives the items that refer to tools, or change them, what they bring. Members come
// in any order: which of the names are deferred tools shows only now.
func (d *decoder) joinTools() *apierror.Error {
	if len(d.joining) == 0 {
		return nil
	}

	available := d.newAvailability()
	items := make([]turn.Item, 0, len(d.input.Items)+len(d.joining))
	next := 0
	for _, item := range d.input.Items {
		if item.Kind != turn.Tools {
			items = append(items, item)
			continue
		}

		// The items of the kind have their joinings in the same order.
		j := d.joining[next]
		next++
		// The tools of servers are known only here. A compaction keeps no result.
		if last := len(items) - 1; j.path != "" && last >= 0 && items[last].Path == j.path {
			items[last].Text = foundText(available.foundNames(j.found))
		}
		told, err := available.apply(j)
		if err != nil {
			return err
		}
		// References to tools that are offered from the beginning, or that do not exist, add nothing.
		if len(j.tools.Namespaces) > 0 {
			items = append(items, item)
		}
		if told != "" {
			items = append(items, turn.Item{Kind: turn.Instructions, Text: told, Path: item.Path})
		}
	}

	d.input.Items, d.input.Withdrawn = items, available.withdrawn
	if d.compaction.asked {
		d.toolChanges = available.changes()
	}
	return nil
}

func toolName(name string) turn.ToolName {
	return turn.ToolName{Namespace: turn.FunctionsNamespace, Name: strings.Clone(name)}
}

// readToolChoice reads {"type":…,"name":…,"disable_parallel_tool_use":…}.
func (d *decoder) readToolChoice(v jsontext.Field) *apierror.Error {
	kind, name := "", ""
	err := v.Fields(func(key string, v jsontext.Field) (err *apierror.Error) {
		switch key {
		case "type":
			kind, err = v.Text()
		case "name":
			name, err = v.Text()
		case "disable_parallel_tool_use":
			var one bool
			one, err = v.Switch()
			// parallel_tool_calls of the other APIs may have said it already.
			d.input.OneCall = d.input.OneCall || one
		default:
			err = choiceFields.Other(key, v, &d.ignored)
		}
		return err
	})
	if err != nil {
		return err
	}

	switch kind {
	case "auto":
	case "none":
		d.input.NoCalls = true
	case "any":
		d.input.Choice.Required = true
	case "tool":
		if name == "" {
			return apierror.Invalid(v.Path+".name", "A tool_choice of the type tool has no name. Name the tool.")
		}
		// Whose tool the name is, is known only with the tools of servers: choose settles it.
		d.input.Choice.Required, d.chosen = true, strings.Clone(name)
		d.input.OneCall = true
	default:
		return apierror.Invalid(v.Path+".type", "The type of \"tool_choice\" must be auto, any, tool or none.")
	}
	return nil
}
