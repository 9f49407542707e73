package toolset

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
	"github.com/envoy-harmony/envoy-harmony/filter/work"
)

// maxStrictSchemas bounds the schemas that an engine has to compile into a
// grammar, in bytes.
const maxStrictSchemas = 512 << 10

// Narrow returns the choice of a request. If a call is required and the client
// has tools of its own, only these count: a call of a built-in tool is not the
// call that such a client waits for.
func (s *Set) Narrow(choice request.Choice) request.Choice {
	if !choice.Required || choice.Allowed != nil || len(s.Namespaces) == 0 && s.joined == nil || len(s.Builtins) == 0 {
		return choice
	}
	for _, t := range s.byRecipient {
		if !t.Builtin && !s.withdrawn[t] {
			choice.Allowed = append(choice.Allowed, t)
		}
	}
	return choice
}

// NewSpec returns the spec of a request's output; the zero value allows any
// output.
func NewSpec(
	rc *request.Context, in *request.Input, choice request.Choice, tools *Set,
) (constraint.Spec, *apierror.Error) {
	spec := constraint.Spec{Required: choice.Required, Parallel: !in.OneCall}
	if in.Format != nil {
		spec.Answer = in.Format.Answer
	}

	collected := callable{
		rc: rc, in: in, tools: tools,
		required: choice.Required, chosen: choice.AllowedSet(),
	}
	err := tools.each(collected.add)
	spec.Tools = collected.found
	if err != nil {
		return spec, err
	}
	// A tool that was withdrawn is no narrower choice: the model is told, and free in what it writes.
	spec.Narrowed = !in.NoCalls && len(spec.Tools)+len(tools.withdrawn) < len(tools.byRecipient)

	var missing []string
	for _, name := range choice.Allowed {
		if !collected.names[name] {
			missing = append(missing, cmp.Or(name.Name, name.Namespace))
		}
	}

	switch {
	case missing != nil:
		return spec, apierror.Invalid("tool_choice", "%s", apierror.One(missing,
			"The tool %s of tool_choice is not one of the tools of the request.",
			"The tools %s of tool_choice are not among the tools of the request."))
	case spec.Required && len(spec.Tools) == 0:
		return spec, apierror.Invalid("tool_choice",
			"tool_choice requires a call, but the request has no tools that may be called.")
	}

	collected.tighten(&spec)
	return spec, nil
}

// callable collects the tools of a spec: those that may be called, each with what its
// arguments must be.
type callable struct {
	rc    *request.Context
	in    *request.Input
	tools *Set
	// One of the tools must be called.
	required bool
	// The only ones that may be called; nil: all.
	chosen map[item.ToolName]bool

	// What was found, and, where calls are advised, the parameters of each.
	found      []constraint.Tool
	parameters []json.RawMessage
	names      map[item.ToolName]bool

	// Bytes of the schemas of the strict tools so far.
	strictBytes int
	forced      forcedSchemas
}

// add adds a tool, if it may be called.
func (c *callable) add(recipient string, parameters json.RawMessage) *apierror.Error {
	name := c.tools.byRecipient[recipient]
	if c.in.NoCalls || c.chosen != nil && !c.chosen[name] {
		return nil
	}
	if c.names == nil { // most requests have no tools
		c.names = map[item.ToolName]bool{}
	}
	c.names[name] = true
	if c.advised() {
		c.parameters = append(c.parameters, parameters)
	}

	strict := c.tools.IsStrict(c.in, name)
	if strict {
		if c.strictBytes += len(parameters); c.strictBytes > maxStrictSchemas {
			return apierror.Invalid("tools",
				"The schemas of the strict tools are larger than %d bytes in total. Make fewer tools strict.",
				maxStrictSchemas)
		}
	}

	// The arguments of a custom tool with a grammar are a text of it, whatever its schema says.
	if grammar := c.tools.grammarOf(c.in, recipient); grammar != "" {
		c.found = append(c.found, constraint.Tool{Recipient: recipient, Grammar: grammar})
		return nil
	}

	// A client that requires a call waits for one that it can execute: its tools' schemas are
	// enforced too, as far as there is room beside those of the strict ones.
	schema, err := strictSchema(c.rc, strict, name, parameters)
	var enforced constraint.Value
	if c.required && !strict && !name.Builtin {
		room := schemaRoom{bytes: maxStrictSchemas - c.strictBytes, cost: constraint.MaxCost}
		schema, enforced = c.forced.schema(c.rc.Work, parameters, room)
	}
	c.found = append(c.found, constraint.Tool{
		Recipient: recipient, Builtin: name.Builtin, Code: name.IsCode(), Schema: schema, Enforced: enforced,
	})
	return err
}

// maxAdvisedCost bounds the cost of the patterns and lengths of the schemas that only the operator asks for:
// about a second of an engine's compiler, since clients that wait for it have not asked for any.
const maxAdvisedCost = 16

// adviceSteps is what the schemas that only the operator asks for may take of the request's work: a tenth, so
// that what the client asks for has its own.
const adviceSteps = 2_000_000

// advised reports whether the operator asks for something of calls, where nothing is in its way: the message that
// is continued has begun already, and a grammar decides where an output ends.
func (c *callable) advised() bool {
	switch c.rc.Model.ToolStrictness {
	case "", request.StrictnessNone:
		return false
	}
	return !c.rc.Checked && !c.in.Continue && c.in.Engine.MinTokens == 0
}

