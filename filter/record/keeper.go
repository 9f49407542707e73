package record

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

// Keeper says what records keep of JSON: of the members in the tables of the APIs what their rows
// say, and of others what is on the lists of this package. A nil Keeper has only the lists. It is safe for
// concurrent use.
type Keeper struct {
	members map[string]member
}

// member is what may be kept of a member, wherever it stands.
type member struct {
	keep keep
	// unless are the values of a refused field that are accepted, for keep accepted.
	unless []string
	// asked says that this holds for what a client asks for. In what the filter writes, a member of the
	// name of a refused or ignored field is another one.
	asked bool
}

// NewKeeper makes a Keeper of the fields of all APIs. What a row says by its Keep goes before the lists,
// and these before what it says by its state: a name such as text is in items without tables too.
// Where rows of one name say otherwise, nothing is kept of it.
func NewKeeper(apis ...jsontext.Objects) *Keeper {
	rows := map[string][]jsontext.Described{}
	for _, objects := range apis {
		for _, fields := range objects {
			for name, row := range fields {
				rows[name] = append(rows[name], row)
			}
		}
	}

	k := &Keeper{members: maps.Clone(listed)}
	for name, described := range rows {
		m, says := ofRows(described)
		if _, known := listed[name]; !known || says {
			k.members[name] = m
		}
	}
	return k
}

// ofRows is what may be kept of a member that has these rows, in whatever objects. says is that a row
// says so by its Keep.
func ofRows(rows []jsontext.Described) (m member, says bool) {
	mapped, refused := false, false
	for _, row := range rows {
		mapped, refused = mapped || row.State == "mapped", refused || row.State == "refused"
		m.unless = append(m.unless, row.Unless...)

		switch {
		case row.Keep == jsontext.KeepByRow:
		case m.keep == jsontext.KeepByRow:
			m.keep = row.Keep
		case m.keep != row.Keep:
			return member{keep: nothing}, true
		}
	}

	says = m.keep != jsontext.KeepByRow
	switch {
	case says:
	case mapped:
		m.keep = members
	case refused:
		m.keep, m.asked = accepted, true
	default:
		m.keep, m.asked = nothing, true
	}
	return m, says
}

// of returns what may be kept of a member; false: no table and no list has it.
func (k *Keeper) of(name string) (m member, known bool) {
	all := listed
	if k != nil {
		all = k.members
	}
	m, known = all[name]
	return m, known
}

// Body returns the request's body for a record, of its own memory. Of what is no JSON there
// is the length.
func (k *Keeper) Body(body []byte) Text {
	clean := k.cleanJSON(body, false)
	if clean == nil {
		return NewText(body).Redacted()
	}
	// A copy: the body's memory is used again.
	return NewText(slices.Clone(clean))
}

// Reply is a part of a reply as a record has it: whole events, or a whole object.
func (k *Keeper) Reply(p []byte) []byte { return k.cleanReply(p) }

// Stored is the JSON of an access to the store as a record has it: what is asked for, or
// what came.
func (k *Keeper) Stored(p json.RawMessage) json.RawMessage {
	if len(p) == 0 {
		return p
	}
	if clean := k.cleanJSON(p, true); clean != nil {
		return clean
	}
	// This cannot be, since json.Marshal made it; if it were, nothing of it may be kept.
	return hiddenText
}
