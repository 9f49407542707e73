package request

import (
	"encoding/json"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Limits bounds one request.
type Limits struct {
	// Messages, calls and results of a conversation.
	Items int
	// Of the stored items that a request brings in, and of those that a conversation holds.
	Bytes int
	Tools int
	// Of one tool's parameters.
	SchemaBytes int
	SchemaDepth int
	// N.
	Choices int
	// Stop strings, and stop token ids.
	Stops int
	// Of one stop string.
	StopBytes int

	// Model calls of one reply.
	Turns int

	// Of RoutingInfo.LastUserText; 0: there is none.
	LastUserTextBytes int
}

// CheckTool returns why a tool cannot be offered: it has no name, a name of more
// than 256 bytes, or parameters that are too large or nest too deep. nil means
// that it can.
func (l *Limits) CheckTool(t harmony.Tool) *apierror.Error {
	switch {
	case t.Name == "":
		return apierror.Invalid("tools", "A tool has no name. Give every tool one.")
	case len(t.Name) > item.MaxNameBytes:
		return apierror.Invalid("tools", "A tool's name is longer than %d bytes.", item.MaxNameBytes)
	case len(t.Parameters) > l.SchemaBytes:
		return apierror.Invalid("tools", "The parameters of tool %q are larger than %d bytes.", t.Name, l.SchemaBytes)
	case jsontext.Depth(t.Parameters) > l.SchemaDepth:
		return apierror.Invalid("tools",
			"The parameters of tool %q nest more than %d levels deep.", t.Name, l.SchemaDepth)
	}
	return nil
}

// DefaultLimits returns limits that hardly any client reaches and that a filter
// can afford.
func DefaultLimits() Limits {
	return Limits{
		Items: 20_000, Bytes: 32 << 20, Tools: 512, SchemaBytes: 256 << 10, SchemaDepth: 64, Choices: 16, Stops: 64,
		StopBytes: 1 << 10, Turns: 32,
	}
}

const (
	// largeSchema is the length from which on what is made of a schema takes room. A shorter one
	// is read before the scheduler lets another request have its turn.
	largeSchema = 32 << 10
	// schemaValueBytes is about what a value of a schema takes while the schema is read and
	// written for the model: two bytes of text can be one.
	schemaValueBytes = 128
)

// RoomForSchemas takes room for what is made of schemas, before any of it is.
func RoomForSchemas(rc *Context, namespaces []harmony.Namespace) *apierror.Error {
	for i := range namespaces {
		for _, t := range namespaces[i].Tools {
			if err := RoomForSchema(rc, t.Parameters); err != nil {
				return err
			}
		}
	}

	return nil
}

// RoomForSchema takes room for what is made of one schema.
func RoomForSchema(rc *Context, schema json.RawMessage) *apierror.Error {
	if len(schema) < largeSchema {
		return nil
	}
	return rc.Room(schemaValueBytes * constraint.Values(schema))
}
