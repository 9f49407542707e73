package tools

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// TestBounded has answers with more in them than is decoded, and ordinary large ones: a text
// is one value, whatever is in it.
func TestBounded(t *testing.T) {
	t.Parallel()
	list := func(n int, element string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + "]"
	}

	for name, c := range map[string]struct {
		result string
		reads  bool
	}{
		"a large text":       {`{"content":[{"type":"text","text":"` + strings.Repeat(`a,[{\"\\`, 1<<20) + `"}]}`, true},
		"a table":            {`{"structuredContent":` + list(10_000, `{"a":1,"b":"x,y"}`) + `}`, true},
		"many values":        {`{"structuredContent":` + list(600_000, "1") + `}`, false},
		"many empty arrays":  {`{"content":` + list(400_000, "[]") + `}`, false},
		"a list of tools":    {`{"tools":` + list(1000, `{"name":"a","inputSchema":{"type":"object"}}`) + `}`, true},
		"a list of no tools": {`{"tools":` + list(5000, `{}`) + `}`, false},
		"cut in a string":    {`{"content":"\`, true},
	} {
		m := &jsonrpc.Response{Result: json.RawMessage(c.result)}
		if got := bounded(m); (got == m) != c.reads || got.Error == nil && !c.reads {
			t.Errorf("%s: read %t", name, got == m)
		}
	}
}

// TestValuesTakeRoom has answers of many values: what is decoded of them counts among the bytes
// in flight, as long as the answer does.
func TestValuesTakeRoom(t *testing.T) {
	t.Parallel()
	answer := func(values int) *jsonrpc.Response {
		return &jsonrpc.Response{Result: json.RawMessage(`{"structuredContent":[` + strings.Repeat("0,", values) + `0]}`)}
	}
	total := &inflight{limit: 1 << 20}
	begun := func() *request { return &request{share: share{total: total}} }

	first := begun()
	if m := answer(10_000); first.roomFor(m) != m || total.bytes.Load() < 10_000*valueBytes {
		t.Errorf("%d bytes are in flight", total.bytes.Load())
	}
	second := begun()
	if m := second.roomFor(answer(10_000)); m.Error == nil || !second.snapshot().busy {
		t.Errorf("there is room for %v", m)
	}
	first.share.end()
	if m := answer(10_000); second.roomFor(m) != m {
		t.Error("the first answer is read, and there is no room for the second")
	}
	second.share.end()
	if n := total.bytes.Load(); n != 0 {
		t.Errorf("%d bytes are in flight", n)
	}
}
