package toolset

import (
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/fields"
)

// readFormat reads the form of a custom tool's text. A grammar that is not enforced counts
// as ignored.
func (r *Reader) readFormat(v jsontext.Field, t *tool) *apierror.Error {
	if !v.IsObject() {
		return apierror.Invalid(v.Path, "The field %q must be an object.", v.Path)
	}

	switch v.Get("type").Str {
	case "text":
		return nil
	case "grammar":
	default:
		r.ignored.Add(v.Path)
		return nil
	}

	var err *apierror.Error
	t.format, err = fields.ReadCustomFormat(v, t.Name, r.rc.Work,
		func(cost int) bool { return r.enforcesGrammar(t, cost) })
	// The model is shown a grammar that engines cannot enforce, but may break it.
	if err == nil && t.format.Grammar == "" {
		r.ignored.Add(v.Path)
	}

	r.grammars += t.format.Cost

	return err
}

// enforcesGrammar reports whether the engine gets the grammar of a tool: not if it
// takes none, if it has enough of them, or if the tool is offered later.
func (r *Reader) enforcesGrammar(t *tool, cost int) bool {
	return r.echo != nil && !t.deferred && r.input.RoomForGrammar(r.rc, r.grammars+cost)
}
