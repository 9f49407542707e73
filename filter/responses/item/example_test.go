package item_test

import (
	"fmt"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// An item of an input is stored with all that clients may leave out.
func ExampleRead() {
	it, err := item.Read(jsontext.Field{Result: gjson.Parse(`{"role":"user","content":"Hi"}`), Path: "input[0]"})
	fmt.Println(it.Kind, it.Role, err)
	fmt.Printf("%s\n", it.AppendStored(nil, "msg_1"))
	// Output:
	// message user <nil>
	// {"type":"message","id":"msg_1","status":"completed","role":"user","content":[{"type":"input_text","text":"Hi"}]}
}

// An item of the output is written as it is when an event needs it.
func ExampleOutput() {
	it := item.Output{Kind: item.Function, ID: "fc_1", Call: &turn.CalledTool{ID: "call_1", Name: "get_weather"}, Text: []byte(`{\"city\":\"Paris\"}`)}
	fmt.Printf("%s\n", it.Append(nil, item.StatusInProgress))
	fmt.Printf("%s\n", it.Append(nil, item.StatusCompleted))
	// Output:
	// {"type":"function_call","id":"fc_1","status":"in_progress","call_id":"call_1","name":"get_weather","arguments":""}
	// {"type":"function_call","id":"fc_1","status":"completed","call_id":"call_1","name":"get_weather","arguments":"{\"city\":\"Paris\"}"}
}

// What the model sees in the place of a stored item is not shown to clients.
func ExampleShown() {
	call := turn.Item{Namespace: "browser", Name: "open", Text: `{"id":1}`, Builtin: true}
	json := item.WithModelView([]byte(`{"type":"web_search_call","id":"ws_1"}`), &call, &turn.Item{Text: "A page."}, "cntr_1")
	fmt.Printf("%s\n%s\n", json, item.Shown(store.Item{ID: "ws_1", JSON: json}))
	// Output:
	// {"model_view":{"namespace":"browser","name":"open","input":"{\"id\":1}","output":"A page.","container":"cntr_1","builtin":true},"type":"web_search_call","id":"ws_1"}
	// {"type":"web_search_call","id":"ws_1"}
}
