// Package jsontext reads the JSON of requests within bounds and writes the JSON of replies
// without allocating. Each API's package is built on it, and it knows none of them: no field,
// no status, no event. All errors are [apierror.Error], because what it reads comes from clients.
//
// Reading begins at [Parse], which accepts or refuses a whole body. A [Field] is a value with
// its path: it hands out members and elements, and checks types and bounds. A [Table] maps the
// names of an object's fields to what becomes of each: read, refused, or ignored and counted
// in [Ignored]; the docs list the same rows. See the first example.
//
// When it reads, null means the same as an absent field, and a duplicate field
// is an error. Every error names the field at fault in the notation of OpenAI's
// errors, such as messages[2].content. Field names that the client chose may be
// part of a prompt, so errors never repeat them: they name the enclosing field.
//
// Writing is appending to a byte slice: [AppendEscaped] for the text of deltas,
// [AppendCompact] for JSON that is there already, and [Writer] for objects and server-sent
// events. [AppendShown] and [AppendSorted] write JSON in one spelling, for prompts and for
// comparisons; [Same] compares JSON in any spelling. See the example of Writer.
package jsontext

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
	"unsafe"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

// MaxDepth is how deeply the objects and arrays of a request may nest. It
// bounds the stack of recursive readers, in this package and in its callers.
const MaxDepth = 128

// Parse reads a request body, which must be one JSON object in UTF-8. Otherwise
// it returns a 400. The result refers to body, which must not change while the
// result is in use.
func Parse(body []byte) (gjson.Result, *apierror.Error) {
	if !utf8.Valid(body) {
		return gjson.Result{}, apierror.Invalid("", "The request body is not valid UTF-8.")
	}
	if read, ok := check(body); !ok {
		// The check stops at the bound. Whether it was the bound is asked only of what failed.
		if Depth(body) > MaxDepth {
			return gjson.Result{}, apierror.Invalid("", "The request body nests more than %d levels deep.", MaxDepth)
		}
		return gjson.Result{}, notJSON(body, read)
	}

	// A copy would double the memory that a request takes.
	root := gjson.Parse(unsafe.String(unsafe.SliceData(body), len(body)))
	if !root.IsObject() {
		return gjson.Result{}, apierror.Invalid("", "The request body must be a JSON object.")
	}
	return root, nil
}

// notJSON is the error for a body of which read bytes could begin an object. What stands
// there is not shown: it may be of a prompt.
func notJSON(body []byte, read int) *apierror.Error {
	lines := bytes.Count(body[:read], []byte{'\n'})
	column := utf8.RuneCount(body[bytes.LastIndexByte(body[:read], '\n')+1 : read])

	if read == len(body) {
		return apierror.Invalid("",
			"The request body is not valid JSON: it ends too early, in line %d after %d characters.", lines+1, column)
	}
	return apierror.Invalid("", "The request body is not valid JSON, from line %d, character %d on.", lines+1, column+1)
}

