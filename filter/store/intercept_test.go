package store_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// sample returns a value of a type that differs from those of other n.
func sample(t *testing.T, of reflect.Type, n int) reflect.Value {
	t.Helper()
	value := reflect.New(of).Elem()
	switch {
	case of.Kind() == reflect.String:
		value.SetString(string(rune('a' + n)))
	case of.Kind() == reflect.Int, of.Kind() == reflect.Int64:
		value.SetInt(int64(n))
	case of.Kind() == reflect.Slice:
		value.Set(reflect.MakeSlice(of, n, n))
	case of.Kind() == reflect.Map:
		value.Set(reflect.MakeMap(of))
	case of.Kind() == reflect.Pointer:
		value.Set(reflect.New(of.Elem()))
	case of == reflect.TypeFor[store.Batch](), of == reflect.TypeFor[store.Page]():
	default:
		t.Fatalf("no sample of %s", of)
	}
	return value
}

// Each method is an operation of its own, with all arguments in their order and a result of
// its type. TestBreakerStore shows that the methods of the same name are called.
func TestInterceptMethods(t *testing.T) {
	t.Parallel()
	var made []*store.Call
	s := store.Intercept(nil, func(_ context.Context, c *store.Call, _ func(context.Context) error) error {
		made = append(made, c)
		return nil
	})

	operations := map[store.Operation]string{}
	methods := reflect.TypeFor[store.Store]()
	for i := range methods.NumMethod() {
		name := methods.Method(i).Name
		if name == "Close" {
			continue
		}

		method := reflect.ValueOf(s).MethodByName(name)
		in := []reflect.Value{reflect.ValueOf(t.Context())}
		arguments := []any{}
		for n := 1; n < method.Type().NumIn(); n++ {
			in = append(in, sample(t, method.Type().In(n), n))
			arguments = append(arguments, in[n].Interface())
		}
		made = nil
		got := method.Call(in)

		if len(made) != 1 {
			t.Fatalf("%s: %d calls", name, len(made))
		}
		c := made[0]
		if other := operations[c.Operation]; other != "" || c.Operation == "" {
			t.Errorf("%s is the operation %q, as is %q", name, c.Operation, other)
		}
		operations[c.Operation] = name
		if diff := cmp.Diff(arguments, c.Arguments); diff != "" {
			t.Errorf("the arguments of %s (-want +got):\n%s", name, diff)
		}
		result := reflect.TypeFor[struct{}]()
		if len(got) == 2 {
			result = got[0].Type()
		}
		if reflect.TypeOf(c.Result) != reflect.PointerTo(result) {
			t.Errorf("the result of %s is a %T", name, c.Result)
		}
	}
}

// The interceptor that was added last comes first. With an error, there is no result.
func TestIntercept(t *testing.T) {
	t.Parallel()
	var order []string
	broken := errors.New("broken")
	around := func(name string, after error) store.Interceptor {
		return func(ctx context.Context, _ *store.Call, do func(context.Context) error) error {
			order = append(order, name)
			return errors.Join(do(ctx), after)
		}
	}
	s := store.Intercept(store.NewMemory(testOptions), around("inner", nil))
	if err := s.PutTexts(t.Context(), "a", map[string]string{"x": "1"}); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"x": "1"}
	if texts, err := s.Texts(t.Context(), "a", []string{"x"}); err != nil || !cmp.Equal(texts, want) {
		t.Errorf("%v, %v", texts, err)
	}

	order = nil
	texts, err := store.Intercept(s, around("outer", broken)).Texts(t.Context(), "a", []string{"x"})
	if texts != nil || !errors.Is(err, broken) || !slices.Equal(order, []string{"outer", "inner"}) {
		t.Errorf("%v, %v, in the order %v", texts, err, order)
	}
}

// BenchmarkIntercept is what an interceptor costs an access.
func BenchmarkIntercept(b *testing.B) {
	pass := func(ctx context.Context, _ *store.Call, do func(context.Context) error) error { return do(ctx) }
	memory := store.NewMemory(testOptions)
	for name, s := range map[string]store.Store{
		"none": memory,
		"one":  store.Intercept(memory, pass),
		"two":  store.Intercept(store.Intercept(memory, pass), pass),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Lock(b.Context(), "tenant", "conversation", "owner", time.Second); err == nil {
					b.Fatal("no error")
				}
			}
		})
	}
}
