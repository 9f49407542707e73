// Package jsontext reads the JSON of API requests within bounds and writes the
// JSON of replies without allocating. It knows no API: filter/chat and
// filter/responses share it.
//
// On reading, null is the same as an absent field, a field given twice is
// refused, and every refusal names the field at fault in the notation of
// OpenAI's errors, such as messages[2].content. A name that is the client's own
// may be part of a prompt: a refusal names what it stands in.
package jsontext

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
	"unsafe"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

// MaxDepth is how deeply objects and arrays of a request may nest. It keeps
// recursive readers, here and behind, within a small stack.
const MaxDepth = 128

// Parse reads a request body, which must be one JSON object in UTF-8. The
// values it gives refer to body, which must not change while they are used.
func Parse(body []byte) (gjson.Result, *apierror.Error) {
	if !utf8.Valid(body) {
		return gjson.Result{}, apierror.Invalid("", "The request body is not valid UTF-8.")
	}
	if Depth(body) > MaxDepth {
		return gjson.Result{}, apierror.Invalid("", "The request body nests more than %d levels deep.", MaxDepth)
	}
	if !gjson.ValidBytes(body) {
		return gjson.Result{}, apierror.Invalid("", "The request body is not valid JSON.")
	}
	root := gjson.Parse(unsafe.String(unsafe.SliceData(body), len(body))) // a copy would double what a request takes
	if !root.IsObject() {
		return gjson.Result{}, apierror.Invalid("", "The request body must be a JSON object.")
	}
	return root, nil
}

