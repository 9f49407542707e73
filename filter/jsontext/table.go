package jsontext

import (
	"maps"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

// Table says what becomes of the fields of a request, by name, where a decoder
// of type D reads them. Fields that are not in it are ignored.
type Table[D any] map[string]Row[D]

// Row is what becomes of one field. Of its members exactly one is set.
type Row[D any] struct {
	Read    func(d D, v Field) *apierror.Error // mapped
	Refused string                             // refused; says why, and what to do instead
	On      string                             // refused so, unless it is false or 0, which is what happens anyway
	Ignored bool
}

// With is the rows of t and of shared, which reads the part of D that of gives.
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

// Decode reads the fields of a request and notes those without an effect.
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
