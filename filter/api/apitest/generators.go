package apitest

import (
	_ "embed"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
)

//go:embed testdata/generators.tsv
var generators string

// GeneratedSchemas returns the schemas that schema generators of client libraries
// write for their types, by generator and type.
func GeneratedSchemas() map[string]string {
	schemas := map[string]string{}
	for line := range strings.Lines(generators) {
		if name, schema, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t"); ok && name[0] != '#' {
			schemas[name] = schema
		}
	}
	return schemas
}

// Generated shows that requests with the schemas of generators are accepted. places
// are the members of requests for [API.Ask] by the places where a schema can be:
// SCHEMA stands for it, and ARGUMENTS for an object with it as a property. A schema
// that grammars do not enforce wholly is checked before the client gets any of the
// reply, if the name of the place begins with "strict".
func (a *API) Generated(t *testing.T, places map[string]string) {
	for place, members := range places {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			for name, schema := range GeneratedSchemas() {
				arguments := asArguments(schema)
				request := strings.NewReplacer("SCHEMA", schema, "ARGUMENTS", arguments).Replace(members)
				// What the grammar leaves out has to be checked on the output, which is held until then.
				left := constraint.Unenforced(nil, []byte(schema)) != nil
				for _, streamed := range []bool{false, true} {
					body := a.Ask(request)
					if streamed {
						body = With(t, body, a.Streamed...)
					}
					q, err := a.Decode([]byte(body), NewContext())
					if err != nil {
						t.Errorf("%s, streamed: %t: %v", name, streamed, err)
						continue
					}

					held := q.NewReply(a.Mode).Turn().NewCheck() != nil
					if want := left && strings.HasPrefix(place, "strict"); held != want {
						t.Errorf("%s, streamed: %t: the reply is held: %t", name, streamed, held)
					}
					if q.Engine().Constraint == nil {
						t.Errorf("%s: the engine gets no constraint", name)
					}
				}
			}
		})
	}
}

// asArguments returns the schema of an object with a property of a schema, whose
// definitions stay where its references lead.
func asArguments(schema string) string {
	definitions := ""
	if defs := gjson.Get(schema, "$defs"); defs.Exists() {
		definitions = `,"$defs":` + defs.Raw
	}
	return `{"type":"object","properties":{"v":` + schema + `},"required":["v"],"additionalProperties":false` + definitions + `}`
}
