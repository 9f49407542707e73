package jsontext

import (
	"maps"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

// Table maps field names of a request to what a decoder of type D does with
// them. Fields that are not in the table are ignored.
type Table[D any] map[string]Row[D]

// Row says how one field is handled. Exactly one member is set.
type Row[D any] struct {
	Read    func(d D, v Field) *apierror.Error // decodes the field into d
	Refused string                             // the field is an error with this text, which says why and what to use instead
	On      string                             // the same, except that the values false and 0 are accepted, since they change nothing
	Ignored bool
}

// With returns the rows of t together with those of shared. of returns the part
// of D that the readers of shared decode into.
func With[D, E any](t Table[D], shared Table[E], of func(D) E) Table[D] {
	all := maps.Clone(t)
	for name, row := range shared {
		lifted := Row[D]{Refused: row.Refused, On: row.On, Ignored: row.Ignored}
		if row.Read != nil {
			lifted.Read = func(d D, v Field) *apierror.Error { return row.Read(of(d), v) }
		}
		all[name] = lifted
	}
	return all
}

// Decode decodes the fields of a request into d and adds those without an
// effect to ignored. It returns the first error.
func (t Table[D]) Decode(d D, request Field, ignored *Ignored) *apierror.Error {
	known := func(name string) bool {
		_, known := t[name]
		return known
	}
	return request.FieldsOf(known, func(key string, v Field) *apierror.Error {
		switch row, known := t[key]; {
		case !known || row.Ignored:
			ignored.Add(v.Path)
			return nil
		case row.Refused != "":
			return apierror.Invalid(v.Path, "%s", row.Refused)
		case row.On != "":
			if v.Raw != "false" && v.Raw != "0" {
				return apierror.Invalid(v.Path, "%s", row.On)
			}
			return nil
		default:
			return row.Read(d, v)
		}
	})
}
