package read

import (
	"strconv"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// What an item repeats is found without a look at each of the latest items.
func TestRepeats(t *testing.T) { //nolint:paralleltest // it counts allocations
	read := func(text string) *item.Item {
		it, err := item.Read(jsontext.Field{Result: gjson.Parse(text)})
		if err != nil {
			t.Fatal(err)
		}
		return &it
	}
	turn := &storedTurn{}
	for i := range 2000 {
		id := "msg_\"" + strconv.Itoa(i)
		it := read(`{"role":"user","content":"` + strconv.Itoa(i) + `"}`)
		turn.latest = append(turn.latest, store.Item{ID: id, JSON: it.AppendStored(nil, id)})
	}
	known, other, named := read(`{"role":"user","content":"1999"}`), read(`{"role":"user","content":"2000"}`), read(`{"id":"msg_x","role":"user","content":"1"}`)
	if !turn.repeats(known) || turn.repeats(other) || turn.repeats(named) {
		t.Error("repeated items and others are confused")
	}
	if n := testing.AllocsPerRun(10, func() { turn.repeats(other) }); n > 100 {
		t.Errorf("%v allocations", n)
	}
}
