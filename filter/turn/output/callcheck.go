package output

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/toolset"
	"github.com/envoy-harmony/envoy-harmony/filter/work"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// callState is what becomes of the call that is being written. The map above [Watcher] says who
// leaves it.
type callState uint8

const (
	callPasses     callState = iota // nothing of it is held back
	callHeld                        // its arguments are held back until they are whole
	callAskedAgain                  // the same, and then they pass, whatever they are
)

// callRules are by which the arguments of calls are checked, of all choices and turns of a reply.
type callRules struct {
	tools *toolset.Set
	// Of the schemas of tools, as far as they were needed.
	checkers map[item.ToolName]checker
	// Of arguments that are asked for again, as far as they were needed.
	formats map[item.ToolName]constraint.Format
}

func newCallRules(tools *toolset.Set) *callRules {
	return &callRules{
		tools: tools, checkers: map[item.ToolName]checker{}, formats: map[item.ToolName]constraint.Format{},
	}
}

// callCheck holds back the arguments of a call until they are whole, and checks them. The
// zero value checks nothing.
type callCheck struct {
	// Nil: calls are not checked.
	rules *callRules
	rc    *request.Context

	state callState
	// Of a call that is held back: its tool, the content type of its header, and its arguments so
	// far.
	called      item.ToolName
	contentType string
	text        []byte
	// None are asked for again any more.
	enough bool
}

func (c *callCheck) holds() bool { return c.state != callPasses }

// begin begins the message of a call, if its arguments are to be checked.
func (c *callCheck) begin(h *harmony.Header) {
	c.state = callPasses
	if c.rules == nil || c.enough {
		return
	}

	t, found := c.rules.tools.Addressee(h)
	if found != toolset.Offered && found != toolset.Respelled {
		return
	}

	// What is not repaired need not be JSON, or follows a grammar.
	if c.rules.tools.Repairs(c.rc.Model, t) {
		c.state, c.called, c.contentType, c.text = callHeld, t, toolset.TypeOf(h, t), c.text[:0]
	}
}

// add takes text of a message.
func (c *callCheck) add(text []byte) {
	if c.holds() {
		c.text = append(c.text, text...)
	}
}

// passes reports whether the whole arguments can be passed on: they are a JSON object of
// the tool's schema, or can be repaired to one, or are not asked for again any more.
func (c *callCheck) passes() bool {
	if c.state == callAskedAgain || c.enough {
		return true
	}

	repairer := c.rules.tools.Repairer(c.called, c.contentType)
	text := slices.Clone(repairer.Push(c.text))
	rest, _, valid := repairer.End()
	if text = append(text, rest...); len(text) == 0 {
		text, valid = []byte("{}"), true
	}
	if !valid {
		return false
	}

	return c.rc.Inline(func(account *work.Account) (bool, error) {
		validator := c.validator(account)
		if validator == nil {
			return true, nil
		}
		return validator.Accepts(account, text)
	})
}

// format returns what the arguments have to be when they are asked for again: of the tool's
// schema as far as a grammar can say it, else any JSON object.
func (c *callCheck) format() constraint.Format {
	format, made := c.rules.formats[c.called]
	if !made {
		format = c.newFormat(c.rules.tools.Schema(c.called))
		c.rules.formats[c.called] = format
	}

	return format
}

func (c *callCheck) newFormat(schema json.RawMessage) constraint.Format {
	account := c.rc.Work.Part(context.Background(), request.MaxInline)
	if account == nil {
		return constraint.Value{Schema: constraint.AnyObject}
	}

	return toolset.ArgumentsOf(account, schema)
}

// checker is the validator of a tool's schema, which is made when the tool is first called.
type checker struct {
	// Nil: nothing is checked, for the tool has no schema, or one that takes too much, or there
	// was no memory for it when the tool was called.
	validator *constraint.Validator
	// An event did not have the steps to make it.
	refused bool
	// It is made, or never will be.
	settled bool
}

// validator returns the validator of the called tool's schema; nil if its arguments are not
// checked.
func (c *callCheck) validator(account *work.Account) *constraint.Validator {
	schema := c.rules.tools.Schema(c.called)
	if schema == nil {
		return nil
	}

	made := c.rules.checkers[c.called]
	if made.settled {
		return made.validator
	}

	// An event's other checks may have left too little for this one, once. After that the schema
	// itself takes too much: to try at each call is to read it for nothing each time.
	made.validator = c.newValidator(account, schema)
	made.settled = account.Err() == nil || made.refused
	made.refused = true

	c.rules.checkers[c.called] = made
	return made.validator
}

// newValidator makes the validator of a schema, within the request's memory: a reply keeps one
// for each tool that it calls. It is nil if the schema cannot be checked.
func (c *callCheck) newValidator(account *work.Account, schema json.RawMessage) *constraint.Validator {
	room := roomTaken{rc: c.rc}
	if room.take(bytesOfValidator(schema)) != nil {
		return nil
	}

	validator, err := constraint.NewValidator(account, schema, room.take)
	if err != nil {
		room.giveBack()
		return nil
	}
	return validator
}