// Depth returns how deeply the brackets of p nest outside strings. p need not
// be valid JSON.
func Depth[T ~string | ~[]byte](p T) int {
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

// Field is a value of a request together with its path.
type Field struct {
	gjson.Result
	// Such as tools[0].function; "" is the request itself.
	Path string
}

// Fields calls read for every field of the object f that is not null, in order,
// until read fails. key is the field's name without the path. If read does not
// know a key, its error must not contain the key or its path: see
// [Field.Entries].
func (f Field) Fields(read func(key string, v Field) *apierror.Error) *apierror.Error {
	return f.FieldsOf(nil, read)
}

// FieldsOf is [Field.Fields] for an object of the API with many fields, where
// the error about a duplicate should name the field. known reports whether a
// key is one of the API's own names; only those are named in errors.
//
// An object of the API with more than maxFields fields is an error: each costs more
// than its bytes.
func (f Field) FieldsOf(known func(key string) bool, read func(key string, v Field) *apierror.Error) *apierror.Error {
	n := 0
	return f.members(known, func(key string, v gjson.Result) *apierror.Error {
		n++
		if n > maxFields {
			return f.tooManyFields()
		}
		return read(key, Field{v, f.child(key)})
	})
}

// Entries is [Field.Fields] for an object whose keys the client chose. The
// values passed to read have the path of f, so that errors do not contain the
// keys.
func (f Field) Entries(read func(key string, v Field) *apierror.Error) *apierror.Error {
	return f.members(nil, func(key string, v gjson.Result) *apierror.Error {
		return read(key, Field{v, f.Path})
	})
}

func (f Field) members(
	known func(key string) bool, read func(key string, v gjson.Result) *apierror.Error,
) *apierror.Error {
	if !f.IsObject() {
		return f.mismatch("an object")
	}

	var err *apierror.Error
	var seen names
	each(f.Result, func(key string, v gjson.Result) bool {
		if seen.add(key) {
			err = f.duplicate(known != nil && known(key), key)
			return false
		}

		// Only now: a null and another value of its name are a duplicate too.
		if v.Type == gjson.Null {
			return true
		}

		err = read(key, v)
		return err == nil
	})
	return err
}

// maxFields is the most fields of an object of the API. No API has nearly as many.
const maxFields = 4096

func (f Field) tooManyFields() *apierror.Error {
	if f.Path == "" {
		return apierror.Invalid("", "The request has more than %d fields.", maxFields)
	}
	return apierror.Invalid(f.Path, "The field %q has more than %d fields.", clip(f.Path), maxFields)
}

// duplicate returns the error for a field that occurs more than once in f.
func (f Field) duplicate(known bool, key string) *apierror.Error {
	switch {
	case known:
		return apierror.Invalid(f.child(key), "The field %q is given more than once. Send it only once.", key)
	case f.Path == "":
		return apierror.Invalid("", "A field of the request is given more than once. Send each field only once.")
	}
	return apierror.Invalid(f.Path, "A field in %q is given more than once. Send each field only once.", f.Path)
}

// Elements calls read for every element of the array f, including nulls, until
// read fails.
func (f Field) Elements(read func(i int, v Field) *apierror.Error) *apierror.Error {
	if !f.IsArray() {
		return f.mismatch("an array")
	}

	var err *apierror.Error
	i := 0
	each(f.Result, func(_ string, v gjson.Result) bool {
		err = read(i, Field{v, f.Path + "[" + strconv.Itoa(i) + "]"})
		i++
		return err == nil
	})
	return err
}

// Text returns the string f. Any other type is an error.
func (f Field) Text() (string, *apierror.Error) {
	if f.Type != gjson.String {
		return "", f.mismatch("a string")
	}
	return f.Str, nil
}

// RequireText returns an error unless one of the members, which are paths in the object f, is
// a string that is not empty. The error names the first.
func (f Field) RequireText(members ...string) *apierror.Error {
	for _, member := range members {
		if f.Get(member).Str != "" {
			return nil
		}
	}

	path := f.Path + "." + members[0]
	return apierror.Invalid(path,
		"The field %q is missing, empty, or no string. Send it, or leave out what it belongs to.", clip(path))
}

// MaxShortText is the most bytes that [Field.ShortText] accepts.
const MaxShortText = 256

// ShortText returns the string f, such as a name or an id, of at most
// [MaxShortText] bytes. The result is a copy, which may outlive the request
// body.
func (f Field) ShortText() (string, *apierror.Error) {
	s, err := f.Text()
	if len(s) > MaxShortText {
		return "", apierror.Invalid(f.Path, "The field %q is longer than %d bytes.", clip(f.Path), MaxShortText)
	}
	return strings.Clone(s), err
}

// Switch returns the boolean f. Any other type is an error.
func (f Field) Switch() (bool, *apierror.Error) {
	if !f.IsBool() {
		return false, f.mismatch("a boolean")
	}
	return f.Type == gjson.True, nil
}

// Number returns the number f, which must be at least least and at most most.
func (f Field) Number(least, most float64) (float64, *apierror.Error) {
	if f.Type != gjson.Number {
		return 0, f.mismatch("a number")
	}

	// NaN, which no comparison holds for, is refused too.
	if !(f.Num >= least && f.Num <= most) {
		return 0, apierror.Invalid(f.Path, "The field %q must be between %v and %v.", clip(f.Path), least, most)
	}
	return f.Num, nil
}

// Integer returns the whole number f, which must be at least least and at most
// most. A fraction of zero is accepted: 3.0 is 3.
func (f Field) Integer(least, most int64) (int64, *apierror.Error) {
	if f.Type != gjson.Number {
		return 0, f.mismatch("an integer")
	}

	// Above 2^53 a float64 does not have each whole number, so that it may be another one.
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

// SetSwitch sets dst to the result of [Field.Switch].
func (f Field) SetSwitch(dst *bool) (err *apierror.Error) {
	*dst, err = f.Switch()
	return err
}

// SetNumber sets dst to the result of [Field.Number].
func (f Field) SetNumber(dst **float64, least, most float64) *apierror.Error {
	n, err := f.Number(least, most)
	*dst = &n
	return err
}

// SetInteger sets dst to the result of [Field.Integer].
func (f Field) SetInteger(dst *int, least, most int64) *apierror.Error {
	n, err := f.Integer(least, most)
	*dst = int(n)
	return err
}

// mismatch returns the error for a value of the wrong type.
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

// clip shortens a name for an error text, since a client may have chosen it.
func clip(text string) string {
	const most = 128
	if len(text) <= most {
		return text
	}

	cut := most
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "..."
}

// maxList is the most names that are kept in a list, which is searched
// linearly.
const maxList = 16

// names is a set of the field names of one object: a list of up to maxList
// names, then a map.
type names struct {
	list [maxList]string
	n    int
	set  map[string]struct{}
}

// add adds name and reports whether it was present before.
func (n *names) add(name string) bool {
	if n.set == nil && n.n < maxList {
		if slices.Contains(n.list[:n.n], name) {
			return true
		}
		n.list[n.n] = name
		n.n++
		return false
	}

	if n.set == nil {
		n.set = make(map[string]struct{}, 2*maxList)
		for _, s := range n.list {
			n.set[s] = struct{}{}
		}
	}

	_, present := n.set[name]
	n.set[name] = struct{}{}
	return present
}