// Depth is how deeply the brackets of p nest outside strings, whether or not p
// is valid JSON.
func Depth(p []byte) int {
	depth, deepest := 0, 0
	inString := false
	for i := 0; i < len(p); i++ {
		switch c := p[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}

// Field is a value of a request and where it stands.
type Field struct {
	gjson.Result
	Path string // such as tools[0].function; "" is the request itself
}

// Fields calls read with every field of the object f that is not null, in
// order, until read fails. Its key is the field's name, without the path. A
// refusal of what read does not know must not have the path of it.
func (f Field) Fields(read func(key string, v Field) *apierror.Error) *apierror.Error {
	return f.FieldsOf(nil, read)
}

// FieldsOf is [Field.Fields] for an object with so many fields that the refusal
// of one given twice must name it, if it is one that known says is the API's.
func (f Field) FieldsOf(known func(key string) bool, read func(key string, v Field) *apierror.Error) *apierror.Error {
	return f.members(known, func(key string, v gjson.Result) *apierror.Error {
		return read(key, Field{v, f.child(key)})
	})
}

// Entries is [Field.Fields] for an object whose names are the client's own. The
// path of what it holds is that of f.
func (f Field) Entries(read func(key string, v Field) *apierror.Error) *apierror.Error {
	return f.members(nil, func(key string, v gjson.Result) *apierror.Error {
		return read(key, Field{v, f.Path})
	})
}

func (f Field) members(known func(key string) bool, read func(key string, v gjson.Result) *apierror.Error) *apierror.Error {
	if !f.IsObject() {
		return f.mismatch("an object")
	}
	var err *apierror.Error
	var seen names
	f.ForEach(func(k, v gjson.Result) bool {
		key := k.String()
		if seen.add(key) {
			err = f.twice(known != nil && known(key), key)
			return false
		}
		if v.Type == gjson.Null {
			return true
		}
		err = read(key, v)
		return err == nil
	})
	return err
}

// twice is the refusal of an object in which a field stands more than once.
func (f Field) twice(known bool, key string) *apierror.Error {
	switch {
	case known:
		return apierror.Invalid(f.child(key), "The field %q is given more than once.", key)
	case f.Path == "":
		return apierror.Invalid("", "A field of the request is given more than once.")
	}
	return apierror.Invalid(f.Path, "A field in %q is given more than once.", f.Path)
}

// Elements calls read with every element of the array f, nulls included, until
// read fails.
func (f Field) Elements(read func(i int, v Field) *apierror.Error) *apierror.Error {
	if !f.IsArray() {
		return f.mismatch("an array")
	}
	var err *apierror.Error
	i := 0
	f.ForEach(func(_, v gjson.Result) bool {
		err = read(i, Field{v, f.Path + "[" + strconv.Itoa(i) + "]"})
		i++
		return err == nil
	})
	return err
}

// Text reads a string.
func (f Field) Text() (string, *apierror.Error) {
	if f.Type != gjson.String {
		return "", f.mismatch("a string")
	}
	return f.Str, nil
}

// MaxShortText is how many bytes a [Field.ShortText] has at most.
const MaxShortText = 256

// ShortText reads a string fit for a name or an id, in memory of its own: it may
// be kept for longer than the request's body.
func (f Field) ShortText() (string, *apierror.Error) {
	s, err := f.Text()
	if len(s) > MaxShortText {
		return "", apierror.Invalid(f.Path, "The field %q is longer than %d bytes.", clip(f.Path), MaxShortText)
	}
	return strings.Clone(s), err
}

// Switch reads a boolean.
func (f Field) Switch() (bool, *apierror.Error) {
	if !f.IsBool() {
		return false, f.mismatch("a boolean")
	}
	return f.Type == gjson.True, nil
}

// Number reads a number between least and most.
func (f Field) Number(least, most float64) (float64, *apierror.Error) {
	if f.Type != gjson.Number {
		return 0, f.mismatch("a number")
	}
	if !(f.Num >= least && f.Num <= most) {
		return 0, apierror.Invalid(f.Path, "The field %q must be between %v and %v.", clip(f.Path), least, most)
	}
	return f.Num, nil
}

// Integer reads a whole number between least and most; 3.0 is one.
func (f Field) Integer(least, most int64) (int64, *apierror.Error) {
	if f.Type != gjson.Number {
		return 0, f.mismatch("an integer")
	}
	n, err := strconv.ParseInt(f.Raw, 10, 64)
	if err != nil {
		n = int64(f.Num)
		if float64(n) != f.Num || n >= 1<<53 || n <= -1<<53 {
			return 0, f.mismatch("an integer")
		}
	}
	if n < least || n > most {
		return 0, apierror.Invalid(f.Path, "The field %q must be between %d and %d.", clip(f.Path), least, most)
	}
	return n, nil
}

// SetSwitch sets dst as [Field.Switch] reads it.
func (f Field) SetSwitch(dst *bool) (err *apierror.Error) {
	*dst, err = f.Switch()
	return err
}

// SetNumber sets dst as [Field.Number] reads it.
func (f Field) SetNumber(dst **float64, least, most float64) *apierror.Error {
	n, err := f.Number(least, most)
	*dst = &n
	return err
}

// SetInteger sets dst as [Field.Integer] reads it.
func (f Field) SetInteger(dst *int, least, most int64) *apierror.Error {
	n, err := f.Integer(least, most)
	*dst = int(n)
	return err
}

// mismatch is the refusal of a value of the wrong type.
func (f Field) mismatch(want string) *apierror.Error {
	return apierror.Invalid(f.Path, "The field %q must be %s.", clip(f.Path), want)
}

func (f Field) child(key string) string {
	key = clip(key)
	if f.Path == "" {
		return key
	}
	return f.Path + "." + key
}

// clip shortens a name that a client made up, for errors.
func clip(s string) string {
	const most = 128
	if len(s) <= most {
		return s
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "..."
}

// short is how many names are looked through one by one.
const short = 16

// names is a set of the names of one object's fields: a list while it is short.
type names struct {
	list [short]string
	n    int
	set  map[string]struct{}
}

// add tells whether name was there already.
func (n *names) add(name string) bool {
	if n.set == nil && n.n < short {
		if slices.Contains(n.list[:n.n], name) {
			return true
		}
		n.list[n.n] = name
		n.n++
		return false
	}
	if n.set == nil {
		n.set = make(map[string]struct{}, 2*short)
		for _, s := range n.list {
			n.set[s] = struct{}{}
		}
	}
	_, there := n.set[name]
	n.set[name] = struct{}{}
	return there
}
