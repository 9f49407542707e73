package harmony

import "errors"

// The bounds of writing schemas. References multiply what a schema takes to
// write, and equal variants of a union are written and left out again, so that
// the text alone does not show the work.
const (
	// maxSchemaText is how many bytes of TypeScript one tool's schema may become.
	maxSchemaText = 256 << 10
	// stepsPerByte is the work that each byte of a schema allows. Without
	// references no schema takes more: its values are each looked at a few times.
	stepsPerByte = 4
	// maxSteps is the work that one schema may take beyond that. A step is a
	// schema written, or a member or an item of it; a property takes about five.
	// A type of maxSchemaText has fewer than 13,000 properties.
	maxSteps = 1 << 16
	// maxStepsTogether is the same for all tools of a message. The types that
	// take so much fill several contexts.
	maxStepsTogether = 1 << 18
	// bytesPerStep is how many bytes take as long to compare or copy as a step.
	bytesPerStep = 32
)

var (
	errSchemaTooLarge    = errors.New("its parameters become too much TypeScript (over 256 KiB): shorten descriptions and enums, or use fewer references to large definitions")
	errSchemaTooMuchWork = errors.New("its parameters take too many steps to write as TypeScript: use fewer references to definitions that have references themselves, above all in anyOf, oneOf and allOf")
)

// schemaWork counts the work of the types that are written for one message.
type schemaWork struct{ spent int } // beyond what their sizes allow

// left is how many steps one more type may take beyond what its size allows.
func (w *schemaWork) left() int { return min(maxSteps, max(0, maxStepsTogether-w.spent)) }

// spend counts steps and reports whether there are so many left.
func (w *schemaWriter) spend(steps int) bool {
	if w.steps -= steps; w.steps < 0 && w.err == nil {
		w.err = errSchemaTooMuchWork
	}
	return w.err == nil
}

// breadth is how many steps a schema takes without the schemas in it.
func breadth(s *value) int {
	steps := 1
	for i := range s.members {
		v := &s.members[i].value
		steps += 1 + len(v.items) + len(v.members)
	}
	return steps
}

// ToolCheck checks tools one by one before they are rendered together. The zero
// value is ready for use. It is not safe for concurrent use.
type ToolCheck struct {
	work schemaWork
	buf  []byte
}

// Check returns an error that says what to change if the tool's parameters
// cannot be rendered: they are no JSON, or they nest too deep, become too much
// text or take too much work, alone or with those checked before. The tools that
// pass can be rendered in one message.
func (c *ToolCheck) Check(t Tool) error {
	var err error
	c.buf, err = appendParameters(c.buf[:0], t.Parameters, false, &c.work)
	return err
}
