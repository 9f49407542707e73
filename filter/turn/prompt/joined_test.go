package prompt

import (
	"encoding/json"
	"runtime"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// TestManyJoin shows that items with tools cost what each of them has, and no copy of
// those before.
func TestManyJoin(t *testing.T) {
	items := make([]item.Item, 10_000)
	for i := range items {
		items[i] = found("read")
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	joined := joinedIn([]*item.JoinedTools{items[0].Tools}, items)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; len(joined) != len(items)+1 || took > 1<<20 {
		t.Errorf("%d items take %d bytes", len(joined), took)
	}
}

// found is an item with one tool of the namespace "mcp.docs", which the model sees as
// mcp_docs.
func found(name string) item.Item {
	return item.Item{Kind: item.Tools, Tools: &item.JoinedTools{Namespaces: []harmony.Namespace{{Name: "mcp.docs", Description: "The documents.", Tools: []harmony.Tool{{
		Name: name, Description: "Reads " + name + ".", Parameters: json.RawMessage(`{"type":"object","properties":{"id":{"type":"string"}},"required":["id"]}`),
	}}}}}}
}
