package item

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// FuzzStoredItem stores arbitrary items and reads them again: what is stored is JSON, is
// bounded, does not change when it is stored again, and what clients see of it does not
// have the model's view. Bytes that no item has been stored as do no harm.
func FuzzStoredItem(f *testing.F) {
	for _, seed := range []string{
		`{"role":"user","content":"Hi"}`,
		`{"type":"message","role":"assistant","content":"a","status":null}`,
		`{"type":"function_call","call_id":"c","name":"f","arguments":"{\"a\":1}","status":"incomplete"}`,
		`{"type":"mcp_call","id":"mcp_1","server_label":"s","name":"n","arguments":"{","status":"incomplete"}`,
		`{"type":"additional_tools","tools":[{"type":"mcp","server_label":"s","headers":{"A":"b"},"authorization":"x"},7]}`,
		`{"type":"reasoning","encrypted_content":"x","summary":[],"content":[]}`,
		`{"model_view":{"output":"x"},"type":"code_interpreter_call","id":"ci_1"}`,
		`{"id":"msg_1"}`, `{"type":"\ud800"}`, `{"type":"a","type":"b"}`, `{`, `7`, ``,
	} {
		f.Add([]byte(seed), "id", "out\"put")
	}
	f.Fuzz(func(t *testing.T, raw []byte, id, output string) {
		_, _ = ReadStored(store.Item{ID: id, JSON: raw}, "input")
		IsCutCall(store.Item{ID: id, JSON: raw})
		Shown(store.Item{ID: id, JSON: raw})
		root, apiErr := jsontext.Parse(raw)
		if apiErr != nil {
			return
		}
		it, apiErr := Read(jsontext.Field{Result: root, Path: "input[0]"})
		if apiErr != nil {
			if apiErr.Status != 400 {
				t.Errorf("not a refusal: %v", apiErr)
			}
			return
		}
		stored := it.AppendStored(nil, id)
		if !json.Valid(stored) {
			t.Fatalf("not JSON: %q", stored)
		}
		if len(stored) > 6*(len(raw)+len(id))+2*storedMembers {
			t.Errorf("%d bytes of an item of %d", len(stored), len(raw))
		}
		again, apiErr := ReadStored(store.Item{ID: id, JSON: stored}, "input[0]")
		if apiErr != nil {
			t.Fatalf("the stored item is not read: %v\n%s", apiErr, stored)
		}
		if again.Kind != it.Kind || again.Role != it.Role || again.CallID != it.CallID {
			t.Errorf("%s is stored as %s", raw, stored)
		}
		if diff := cmp.Diff(string(stored), string(again.AppendStored(nil, id))); diff != "" {
			t.Errorf("it is stored differently the second time:\n%s", diff)
		}
		viewed := WithModelView(stored, &turn.Item{Name: "python", Text: output}, &turn.Item{Text: output}, id)
		if shown := Shown(store.Item{ID: id, JSON: viewed}); string(shown) != string(Shown(store.Item{ID: id, JSON: stored})) && it.ModelView.Raw == "" {
			t.Errorf("with the view of the model it is shown as %s, not %s", shown, stored)
		}
	})
}