// tighten adds what the operator asks for of calls, beside what the request does. Nothing of it is verified:
// a reply that breaks it, of an engine that does not enforce it, is one that the client has allowed.
func (c *callable) tighten(spec *constraint.Spec) {
	if !c.advised() {
		return
	}

	account := c.rc.Work.Part(context.Background(), adviceSteps)
	// Beside what a client asks for, other tools take objects.
	alone := !spec.Restricts()
	spec.Declared = true
	for i := range spec.Tools {
		tool := &spec.Tools[i]
		name := c.tools.byRecipient[tool.Recipient]
		if tool.Schema != nil || tool.Grammar != "" || tool.Code {
			continue
		}

		if !c.wantsArguments(name) {
			tool.Free = alone
			continue
		}
		// Without steps, or room in the grammar, they are any object.
		if account != nil {
			room := schemaRoom{bytes: maxStrictSchemas - c.strictBytes, cost: maxAdvisedCost - c.forced.cost}
			_, tool.Enforced = c.forced.schema(account, c.parameters[i], room)
		}
	}
}

// wantsArguments reports whether the operator asks for arguments that follow the schema of a tool.
func (c *callable) wantsArguments(name item.ToolName) bool {
	// A custom tool takes text, and tools of the system message the forms that the model was trained on.
	if name.Builtin || c.in.AsIs[name] {
		return false
	}

	switch c.rc.Model.ToolStrictness {
	case request.StrictnessArguments:
		return !c.tools.saidLoose(c.in, name)
	case request.StrictnessAll:
		return true
	}
	return false
}

// grammarOf returns the grammar of the arguments of a tool; "" if it has none, or if
// another definition has replaced the tool.
func (s *Set) grammarOf(in *request.Input, recipient string) constraint.Grammar {
	if s.joined != nil {
		if _, replaced := s.joined.at[recipient]; replaced {
			return ""
		}
	}
	return in.Grammars[s.byRecipient[recipient]]
}

// strictSchema returns the schema of a strict tool's arguments; nil if they only
// need to be a JSON object.
func strictSchema(
	rc *request.Context, strict bool, name item.ToolName, schema json.RawMessage,
) (json.RawMessage, *apierror.Error) {
	if !strict {
		return nil, nil
	}
	if len(schema) == 0 {
		return json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`), nil
	}

	if err := constraint.CheckSchema(rc.Work, schema, true); err != nil {
		if refusal := rc.WorkRefused("tools" + parametersPath(name, err)); refusal != nil {
			return nil, refusal
		}
		return nil, apierror.Invalid(
			"tools"+parametersPath(name, err),
			"The arguments of the strict tool %q cannot be enforced: the schema %s. Change it, or leave out strict.",
			name.Name, err)
	}
	// It may be a part of the request's body.
	return bytes.Clone(schema), nil
}

// forcedSchemas are the schemas of tools that are not strict and of which one must
// be called. They are enforced as far as a grammar can say them, and as long as they
// do not take an engine too long together.
type forcedSchemas struct{ size, cost int }

// schemaRoom is what there is room for.
type schemaRoom struct {
	// Of all schemas together.
	bytes int
	// Of the next one; patterns and lengths beyond it are left out. Below 0: those before have taken more.
	cost int
}

// schema returns the schema of a tool's arguments if it is enforced, and its form for
// engines; nil: they are any JSON object.
func (f *forcedSchemas) schema(
	account *work.Account, parameters json.RawMessage, room schemaRoom,
) (schema json.RawMessage, enforced constraint.Value) {
	// What is read counts, whether it is enforced or not.
	if f.size += len(parameters); f.size > room.bytes {
		return nil, enforced
	}
	parameters = objectSchema(parameters)
	if parameters == nil {
		return nil, enforced
	}

	value, cost, err := constraint.CheckLoose(account, parameters, max(room.cost, 0))
	if err != nil || f.cost+cost > constraint.MaxCost {
		return nil, enforced
	}
	f.cost += cost

	return bytes.Clone(parameters), value
}

// ArgumentsOf returns what arguments of a schema have to be, as far as a grammar can say it; else any
// JSON object.
func ArgumentsOf(account *work.Account, schema json.RawMessage) constraint.Value {
	var forced forcedSchemas
	schema, value := forced.schema(account, schema, schemaRoom{maxStrictSchemas, constraint.MaxCost})
	if schema != nil && account.Err() == nil {
		return value
	}
	return constraint.Value{Schema: constraint.AnyObject}
}

// objectSchema returns a schema of the objects of a schema; nil if its root has another
// type, or several. Arguments are objects, so clients leave out that the root is one.
func objectSchema(schema json.RawMessage) json.RawMessage {
	root := gjson.ParseBytes(schema)
	switch kind := root.Get("type"); {
	case kind.Str == "object":
		return schema
	case kind.Exists() || !root.IsObject() || jsontext.Empty(root):
		return nil
	}

	object := bytes.TrimSpace(schema)
	return slices.Concat([]byte(`{"type":"object",`), object[1:])
}

// parametersPath returns where the fault in a tool's schema is, as a path below
// "tools"; "" for the schema as a whole.
func parametersPath(name item.ToolName, err error) string {
	if path := constraint.SchemaPath(err); path != "" {
		return "." + name.Name + ".parameters" + path
	}
	return ""
}
