package turn

import (
	"encoding/json"
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/arguments"
	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// callCheck holds back the arguments of a call until they are whole, and checks them. The
// zero value checks nothing.
type callCheck struct {
	tools *toolset // nil: calls are not checked
	model *Model

	called  CalledTool
	holding bool   // the arguments of a call are being held back
	asked   bool   // they were asked for again
	text    []byte // of the arguments so far
}

// begin begins the message of a call, if its arguments are to be checked.
func (c *callCheck) begin(h *harmony.Header) {
	c.holding = false
	if c.tools == nil || h.Recipient == "" {
		return
	}
	t, found := c.tools.resolve(h.Recipient)
	if found != offered && found != respelled {
		return
	}
	c.called = CalledTool{Namespace: t.namespace, Name: t.name, Builtin: t.builtin}
	if c.holding = c.tools.repairs(c.model, &c.called); c.holding {
		c.asked, c.text = false, c.text[:0]
	}
}

// add takes text of a message.
func (c *callCheck) add(text []byte) {
	if c.holding {
		c.text = append(c.text, text...)
	}
}

func (c *callCheck) name() ToolName {
	return ToolName{c.called.Namespace, c.called.Name, c.called.Builtin}
}

// passes reports whether the whole arguments can be passed on: they are a JSON object of
// the tool's schema, or can be repaired to one, or were asked for again already.
func (c *callCheck) passes() bool {
	if c.asked {
		return true
	}
	repairer := arguments.New(c.tools.texts[c.name()])
	text := slices.Clone(repairer.Push(c.text))
	rest, _, valid := repairer.End()
	if text = append(text, rest...); len(text) == 0 {
		text, valid = []byte("{}"), true
	}
	if !valid {
		return false
	}
	schema := c.tools.schemas[c.name()]
	if schema == nil {
		return true
	}
	validator, err := constraint.NewValidator(schema)
	return err != nil || !validator.Affords(text) || validator.Accepts(text)
}

// format returns what the arguments have to be when they are asked for again: of the tool's
// schema as far as a grammar can say it, else any JSON object.
func (c *callCheck) format() constraint.Format {
	var forced forcedSchemas
	if schema := forced.schema(c.tools.schemas[c.name()], maxStrictSchemas); schema != nil {
		return constraint.Value{Schema: schema}
	}
	return constraint.Value{Schema: constraint.AnyObject}
}

// keepSchemas keeps the schemas of the tools by which the arguments of calls are checked.
func (s *toolset) keepSchemas() {
	s.schemas = map[ToolName]json.RawMessage{}
	for _, list := range [][]harmony.Namespace{s.namespaces, s.builtins} {
		for _, ns := range list {
			for _, t := range ns.Tools {
				if len(t.Parameters) > 0 {
					s.schemas[s.byRecipient[ns.Name+"."+t.Name].toolName()] = slices.Clone(t.Parameters)
				}
			}
		}
	}
}
