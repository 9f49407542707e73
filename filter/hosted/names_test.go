package hosted

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/filter/work"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

func namedTools(names ...string) []tools.Tool {
	list := make([]tools.Tool, len(names))
	for i, name := range names {
		list[i] = tools.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object","properties":{"q":{"type":"string"}}}`)}
	}
	return list
}

// A server's tools reach the model under names of their own, whatever they are
// called.
func TestNumbered(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("п", 127)
	for name, c := range map[string]struct {
		listed []string
		want   map[string]string
	}{
		"none":                       {listed: []string{"search", "get weather", "python"}},
		"two":                        {listed: []string{"a.b", "a_b", "good"}, want: map[string]string{"a_b": "a_b_2"}},
		"three":                      {listed: []string{"a.b", "a/b", "a b"}, want: map[string]string{"a/b": "a_b_2", "a b": "a_b_3"}},
		"the number is taken":        {listed: []string{"a.b", "a_b", "a_b_2"}, want: map[string]string{"a_b": "a_b_3"}},
		"letters that are not ASCII": {listed: []string{"поиск", "найти"}},
		"signs":                      {listed: []string{"🔧", "🔨"}, want: map[string]string{"🔨": "__2"}},
		"composed":                   {listed: []string{"\u00e4", "a\u0308"}, want: map[string]string{"a\u0308": "ä_2"}},
		"reserved":                   {listed: []string{"python", "python_"}, want: map[string]string{"python_": "python__2"}},
		"long":                       {listed: []string{"a" + long + "!", "a" + long + "?"}, want: map[string]string{"a" + long + "?": "a" + strings.Repeat("п", 99) + "_2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			listed := namedTools(c.listed...)
			got := Numbered(listed)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			h := &Server{Label: "docs", MCP: &tools.Server{}}
			if odd := h.Reuse(apitest.NewContext(), listed); odd != nil {
				t.Error(odd)
			}
			rc := apitest.NewContext()
			if _, err := turn.Prepare(t.Context(), rc, &turn.Input{Items: []turn.Item{{Kind: turn.User, Text: "hi"}}, Tools: []harmony.Namespace{h.Offered()}}); err != nil {
				t.Errorf("the model cannot be offered them: %v", err)
			}
			for _, name := range c.listed {
				if back := h.FromModel(h.ToModel(name)); back != name {
					t.Errorf("%q comes back as %q", name, back)
				}
			}
		})
	}
	names := make([]string, 100)
	for i := range names { // of 256 bytes, alike to the model
		names[i] = strings.Repeat("x", 156) + strings.Repeat(".", i) + strings.Repeat("!", 100-i)
	}
	for _, seen := range Numbered(namedTools(names...)) {
		if err := new(turn.DefaultLimits()).CheckTool(harmony.Tool{Name: seen}); err != nil {
			t.Error(err)
		}
	}
}

// multiplied is a schema of 8^12 schemas, by references.
var multiplied = func() string {
	var b strings.Builder
	b.WriteString(`{"$defs":{"d12":{"type":"string"}`)
	for i := range 12 {
		ref := fmt.Sprintf(`{"$ref":"#/$defs/d%d"}`, i+1)
		fmt.Fprintf(&b, `,"d%d":{"anyOf":[%s]}`, i, strings.Repeat(ref+",", 7)+ref)
	}
	return b.String() + `},"type":"object","properties":{"x":{"$ref":"#/$defs/d0"}}}`
}()

// Tools that cannot be offered are left out, and an error for the operator names them.
func TestFitTools(t *testing.T) {
	t.Parallel()
	object := func(schema string) json.RawMessage { return json.RawMessage(schema) }
	rc := apitest.NewContext()
	for name, c := range map[string]struct {
		odd  tools.Tool
		says string
	}{
		"no name":       {tools.Tool{}, "no name"},
		"a long name":   {tools.Tool{Name: strings.Repeat("x", 257)}, "longer than 256 bytes"},
		"a deep schema": {tools.Tool{Name: "odd", InputSchema: object(strings.Repeat(`{"a":`, 65) + "1" + strings.Repeat("}", 65))}, `"odd": The parameters of tool "odd" nest more than 64`},
		"a huge schema": {tools.Tool{Name: "odd", InputSchema: object(`{"a":"` + strings.Repeat("x", rc.Limits.SchemaBytes) + `"}`)}, "larger than"},
		"no JSON":       {tools.Tool{Name: "odd", InputSchema: object(`{"maximum":1e999}`)}, `"odd": its parameters are not a valid JSON Schema`},
		"much work":     {tools.Tool{Name: "odd", InputSchema: object(multiplied)}, `"odd": its parameters take too many steps`},
		"twice":         {tools.Tool{Name: "first"}, `"first": It is listed twice`},
	} {
		fit, err := fitTools(rc, append(namedTools("first"), c.odd, namedTools("last")[0]))
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: the error is %v", name, err)
		}
		if len(fit) != 2 || fit[0].InputSchema == nil || fit[1].Name != "last" {
			t.Errorf("%s: %d tools", name, len(fit))
		}
	}
	if fit, err := fitTools(rc, namedTools("a", "b")); err != nil || len(fit) != 2 {
		t.Errorf("%d tools, %v", len(fit), err)
	}
	if _, err := fitTools(rc, namedTools(slices.Repeat([]string{"a"}, 1000)...)); err == nil || len(err.Error()) > 1000 || !strings.Contains(err.Error(), "and 991 others") {
		t.Errorf("the error is %v", err)
	}
}

// lists is a runner of servers that list one tool with a large schema.
type lists struct{ asked int }

func (l *lists) Do(_ context.Context, j tools.Job) tools.Result {
	l.asked++
	schema := `{"type":"object","description":"` + strings.Repeat("x", 100_000) + `"}`
	return tools.Result{Tools: []tools.Tool{{Name: "of_" + j.Server.Label, InputSchema: json.RawMessage(schema)}}}
}

// What servers list is read in jobs, which take steps of the request: beyond them tools are
// left out, and the request is refused.
func TestListsTakeSteps(t *testing.T) {
	t.Parallel()
	rc := apitest.NewContext()
	decoding, end := context.WithCancel(t.Context())
	rc.Work = work.New(decoding, 1_000_000)
	end()
	offered := 0
	var odd error
	for i := range 20 {
		s := &Server{Label: strconv.Itoa(i), MCP: &tools.Server{Label: strconv.Itoa(i)}}
		result, err := ListJob{&lists{}, s, rc}.Do(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s.Import(result.(tools.Result).Tools)
		offered += len(s.Tools)
		odd = result.(tools.Result).Cause
	}
	if offered != 2 || !errors.Is(odd, work.ErrExceeded) {
		t.Errorf("%d tools are offered; the last are not because %v", offered, odd)
	}
	_, err := turn.Prepare(t.Context(), rc, &turn.Input{Items: []turn.Item{{Kind: turn.User, Text: "hi"}}})
	if err == nil || err.Status != http.StatusBadRequest || err.Code != turn.CodeTooCostly {
		t.Errorf("the request: %v", err)
	}

	ended, end := context.WithCancel(t.Context())
	end()
	asked := &lists{}
	if _, err := (ListJob{asked, &Server{MCP: &tools.Server{}}, rc}).Do(ended); err == nil || asked.asked != 0 {
		t.Errorf("a job that has ended asks a server: %v", err)
	}
}
