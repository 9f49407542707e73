package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// TestCost searches each target for a short time: no request costs more than it is
// allowed. "make fuzz-cost" searches longer, and counts the blocks that run.
func TestCost(t *testing.T) {
	targets, closeAll := Targets()
	defer closeAll()
	for i := range targets {
		t.Run(targets[i].Name, func(t *testing.T) {
			found, err := Search(&targets[i], &Options{Seed: 1, Rounds: 100, MaxBytes: 8 << 10, Goals: Goals()})
			if err != nil {
				t.Fatal(err)
			}
			var text bytes.Buffer
			if report(&text, &targets[i], found) {
				t.Errorf("\n%s", &text)
			}
			t.Logf("\n%s", &text)
		})
	}
}

// walk follows the references of a schema and allocates at each step, as a renderer
// without a bound does. It ends after 100,000 steps, so that the test ends.
func walk(v, definitions map[string]any, steps *[][]byte) {
	if len(*steps) == 100_000 {
		return
	}
	*steps = append(*steps, make([]byte, 64))
	for _, key := range unions {
		list, _ := v[key].([]any)
		for _, variant := range list {
			if s, ok := variant.(map[string]any); ok {
				walk(s, definitions, steps)
			}
		}
	}
	name, _ := v["$ref"].(string)
	name = strings.TrimPrefix(name, "#/$defs/")
	if s, ok := definitions[name].(map[string]any); ok {
		delete(definitions, name) // it may refer to itself
		walk(s, definitions, steps)
		definitions[name] = s
	}
}

// TestSearchFinds plants decoders whose cost is out of proportion to their input. The
// search finds that, and finds nothing at one that costs what it should.
func TestSearchFinds(t *testing.T) {
	held := map[string]func(body []byte) any{
		"references that multiply": func(body []byte) any {
			var request struct {
				Schema map[string]any `json:"schema"`
			}
			_ = json.Unmarshal(body, &request)
			definitions, _ := request.Schema["$defs"].(map[string]any)
			var steps [][]byte
			walk(request.Schema, definitions, &steps)
			return steps
		},
		"stored texts that are not counted": func(body []byte) any {
			var request struct {
				Items []struct {
					ID string `json:"id"`
				} `json:"items"`
			}
			_ = json.Unmarshal(body, &request)
			var texts [][]byte
			for _, item := range request.Items {
				if item.ID == "a" {
					texts = append(texts, make([]byte, 16<<10))
				}
			}
			return texts
		},
	}
	goals := []Goal{{GoalAllocated, Allowance{1 << 20, 64}, func(c *Cost) int64 { return c.Allocated }}}
	search := func(decode func(body []byte) any) []Found {
		found, err := Search(&Target{
			Name:  "planted",
			Seeds: requests(`{"items":[{"id":"a"},{"id":"b"}],"schema":{"anyOf":[{"$ref":"#/$defs/d"}],"$defs":{"d":{"type":"string"}}}}`),
			Begin: func(s *scenario) work { return func() (int, any) { return 0, decode(s.Request) } },
		}, &Options{Seed: 1, Rounds: 2000, MaxBytes: 4 << 10, Goals: goals})
		if err != nil || len(found) != 1 {
			t.Fatal(found, err)
		}
		return found
	}
	for name, decode := range held {
		t.Run(name, func(t *testing.T) {
			if found := search(decode); found[0].Share <= 1 {
				t.Errorf("the dearest request is not found: %+v", found[0].Cost)
			}
		})
	}
	t.Run("what is proportional is not reported", func(t *testing.T) {
		if found := search(func(body []byte) any { return bytes.Clone(body) }); found[0].Share > 1 {
			t.Errorf("%.2f of the allowance: %+v", found[0].Share, found[0].Cost)
		}
	})
}

func TestTree(t *testing.T) {
	const text = `{"a":[1,null,{"b":"x\ny"},[]],"a":true,"c":{}}`
	n, err := parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(n.clone().append(nil, 1<<10)); got != text {
		t.Errorf("%s", got)
	}
	for _, text := range []string{``, `{`, `[1] 2`, `{"a"}`} {
		if _, err := parse(text); err == nil {
			t.Errorf("%q is parsed", text)
		}
	}
}

// TestMutate shows that what is mutated stays JSON.
func TestMutate(t *testing.T) {
	found, err := Search(&Target{Name: "any", Seeds: append(chatSeeds[:2:2], mcpSeeds...), Begin: func(s *scenario) work {
		return func() (int, any) {
			if !json.Valid(s.Request) {
				t.Errorf("not JSON: %s", s.Request)
			}
			return 0, bytes.Clone(s.Request)
		}
	}}, &Options{Seed: 2, Rounds: 500, MaxBytes: 4 << 10, Goals: Goals()[:1]})
	if err != nil || len(found) != 1 || found[0].Rounds != 500 {
		t.Errorf("%+v, %v", found, err)
	}
}

func TestSumCounters(t *testing.T) {
	// Two functions: of 2 counters, 1 and 300, and of 1 counter, 5.
	counters := []byte{2, 0, 1, 1, 0xac, 2, 1, 7, 9, 5}
	if sum, err := sumCounters(counters, 2); sum != 306 || err != nil {
		t.Error(sum, err)
	}
	if _, err := sumCounters(counters[:5], 2); err == nil {
		t.Error("cut counters are summed")
	}
}
