package apitest

import (
	"slices"
	"strings"
	"testing"
)

// RefusesVocabulary shows that no name of another service for what the API has is ignored, as
// testdata/vocabulary.txt lists them by hand: each is a 400 that names it. body has %s where a
// field is added. own are names of the list that the API has, or that ask for what it does anyway.
func (a *API) RefusesVocabulary(t *testing.T, body string, own ...string) {
	t.Helper()
	used := map[string]bool{}
	names := 0
	for line := range strings.Lines(ReadFile(t, "../api/apitest/testdata/vocabulary.txt")) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		for _, name := range strings.Fields(line) {
			names++
			if slices.Contains(own, name) {
				used[name] = true
				continue
			}

			for value, refused := range map[string]bool{`{"x":1}`: true, `7`: true, `null`: false} {
				_, err := a.Decode([]byte(strings.Replace(body, "%s", `"`+name+`":`+value, 1)), NewContext())
				if refused != (err != nil) || err != nil && (err.Status != 400 || err.Param != name) {
					t.Errorf("%s of %s: %v", name, value, err)
				}
			}
		}
	}

	if names < 50 || len(used) != len(own) {
		t.Errorf("%d names, of which the API has %v", names, used)
	}
}

// RefusesSpellings shows what becomes of each field of a request in camel case: what would change
// the answer is refused, and what is ignored stays so.
func (a *API) RefusesSpellings(t *testing.T, o Objects, body string) {
	t.Helper()
	for name, h := range o[""] {
		camel := camelCase(name)
		if _, own := o[""][camel]; own {
			continue
		}
		r, err := a.Decode([]byte(strings.Replace(body, "%s", `"`+camel+`":{"x":1}`, 1)), NewContext())
		listed := err == nil && slices.Contains(r.Ignored(), camel)
		named := err != nil && err.Status == 400 && err.Param == camel
		if named == listed || listed != (h.State == "ignored") {
			t.Errorf("%s, which is %s: listed %t, %v", camel, h.State, listed, err)
		}
	}
}

// camelCase returns a name with capitals in place of its underscores.
func camelCase(name string) string {
	var camel strings.Builder
	for i, word := range strings.Split(name, "_") {
		if i > 0 && word != "" {
			word = strings.ToUpper(word[:1]) + word[1:]
		}
		camel.WriteString(word)
	}
	return camel.String()
}
