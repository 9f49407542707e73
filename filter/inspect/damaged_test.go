package inspect

import (
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/record"
)

// What is read of a damaged file can be shown: nothing in it ends the program.
func TestOfDamaged(t *testing.T) {
	t.Parallel()
	for _, event := range []string{
		`{"kind":"call"}`, `{"kind":"answer"}`, `{"kind":"tokens"}`, `{"kind":"store"}`, `{"kind":"tool"}`, `{"kind":"refused"}`, `{"kind":"broken"}`, `{"kind":"found"}`,
		`{"kind":"call","call":{"shared":-1,"prompt":[1]}}`,
	} {
		text := `{"format":1,"events":[{"kind":"call","call":{"prompt":[1]}},` + event + `]}`
		err := record.Read(strings.NewReader(text), func(r *record.Record) { Of(r) })
		if err == nil || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("%s: %v", event, err)
		}
	}
}
