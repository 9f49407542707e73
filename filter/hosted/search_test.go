package hosted

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// TestMatchDeferred shows which tools a regular expression finds, and what is none.
func TestMatchDeferred(t *testing.T) {
	t.Parallel()
	tools := []*Deferred{
		{Namespace: "functions", Tool: harmony.Tool{Name: "get_user_data", Description: "Reads a user."}},
		{Namespace: "functions", Tool: harmony.Tool{Name: "send_mail", Parameters: json.RawMessage(`{"properties":{"recipient":{}}}`)}},
		{Namespace: "functions", Tool: harmony.Tool{Name: "get_weather_data", Description: "The weather of a city."}},
	}
	for _, c := range []struct {
		arguments string
		want      []int
	}{
		{`{"pattern":"get_.*_data"}`, []int{0, 2}},
		{`{"pattern":"get_.*_data","limit":1}`, []int{0}},
		{`{"query":"weather"}`, []int{2}},
		{`{"pattern":"WEATHER|Recipient"}`, []int{1, 2}},
		{`{"pattern":"(?i)reads"}`, []int{0}},
		{`{"pattern":"zebra"}`, nil},
	} {
		if got, err := matchDeferred(free, tools, c.arguments); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s finds %v, %v; want %v", c.arguments, got, err, c.want)
		}
	}
	for _, arguments := range []string{`{}`, `{"pattern":""}`, `{"pattern":7}`, `{"pattern":"("}`, `{"pattern":"(?=a)"}`, `{"pattern":"` + strings.Repeat("a", 201) + `"}`, ``} {
		if got, err := matchDeferred(free, tools, arguments); !errors.Is(err, ErrPattern) {
			t.Errorf("%q finds %v, %v", arguments, got, err)
		}
	}
}

// free takes any steps.
func free(int) error { return nil }

// TestMatchDeferredIsBounded has patterns that a model can be asked to write: 181 bytes took
// 0.6 s for each tool. What is compared with a text is taken first.
func TestMatchDeferredIsBounded(t *testing.T) {
	t.Parallel()
	tools := make([]*Deferred, 20)
	for i := range tools {
		tools[i] = &Deferred{Tool: harmony.Tool{Name: "t", Description: strings.Repeat("ab ", 1000), Parameters: json.RawMessage(strings.Repeat("9", 5000))}}
	}

	for _, pattern := range []string{
		strings.Repeat(".{0,1000}", 20) + "Q", strings.Repeat(`\\pL{0,999}`, 17), "(?:(?:a{9}){9}){9}", "((((a?b?){1,50}){1,10})|x){0,2}",
	} {
		if got, err := matchDeferred(free, tools, `{"pattern":"`+pattern+`"}`); !errors.Is(err, ErrWork) {
			t.Errorf("%s finds %v, %v", pattern, got, err)
		}
	}

	// The dearest that is allowed, until the steps are used up.
	left, calls := 100_000, 0
	_, err := matchDeferred(func(steps int) error {
		calls++
		if left -= steps; left < 0 {
			return errors.New("used up")
		}
		return nil
	}, tools, `{"pattern":"(?:a?b?c?){70}Q"}`)
	if !errors.Is(err, ErrWork) || calls > 5 {
		t.Errorf("%v after %d texts", err, calls)
	}
}

// FuzzSearchArguments shows that the arguments of a search are a JSON object, whatever
// the model writes, and that nothing of its text is lost.
func FuzzSearchArguments(f *testing.F) {
	for _, seed := range []string{"", "cats", `{"query":"cats"}`, ` { "query" : "a" } `, `{"query":"a"`, `{}x`, "\xff", `{"a":"\ud800"}`, "[]"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := SearchArguments(text)
		var object map[string]any
		if err := json.Unmarshal([]byte(got), &object); err != nil || object == nil {
			t.Fatalf("%q becomes %q: %v", text, got, err)
		}
		if again := SearchArguments(got); again != got {
			t.Errorf("%q becomes %q and then %q", text, got, again)
		}
		if len(got) > 6*len(text)+len(`{"query":""}`) {
			t.Errorf("%d bytes become %d", len(text), len(got))
		}
		var before any
		if json.Unmarshal([]byte(text), &before) == nil {
			if diff := cmp.Diff(before, any(object)); diff != "" && jsontext.IsObject(text) {
				t.Errorf("the object differs (-text +arguments):\n%s", diff)
			}
		}
	})
}
