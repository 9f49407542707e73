package toolset

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// TestJoinedByReference shows that each item gets the tools that it refers to, whichever of the
// items the conversation has dropped in between, and in whatever order they stand.
func TestJoinedByReference(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		var input turn.Input
		var ignored jsontext.Ignored
		r := NewReader(hosted.Config{}, apitest.NewContext(), &input, &ignored)
		const most = 6
		definitions := []byte("[")
		for i := range most {
			definitions = append(definitions, `{"name":"f`+strconv.Itoa(i)+`","input_schema":{},"defer_loading":true},`...)
		}
		definitions[len(definitions)-1] = ']'
		if err := r.ReadTools(jsontext.Field{Result: gjson.ParseBytes(definitions), Path: "tools"}); err != nil {
			t.Fatal(err)
		}

		wanted := map[*turn.JoinedTools]string{}
		for i := range most {
			name := "f" + strconv.Itoa(i)
			item, _ := r.Join("messages["+strconv.Itoa(i)+"]", []string{name})
			wanted[item.Tools] = name
			input.Items = append(input.Items, item, turn.Item{Kind: turn.User, Text: name})
		}
		input.Items = slices.DeleteFunc(input.Items, func(turn.Item) bool { return rng.IntN(3) == 0 })
		rng.Shuffle(len(input.Items), func(i, j int) { input.Items[i], input.Items[j] = input.Items[j], input.Items[i] })

		if err := r.Offer(); err != nil {
			t.Fatal(err)
		}
		for _, item := range input.Items {
			if item.Kind != turn.Tools {
				continue
			}
			if spaces := item.Tools.Namespaces; len(spaces) != 1 || len(spaces[0].Tools) != 1 || spaces[0].Tools[0].Name != wanted[item.Tools] {
				t.Fatalf("the item of %s has %+v", wanted[item.Tools], spaces)
			}
		}
	}
}
