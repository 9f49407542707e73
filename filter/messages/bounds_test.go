package messages

import (
	"context"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
)

// TestManyBlocks shows that requests of many small parts do not take much more memory
// than they have bytes.
func TestManyBlocks(t *testing.T) {
	const size = 8 << 20
	many := func(part string) string {
		var b strings.Builder
		for i := 0; b.Len() < size; i++ {
			b.WriteString(strings.ReplaceAll(part, "N", strconv.Itoa(i)) + ",")
		}
		return strings.TrimSuffix(b.String(), ",")
	}
	blocks := func(part string) string {
		return conversation(`{"role":"assistant","content":[`+many(part)+`]}`, ``)
	}
	for name, body := range map[string]string{
		"messages":                   conversation(many(`{"role":"user","content":"a"}`), ``),
		"messages in turn":           conversation(many(`{"role":"user","content":"a"},{"role":"assistant","content":"a"}`), ``),
		"texts":                      blocks(`{"type":"text","text":"a"}`),
		"thinking":                   blocks(`{"type":"thinking","thinking":"a"}`),
		"signatures":                 blocks(`{"type":"thinking","signature":"Ag` + strings.Repeat("A", 60) + `"}`),
		"calls":                      blocks(`{"type":"tool_use","id":"N","name":"f"}`),
		"calls that a server ran":    blocks(`{"type":"server_tool_use","id":"N","name":"f"}`),
		"references to found tools":  conversation(userHi+`,`+callA+`,{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_a","content":[`+many(`{"type":"tool_reference","tool_name":"N"}`)+`]}]}`, ``),
		"changes of tools":           conversation(`{"role":"system","content":[`+many(`{"type":"tool_addition","tool":{"type":"tool_definition","definition":{"name":"N"}}}`)+`]}`, ``),
		"compactions":                blocks(`{"type":"compaction","content":"a"}`),
		"references of a search":     conversation(userHi+`,{"role":"assistant","content":[{"type":"server_tool_use","id":"s","name":"tool_search_tool_bm25","input":{}},{"type":"tool_search_tool_result","tool_use_id":"s","content":{"tool_references":[`+many(`{"type":"tool_reference","tool_name":"N"}`)+`]}}]}`, ``),
		"texts of a result":          conversation(userHi+`,`+callA+`,{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_a","content":[`+many(`{"type":"text","text":"a"}`)+`]}]}`, ``),
		"texts of a document":        conversation(`{"role":"user","content":[{"type":"document","source":{"type":"content","content":[`+many(`{"type":"text","text":"a"}`)+`]}}]}`, ``),
		"texts of the system prompt": ask(`,"system":[` + many(`{"type":"text","text":"a"}`) + `]`),
		"unknown fields":             ask(`,"x":{` + many(`"N":1`) + `},` + many(`"N":1`)),
	} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		_, _ = newAPI(t, 1).Decode(context.Background(), []byte(body), apitest.NewContext())
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 16*size {
			t.Errorf("%s: %d bytes for each of the request", name, took/size)
		}
	}
}
