package toolset

import (
	"encoding/json"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/fields"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Reader reads the tools of a request and tool_choice.
//
// It is large because every kind of tool is read into the same lists, and has its method here:
// functions, custom tools, the client's own, MCP servers, built-in tools and the search.
type Reader struct {
	rc *turn.RequestContext

	// Where what is read goes. echo is nil where the response repeats nothing of the tools.
	input   *turn.Input
	echo    *Echo
	ignored *jsontext.Ignored

	// Servers and built-in tools, the search, and what it finds. Servers of earlier items come first,
	// and others is the index of the first of the rest.
	offer  hosted.Offer
	others int
	// choices are those of tool_choice, until the servers' tools are known.
	choices []hostedChoice
	// container is the session of built-in tools that the request names.
	container string

	// What calls of the client's tools become: custom tools take text, actions are the items
	// of clientTools, and named are functions of a namespace that the client calls functions.
	custom  map[turn.ToolName]bool
	actions map[turn.ToolName]item.Kind
	named   map[string]bool
	// grammars is the cost of the input's Grammars.
	grammars int

	// found says that a search has found the tools: none of them is deferred. earlier says
	// that they are of an earlier request: servers and built-in tools have no effect.
	found   bool
	earlier bool
}

// ReadTools reads the tools. Functions and custom tools are in the plain namespace,
// in order; each namespace of the request is one of its own, except one of the name
// functions.
func (r *Reader) ReadTools(v jsontext.Field) *apierror.Error {
	functions := harmony.Namespace{Name: turn.FunctionsNamespace}
	var spaces []harmony.Namespace
	err := v.Elements(func(i int, v jsontext.Field) *apierror.Error {
		if i >= r.rc.Limits.Tools {
			return apierror.Invalid("tools", "More than %d tools.", r.rc.Limits.Tools)
		}

		var err *apierror.Error
		if v.Get("type").Str == "namespace" {
			var space harmony.Namespace
			space, err = r.readNamespace(v)
			spaces = append(spaces, space)
		} else {
			err = r.readTool(v, &functions)
		}

		// Items of the input have tools that no response repeats: there is no echo then.
		if err == nil && r.echo != nil {
			r.echo.repeat(v.Result)
		}

		return err
	})
	r.input.Tools = r.offerSearch(append([]harmony.Namespace{functions}, spaces...))

	return err
}

// readTool reads a tool into a namespace.
func (r *Reader) readTool(v jsontext.Field, space *harmony.Namespace) *apierror.Error {
	kind := v.Get("type").Str
	switch kind {
	case "function", "custom":
	case "":
		return apierror.Invalid(v.Path+".type", "A tool has no type.")
	case SearchName:
		return r.readSearch(v)
	case "shell", "local_shell", "apply_patch":
		return r.readClientTool(kind, v, space)
	default:
		return r.readHosted(kind, v)
	}

	t := tool{kind: kind}
	if err := r.readDefinition(v, &t); err != nil {
		return err
	}
	// Programs that call tools do not exist here, so that nobody could call it.
	if !calledDirectly(v) {
		r.ignored.Add(v.Path + ".allowed_callers")
		return nil
	}

	if t.strict.Matters(r.rc) {
		name := turn.ToolName{Namespace: strings.Clone(space.Name), Name: strings.Clone(t.Name)}
		r.input.SetStrict(name, t.strict)
	}

	// A grammar that is too expensive for the engine has been dropped from the format.
	if t.format.Grammar != "" {
		r.input.EnforceGrammar(turn.ToolName{
			Namespace: strings.Clone(space.Name),
			Name:      strings.Clone(t.Name),
		}, t.format.Grammar)
	}

	if t.kind == "custom" {
		t.Description += t.format.Shown
		t.Parameters = json.RawMessage(fields.CustomParameters)
		r.custom[turn.ToolName{Namespace: strings.Clone(space.Name), Name: strings.Clone(t.Name)}] = true
	}

	// Its definition is kept as it was sent: the output of a search repeats it.
	if t.deferred && !r.found {
		r.deferTool(space, &t.Tool, v.Raw)
		return nil
	}

	space.Tools = append(space.Tools, t.Tool)

	return nil
}

// readHosted reads a tool that is called here: one of an MCP server, or a built-in
// one.
func (r *Reader) readHosted(kind string, v jsontext.Field) *apierror.Error {
	switch {
	case r.earlier:
		return nil
	case kind == "mcp":
		return r.readServer(v)
	}
	return r.readBuiltin(kind, v)
}

// tool is a tool as the request defines it.
type tool struct {
	harmony.Tool
	kind     string
	strict   turn.Strictness
	deferred bool // it is not offered before a search finds it

	format fields.CustomFormat // of a custom tool
}

func (r *Reader) readDefinition(at jsontext.Field, t *tool) *apierror.Error {
	// Of a custom tool.
	var format jsontext.Field
	err := at.Fields(func(key string, v jsontext.Field) (err *apierror.Error) {
		switch {
		case key == "type", key == "allowed_callers":
		case key == "name":
			t.Name, err = v.Text()
		case key == "description":
			t.Description, err = v.Text()
		case key == "parameters" && t.kind == "function":
			if !v.IsObject() {
				return apierror.Invalid(v.Path, "A tool's parameters must be a JSON Schema object.")
			}
			t.Parameters = json.RawMessage(v.Raw)
		case key == "strict" && t.kind == "function":
			var on bool
			on, err = v.Switch()
			t.strict = turn.Said(on)
		case key == "defer_loading":
			t.deferred, err = v.Switch()
		case key == "format" && t.kind == "custom":
			format = v
		case t.kind == "custom":
			err = CustomFields.Other(key, v, r.ignored)
		default:
			err = FunctionFields.Other(key, v, r.ignored)
		}

		return err
	})
	if err == nil && t.Name == "" {
		err = apierror.Invalid(at.Path+".name", "A tool has no name.")
	}

	if err == nil && format.Exists() {
		err = r.readFormat(format, t)
	}

	return err
}

func (r *Reader) readNamespace(at jsontext.Field) (space harmony.Namespace, err *apierror.Error) {
	err = at.Fields(func(key string, v jsontext.Field) (err *apierror.Error) {
		switch key {
		case "type", "tools":
		case "name":
			space.Name, err = v.Text()
		case "description":
			space.Description, err = v.Text()
		default:
			err = SpaceFields.Other(key, v, r.ignored)
		}
		return err
	})
	switch {
	case err != nil:
		return space, err
	case space.Name == "":
		return space, apierror.Invalid(at.Path+".name", "A namespace has no name.")
	}

	// Deferred tools outlive the body. Each with a copy of its own, a long description and many
	// tools would be much memory.
	space.Name, space.Description = strings.Clone(space.Name), strings.Clone(space.Description)

	tools := jsontext.Field{Result: at.Get("tools"), Path: at.Path + ".tools"}
	err = tools.Elements(func(i int, v jsontext.Field) *apierror.Error {
		if i >= r.rc.Limits.Tools {
			return apierror.Invalid(tools.Path, "The namespace has more than %d tools.", r.rc.Limits.Tools)
		}
		// Its functions are plain ones to the model; their calls name the namespace, as the client does.
		if space.Name == turn.FunctionsNamespace {
			r.named[strings.Clone(v.Get("name").Str)] = true
		}
		return r.readTool(v, &space)
	})

	return space, err
}
