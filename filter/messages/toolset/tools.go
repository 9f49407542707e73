package toolset

import (
	"encoding/json"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// ReadTools reads the tools.
func (r *Reader) ReadTools(v jsontext.Field) *apierror.Error {
	return v.Elements(func(i int, v jsontext.Field) *apierror.Error {
		if i >= r.rc.Limits.Tools {
			return apierror.Invalid("tools", "The request has more than %d tools.", r.rc.Limits.Tools)
		}
		// In this API custom is the type of the client's functions, which older clients leave out.
		kind := v.Get("type").Str
		published := findClientTool(kind)
		if kind == "" || kind == "custom" || published != nil {
			return r.readTool(v, published)
		}
		return r.readServerTool(kind, v)
	})
}

// readTool reads a tool of the client. published is its definition, if the type says it; nil:
// the request has all of it.
func (r *Reader) readTool(v jsontext.Field, published *clientTool) *apierror.Error {
	t, err := r.parseTool(v, published)
	switch {
	case err != nil:
		return err
	case t.deferred:
		r.deferTool(t.Tool, t.strict)
		return nil
	}

	r.tools = append(r.tools, t.Tool)
	if t.strict.Matters(r.rc) {
		r.input.SetStrict(toolName(t.Name), t.strict)
	}
	return nil
}

// definedTool is a tool of the client, as a request defines it.
type definedTool struct {
	harmony.Tool

	strict   turn.Strictness
	deferred bool
}

// parseTool reads the definition of a tool of the client.
func (r *Reader) parseTool(v jsontext.Field, published *clientTool) (t definedTool, err *apierror.Error) {
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
			var on bool
			on, err = v.Switch()
			t.strict = turn.Said(on)
		case "defer_loading":
			t.deferred, err = v.Switch()
		case "input_examples":
			examples = v
		// Input is always streamed as it is written.
		case "type", "cache_control", "eager_input_streaming":
		// Of a tool whose definition is published, define reads these.
		case "display_width_px", "display_height_px", "display_number", "enable_zoom", "max_characters":
		default:
			err = ToolFields.Other(key, v, r.ignored)
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
func (r *Reader) deferTool(t harmony.Tool, strict turn.Strictness) {
	if r.strict == nil {
		r.strict = map[string]turn.Strictness{}
	}

	// A reference names the tool alone, so that two of one name could not be told apart.
	if _, twice := r.strict[t.Name]; twice {
		r.twice = append(r.twice, t.Name)
	} else {
		own := hosted.Deferred{Namespace: turn.FunctionsNamespace, Tool: t, Shown: t.Name}
		r.offer.Deferred = append(r.offer.Deferred, own)
	}
	r.strict[t.Name] = strict
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

// Offer offers the tools that are not deferred, and gives the items that refer
// to deferred ones their tools. The tools of servers are listed. It may be called once.
func (r *Reader) Offer() *apierror.Error {
	if r.twice != nil {
		return apierror.Invalid("tools", "%s Give every tool a name of its own.",
			apierror.One(r.twice, "Two tools have the name %s.", "Two tools have each of the names %s."))
	}

	served, err := r.offer.Tools()
	if err != nil {
		return err
	}
	r.offerSearches()
	if len(r.tools) > 0 {
		r.input.Tools = []harmony.Namespace{{Name: turn.FunctionsNamespace, Tools: r.tools}}
	}
	r.input.Tools = append(r.input.Tools, r.toolsets...)
	if err := r.joinTools(); err != nil {
		return err
	}

	r.renameCalls()
	r.input.Tools = append(r.input.Tools, served.Tools...)
	r.input.Builtins = append(r.input.Builtins, served.Builtins...)
	// A summary calls no tool.
	if r.compacts {
		return nil
	}
	return r.choose()
}

func toolName(name string) turn.ToolName {
	return turn.ToolName{Namespace: turn.FunctionsNamespace, Name: strings.Clone(name)}
}

// ReadChoice reads {"type":…,"name":…,"disable_parallel_tool_use":…}.
func (r *Reader) ReadChoice(v jsontext.Field) *apierror.Error {
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
			r.input.OneCall = r.input.OneCall || one
		default:
			err = ChoiceFields.Other(key, v, r.ignored)
		}
		return err
	})
	if err != nil {
		return err
	}

	switch kind {
	case "auto":
	case "none":
		r.input.NoCalls = true
	case "any":
		r.input.Choice.Required = true
	case "tool":
		if name == "" {
			return apierror.Invalid(v.Path+".name", "A tool_choice of the type tool has no name. Name the tool.")
		}
		// Whose tool the name is, is known only with the tools of servers: choose settles it.
		r.input.Choice.Required, r.chosen = true, strings.Clone(name)
		r.input.OneCall = true
	default:
		return apierror.Invalid(v.Path+".type", "The type of \"tool_choice\" must be auto, any, tool or none.")
	}
	return nil
}
