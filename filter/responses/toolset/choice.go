package toolset

import (
	"maps"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/fields"
)

// ReadParallelCalls reads whether the model may make several calls at once.
func (r *Reader) ReadParallelCalls(v jsontext.Field) *apierror.Error {
	parallel, err := v.Switch()
	r.input.OneCall = r.input.OneCall || !parallel
	r.echo.Parallel = parallel
	return err
}

const badChoice = "The field \"tool_choice\" must be \"auto\", \"none\", \"required\", or an object of the type " +
	"function, custom, mcp, shell, local_shell, apply_patch or allowed_tools: " +
	"a built-in tool can be demanded only where a server implements it."

// ReadChoice reads a word, {"type":"function","name":…}, the same for
// custom, or {"type":"allowed_tools","mode":…,"tools":[…]}.
func (r *Reader) ReadChoice(v jsontext.Field) *apierror.Error {
	if v.Type == gjson.String && r.input.SetChoice(v.Str) {
		r.echo.Choice = jsontext.AppendString(nil, v.Str)
		return nil
	}

	switch v.Get("type").Str {
	case "function", "custom":
		name, err := readToolName(v)
		// A tool that is chosen by its name is called once, as docs/compatibility.md says.
		r.input.Choice = turn.Choice{Required: true, Allowed: []turn.ToolName{name}}
		r.input.OneCall = true
		r.echo.Choice = appendToolName(nil, v.Get("type").Str, name)
		return err
	// Which tools the server has may not be known yet: Offer adds them to the empty list.
	case "mcp":
		r.input.Choice = turn.Choice{Required: true, Allowed: []turn.ToolName{}}
		var err *apierror.Error
		r.echo.Choice, err = r.addHostedChoice(nil, v)
		return err
	case "allowed_tools":
		return r.readAllowedTools(v)
	}

	if name, ok := clientToolName(v); ok {
		r.input.Choice = turn.Choice{Required: true, Allowed: []turn.ToolName{name}}
		r.input.OneCall = true
		r.echo.Choice = appendClientChoice(nil, name)
		return nil
	}

	r.input.Choice = turn.Choice{Required: true, Allowed: []turn.ToolName{}}
	var ok bool
	if r.echo.Choice, ok = r.addBuiltinChoice(nil, v); !ok {
		return apierror.Invalid(v.Path, badChoice)
	}

	return nil
}

func (r *Reader) readAllowedTools(v jsontext.Field) *apierror.Error {
	choice := turn.Choice{Allowed: []turn.ToolName{}}
	var tools []byte
	err := v.Fields(func(key string, v jsontext.Field) *apierror.Error {
		switch key {
		case "type":
		case "mode":
			if v.Str != "auto" && v.Str != "required" {
				return apierror.Invalid(v.Path, "The mode of \"allowed_tools\" must be auto or required.")
			}
			choice.Required = v.Str == "required"
		case "tools":
			return v.Elements(func(i int, v jsontext.Field) *apierror.Error {
				if i >= r.rc.Limits.Tools {
					return apierror.Invalid(v.Path, "More than %d allowed tools.", r.rc.Limits.Tools)
				}
				if i > 0 {
					tools = append(tools, ',')
				}
				var err *apierror.Error
				tools, err = r.readAllowedTool(tools, &choice, v)
				return err
			})
		default:
			return AllowedFields.Other(key, v, r.ignored)
		}

		return nil
	})
	if err == nil && len(tools) == 0 {
		return fields.NoneAllowed(v.Path + ".tools")
	}
	r.input.Choice = choice
	mode := "auto"
	if choice.Required {
		mode = "required"
	}

	r.echo.Choice = append(append([]byte(`{"type":"allowed_tools","mode":"`+mode+`","tools":[`), tools...), `]}`...)

	return err
}

// readAllowedTool reads a tool that may be called, and appends it as the response
// has it.
func (r *Reader) readAllowedTool(dst []byte, choice *turn.Choice, v jsontext.Field) ([]byte, *apierror.Error) {
	switch kind := v.Get("type").Str; kind {
	case "function", "custom":
		name, err := readToolName(v)
		choice.Allowed = append(choice.Allowed, name)
		return appendToolName(dst, kind, name), err
	case "mcp":
		return r.addHostedChoice(dst, v)
	}

	if name, ok := clientToolName(v); ok {
		choice.Allowed = append(choice.Allowed, name)
		return appendToolType(dst, name.Name), nil
	}

	dst, ok := r.addBuiltinChoice(dst, v)
	if !ok {
		return dst, apierror.Invalid(v.Path,
			"Only tools of the types function, custom and mcp can be allowed, and built-in tools that a server "+
				"implements here.")
	}

	return dst, nil
}

// addBuiltinChoice notes a built-in tool by its type, and appends it as the
// response has it; false if it has no server.
func (r *Reader) addBuiltinChoice(dst []byte, v jsontext.Field) ([]byte, bool) {
	kind := v.Get("type").Str
	name := builtinOf(kind)
	if !r.offer.Has(name) {
		return dst, false
	}
	r.choices = append(r.choices, hostedChoice{at: v.Path, builtin: name, label: hosted.NamespaceOf(name)})
	return appendToolType(dst, kind), true
}

// addHostedChoice notes {"type":"mcp","server_label":…,"name":…}, where name is
// optional, and appends it as the response has it.
func (r *Reader) addHostedChoice(dst []byte, v jsontext.Field) ([]byte, *apierror.Error) {
	c := hostedChoice{
		at:    v.Path,
		label: strings.Clone(v.Get("server_label").Str),
		name:  strings.Clone(v.Get("name").Str),
	}
	if c.label == "" {
		return dst, apierror.Invalid(v.Path+".server_label", "An MCP server has no server_label.")
	}
	r.choices = append(r.choices, c)
	dst = jsontext.AppendString(append(dst, `{"type":"mcp","server_label":`...), c.label)
	if c.name != "" {
		dst = jsontext.AppendString(append(dst, `,"name":`...), c.name)
	}
	return append(dst, '}'), nil
}

// readToolName reads {"name":…}, with the namespace of a tool in one.
func readToolName(v jsontext.Field) (turn.ToolName, *apierror.Error) {
	name, err := jsontext.Field{Result: v.Get("name"), Path: v.Path + ".name"}.Text()
	t := turn.ToolName{Namespace: turn.FunctionsNamespace, Name: strings.Clone(name)}
	if space := v.Get("namespace"); err == nil && space.Type != gjson.Null {
		t.Namespace, err = jsontext.Field{Result: space, Path: v.Path + ".namespace"}.Text()
		t.Namespace = strings.Clone(t.Namespace)
	}
	return t, err
}

func appendToolName(dst []byte, kind string, name turn.ToolName) []byte {
	dst = append(append(append(dst, `{"type":"`...), kind...), `","name":`...)
	dst = jsontext.AppendString(dst, name.Name)
	if name.Namespace != turn.FunctionsNamespace {
		dst = jsontext.AppendString(append(dst, `,"namespace":`...), name.Namespace)
	}
	return append(dst, '}')
}

// EnforceText has the input of custom tools, and the actions of tools that the client
// runs, written and read as text.
func (r *Reader) EnforceText() {
	names := slices.Collect(maps.Keys(r.custom))
	r.input.EnforceText(slices.AppendSeq(names, maps.Keys(r.actions)))
}
