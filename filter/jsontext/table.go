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

	// Keep is what a record keeps of the field's values.
	Keep Keep
}

// Members is the table of an object whose reader has code of its own.
type Members = Table[struct{}]

// With returns the rows of t together with those of shared. of returns the part
// of D that the readers of shared decode into.
func With[D, E any](t Table[D], shared Table[E], of func(D) E) Table[D] {
	all := maps.Clone(t)

	// A nil Read says that the field has no reader, so that it is not wrapped.
	for name, row := range shared {
		lifted := Row[D]{Refused: row.Refused, Unless: row.Unless, Ignored: row.Ignored, Keep: row.Keep}
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
	return t.decode(d, object, ignored, t.Other)
}

// decode is Decode. unknown handles a field that is not in the table.
func (t Table[D]) decode(
	d D, object Field, ignored *Ignored, unknown func(string, Field, *Ignored) *apierror.Error,
) *apierror.Error {
	known := func(name string) bool {
		_, known := t[name]
		return known
	}

	return object.FieldsOf(known, func(key string, v Field) *apierror.Error {
		row, known := t[key]
		switch {
		case !known:
			return unknown(key, v, ignored)
		case row.Read != nil:
			return row.Read(d, v)
		}
		return t.Other(key, v, ignored)
	})
}

// DecodeRequest is Decode for the object that is a whole request. A field in another spelling than
// the table's, such as maxTokens, is refused where the table's would change the answer: other
// services and SDKs spell them so, and the client believes that it counts.
func (t Table[D]) DecodeRequest(d D, object Field, ignored *Ignored) *apierror.Error {
	// Made for the first field that needs it: nearly no request has one.
	var own map[string]string
	return t.decode(d, object, ignored, func(key string, v Field, ignored *Ignored) *apierror.Error {
		name := snakeCase(key)
		if row, known := t[name]; known && row.Read != nil && own == nil {
			own = t.values(object)
		}
		return t.otherSpelling(name, v, own, ignored)
	})
}

// values returns the values of the fields of an object that the table has, by name.
func (t Table[D]) values(object Field) map[string]string {
	values := map[string]string{}
	each(object.Result, func(key string, v gjson.Result) bool {
		if _, known := t[key]; known {
			values[key] = v.Raw
		}
		return true
	})
	return values
}

// otherSpelling handles a field that the table has in the spelling name, if at all. own are the values
// of the fields in the table's spelling.
func (t Table[D]) otherSpelling(name string, v Field, own map[string]string, ignored *Ignored) *apierror.Error {
	row, known := t[name]
	switch {
	case known && row.Read != nil:
		// Older versions of the AI SDK send options of OpenAI-compatible services in both spellings.
		if own[name] == v.Raw {
			ignored.Add(v.Path)
			return nil
		}
		return apierror.Invalid(v.Path, "%s is no field of this API. Use %s.", v.Path, name)
	case known && row.Refused != "" && !AsksNothing(v.Result, row.Unless):
		return apierror.Invalid(v.Path, "%s", row.Refused)
	case !known || row.Ignored != "":
		ignored.Add(v.Path)
	}
	return nil
}

// maxName is more bytes than the name of a field of an API has.
const maxName = 64

// snakeCase returns a name in the spelling of the tables: maxTokens, MaxTokens and max-tokens are
// max_tokens.
func snakeCase(name string) string {
	if len(name) > maxName {
		return name
	}

	snake := make([]byte, 0, 2*len(name))
	for i := range len(name) {
		c := name[i]
		switch {
		case c == '-':
			c = '_'
		case isCapital(c):
			// A capital begins a word, also the last of several before a small letter.
			if i > 0 && name[i-1] != '_' && name[i-1] != '-' && (!isCapital(name[i-1]) ||
				i+1 < len(name) && 'a' <= name[i+1] && name[i+1] <= 'z') {
				snake = append(snake, '_')
			}
			c += 'a' - 'A'
		}
		snake = append(snake, c)
	}
	return string(snake)
}

func isCapital(c byte) bool { return 'A' <= c && c <= 'Z' }

// Beside returns the rows of t, and those of more for fields that t does not have.
func (t Table[D]) Beside(more Table[D]) Table[D] {
	all := maps.Clone(more)
	maps.Copy(all, t)
	return all
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
	if AsksNothing(v.Result, row.Unless) {
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

// AsksNothing reports whether a value of a refused field changes nothing, and is accepted. unless is
// that of its row.
func AsksNothing(v gjson.Result, unless []string) bool {
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
