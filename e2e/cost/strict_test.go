package main

import (
	"strconv"
	"strings"
	"testing"
)

// TestManyStrictTools shows that the validators of strict tools are within the
// allowance. A body with many of them is larger than those that the search makes.
func TestManyStrictTools(t *testing.T) {
	schema := `{"type":"object","properties":{"a":{"anyOf":[{"const":0}` + strings.Repeat(`,{"const":4}`, 450) + `]}},"required":["a"],"additionalProperties":false}`
	tools := func(before, between, after string) string {
		list := make([]string, 0, 16)
		for n := range 16 {
			list = append(list, before+strconv.Itoa(n)+between+schema+after)
		}
		return `"tools":[` + strings.Join(list, ",") + `]}`
	}
	bodies := map[string]string{
		"chat":      `{"model":"m","messages":[{"role":"user","content":"x"}],` + tools(`{"type":"function","function":{"name":"f`, `","strict":true,"parameters":`, `}}`),
		"responses": `{"model":"m","input":"x",` + tools(`{"type":"function","name":"f`, `","strict":true,"parameters":`, `}`),
		"messages":  `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x"}],` + tools(`{"name":"f`, `","strict":true,"input_schema":`, `}`),
	}
	targets, closeAll := Targets()
	defer closeAll()
	for i := range targets {
		body, ok := bodies[targets[i].Name]
		if !ok {
			continue
		}
		t.Run(targets[i].Name, func(t *testing.T) {
			s := &scenario{Request: []byte(body)}
			measure(targets[i].Begin(s), s.bytes(), true) // fills the caches
			c := measure(targets[i].Begin(s), s.bytes(), true)
			t.Logf("%d bytes, %d counted, %d allocated, %d kept", c.Body, c.Counted, c.Allocated, c.Kept)
			if c.Kept < 1<<20 {
				t.Error("the tools are not verified")
			}
			for _, g := range Goals() {
				if share := g.Share(&c); share > 1 {
					t.Errorf("%s: %.0f %% of the allowance", g.Name, 100*share)
				}
			}
		})
	}
}
