package harmony

import "errors"

// The limits of writing schemas as TypeScript. References can multiply the
// work, and equal variants of a union are written and then removed, so a limit
// on the resulting text is not enough.
const (
	// maxSchemaText is the most bytes of TypeScript of one tool's schema.
	maxSchemaText = 256 << 10
	// stepsPerByte is the number of steps per byte of a schema. A schema without references does not need more,
	// because each value is visited only a few times.
	stepsPerByte = 4
	// maxSteps is the number of steps that one schema may need in addition. A
	// step is a schema written, or a member or an item of it; a property takes
	// about five. A type of maxSchemaText has fewer than 13,000 properties.
	maxSteps = 1 << 16
	// maxStepsTogether is the number of steps that all tools of a message together may need in addition. Types
	// that need more fill several contexts.
	maxStepsTogether = 1 << 18
	// bytesPerStep is the number of bytes that take as long to compare or copy as a step.
	bytesPerStep = 32
)

var (
	errSchemaTooLarge = errors.New("its parameters become too much TypeScript (over 256 KiB): " +
		"shorten descriptions and enums, or use fewer references to large definitions")
	errSchemaTooMuchWork = errors.New("its parameters take too many steps to write as TypeScript: " +
		"use fewer references to definitions that have references themselves, above all in anyOf, oneOf and allOf")
)

// schemaWork counts the steps of the types that are written for one message.
type schemaWork struct {
	// spent is in addition to what their sizes allow.
	spent int
}

// left returns how many steps the next type may need in addition to what its
// size allows.
func (w *schemaWork) left() int { return min(maxSteps, max(0, maxStepsTogether-w.spent)) }

// spend counts steps. It returns false if no steps are left.
func (w *schemaWriter) spend(steps int) bool {
	if w.steps -= steps; w.steps < 0 && w.err == nil {
		w.err = errSchemaTooMuchWork
	}
	return w.err == nil
}

// breadth returns the steps that a schema takes without its subschemas.
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
// cannot be rendered: they are not valid JSON, nest too deeply, or take too
// much text or work, alone or together with the tools checked before. Tools for
// which Check returns nil can be rendered in one message.
func (c *ToolCheck) Check(t Tool) error {
	var err error
	c.buf, err = appendParameters(c.buf[:0], t.Parameters, false, &c.work)
	return err
}
