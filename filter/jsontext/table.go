package jsontext

import (
	"maps"
	"slices"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

// Table maps the names of an object's fields to what a decoder of type D does with
// them. Fields that are not in the table are ignored.
//
// The tables of all objects of a request are the one list of what becomes of each field.
// docs/compatibility.md has the same rows, written from them.
type Table[D any] map[string]Row[D]

// Row says how one field is handled: it is read, refused or ignored. A row without any
// member belongs to a reader that has code of its own for the field, and uses the table
// for all others, with [Table.Other] or [Table.Others].
type Row[D any] struct {
	// Read decodes the field into d.
	Read func(d D, v Field) *apierror.Error

	// Refused makes the field an error with this text, which says why and what to use
	// instead. Values that ask for nothing are accepted.
	Refused string
	// Unless are these values, as JSON. nil: false, 0, an empty text or list.
	Unless []string

	// Ignored is why the answer cannot differ without the field. A field of which nobody
	// can say that is read or refused.
	Ignored string
}

// Members is the table of an object whose reader has code of its own.
type Members = Table[struct{}]

// With returns the rows of t together with those of shared. of returns the part
// of D that the readers of shared decode into.
func With[D, E any](t Table[D], shared Table[E], of func(D) E) Table[D] {
	all := maps.Clone(t)

	// A nil Read says that the field has no reader, so that it is not wrapped.
	for name, row := range shared {
		lifted := Row[D]{Refused: row.Refused, Unless: row.Unless, Ignored: row.Ignored}
		if row.Read != nil {
			lifted.Read = func(d D, v Field) *apierror.Error { return row.Read(of(d), v) }
		}
		all[name] = lifted
	}

	return all
}

// Decode decodes the fields of an object into d and adds those without an effect to
// ignored. It returns the first error.
func (t Table[D]) Decode(d D, object Field, ignored *Ignored) *apierror.Error {
	known := func(name string) bool {
		_, known := t[name]
		return known
	}

	return object.FieldsOf(known, func(key string, v Field) *apierror.Error {
		// A field that is not in the table has an empty row, and is ignored.
		if read := t[key].Read; read != nil {
			return read(d, v)
		}
		return t.Other(key, v, ignored)
	})
}

// Other handles a field that the reader has no code for: it is refused, or it is added
// to ignored.
func (t Table[D]) Other(key string, v Field, ignored *Ignored) *apierror.Error {
	row := t[key]
	if row.Refused == "" {
		ignored.Add(v.Path)
		return nil
	}

	// Clients send default values of what they do not use, such as n: 1.
	if asksNothing(v.Result, row.Unless) {
		return nil
	}
	return apierror.Invalid(v.Path, "%s", row.Refused)
}

// Others is [Table.Other] for all members of an object for which the table has no empty
// row. Of a value that is no object it does nothing.
func (t Table[D]) Others(object Field, ignored *Ignored) *apierror.Error {
	if !object.IsObject() {
		return nil
	}

	var err *apierror.Error
	each(object.Result, func(key string, v gjson.Result) bool {
		row, known := t[key]
		own := known && row.Read == nil && row.Refused == "" && row.Ignored == ""
		if own || v.Type == gjson.Null || row.Refused == "" && ignored.full() {
			return true
		}

		err = t.Other(key, Field{v, object.child(key)}, ignored)
		return err == nil
	})
	return err
}

// asksNothing reports whether a value of a refused field changes nothing.
func asksNothing(v gjson.Result, unless []string) bool {
	if unless == nil {
		return v.Type == gjson.False || v.Type == gjson.Number && v.Num == 0 || v.Raw == `""` ||
			v.IsArray() && Empty(v)
	}

	// Numbers are compared as such: 1 and 1.0 are the same.
	return slices.ContainsFunc(unless, func(raw string) bool {
		nothing := gjson.Parse(raw)
		return v.Raw == raw || v.Type == gjson.Number && nothing.Type == gjson.Number && v.Num == nothing.Num
	})
}
