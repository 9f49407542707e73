package record

import "github.com/envoy-harmony/envoy-harmony/filter/jsontext"

// Members is what is kept of each member.
func (k *Keeper) Members() map[string]jsontext.Keep {
	all := map[string]jsontext.Keep{}
	for name, m := range k.members {
		all[name] = m.keep
	}
	return all
}

// KeptAt is what is kept of a member in another one where that differs.
func KeptAt(name, in string) jsontext.Keep { return keptPlaces[name][in] }
