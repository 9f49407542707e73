package telemetry

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// The documentation has the operations of all methods of a store, on whatever page, and no
// others.
func TestOperationsAreDocumented(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	list := ""
	for _, name := range pages {
		page, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, after, found := strings.Cut(string(page), "Operations of the store: "); found {
			list, _, _ = strings.Cut(after, "\n\n")
		}
	}
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(list, -1) {
		documented[m[1]] = true
	}

	broken := store.Intercept(nil, func(context.Context, *store.Call, func(context.Context) error) error {
		return errBroken
	})
	counted := map[string]bool{}
	s := reflect.ValueOf(ObserveStore(broken, func(operation string) { counted[operation] = true }, "", nil))
	methods := reflect.TypeFor[store.Store]()
	for i := range methods.NumMethod() {
		name := methods.Method(i).Name
		if name == "Close" {
			continue
		}
		method := s.MethodByName(name)
		in := []reflect.Value{reflect.ValueOf(t.Context())}
		for n := 1; n < method.Type().NumIn(); n++ {
			in = append(in, reflect.Zero(method.Type().In(n)))
		}
		method.Call(in)
	}
	if diff := cmp.Diff(documented, counted); diff != "" {
		t.Errorf("in the documentation only (-), in the code only (+):\n%s", diff)
	}
}
