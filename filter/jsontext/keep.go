package jsontext

// Keep is what a record keeps of the values of a field: package record writes them down, so that an
// exchange can be shown and made again. All rows of one name say the same, or nothing: which object a
// member is in is not looked at.
type Keep int

const (
	// KeepByRow is what the row asks for. Of a mapped field it is KeepMembers: without it the exchange
	// could not be made again. A row for a credential, for what names a user, or for an address must
	// say so. Of a refused one it is numbers, and what is accepted all the same. Of an ignored one it is
	// nothing.
	KeepByRow Keep = iota
	// KeepMembers keeps texts and numbers, and members of objects by their own rows.
	KeepMembers
	// KeepNothing replaces texts and numbers, and objects and arrays as a whole.
	KeepNothing
	// KeepContent is KeepMembers, but objects are kept as guarded ones: what a model or a tool wrote
	// is an object in places where a client may write a text or parts.
	KeepContent
	// KeepGuarded keeps members of any name, except what every list of secrets has, at any depth. A
	// text that is a URL is kept as an address.
	KeepGuarded
	// KeepWhole keeps everything. Schemas and arguments have names of their own, and stand in the
	// prompt.
	KeepWhole
	// KeepNames keeps the names of an object's members, and of each value nothing.
	KeepNames
	// KeepAddress keeps a URL without user, query and fragment. data: URLs are contents.
	KeepAddress
	// KeepServer keeps a URL without user, path, query and fragment.
	KeepServer
	// KeepLink is KeepMembers, but a text that is a URL is kept as an address.
	KeepLink
)

// Described is a row without its reader: what becomes of a field.
type Described struct {
	State string // mapped, refused, ignored, or skipped
	// Effect is what docs/compatibility.md says of it: why the field is refused or ignored. Of a
	// mapped field it is empty, and only the document says what it does.
	Effect string
	// Unless are the values of a refused field that are accepted; nil: those that ask for nothing.
	Unless []string
	Keep   Keep
}

// Describe describes the rows of a table.
func (t Table[D]) Describe() map[string]Described {
	all := make(map[string]Described, len(t))
	for name, row := range t {
		d := Described{State: "mapped", Keep: row.Keep}
		switch {
		case row.Ignored != "":
			d.State, d.Effect = "ignored", row.Ignored
		case row.Refused != "":
			d.State, d.Effect, d.Unless = "refused", row.Refused, row.Unless
		}
		all[name] = d
	}
	return all
}

// Objects are the described tables of the objects of a request, by their paths: "" is the request
// itself, messages the elements of that list, and input[message] those of that type.
type Objects map[string]map[string]Described
