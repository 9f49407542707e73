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
		if got, err := MatchDeferred(tools, c.arguments); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s finds %v, %v; want %v", c.arguments, got, err, c.want)
		}
	}
	for _, arguments := range []string{`{}`, `{"pattern":""}`, `{"pattern":7}`, `{"pattern":"("}`, `{"pattern":"(?=a)"}`, `{"pattern":"` + strings.Repeat("a", 201) + `"}`, ``} {
		if got, err := MatchDeferred(tools, arguments); !errors.Is(err, ErrPattern) {
			t.Errorf("%q finds %v, %v", arguments, got, err)
		}
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
