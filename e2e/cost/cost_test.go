package main

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// TestCost searches each target for a short time: no scenario costs more than it is
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
			if len(found) == 0 {
				t.Error("nothing was measured")
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

// planted are readers whose cost is out of proportion to what they read. Each allocates what
// it does in steps, so that the tests need no counters.
var planted = map[string]struct {
	seed string
	read func(s *scenario) any
}{
	"references that multiply": {`{"request":{"schema":{"anyOf":[{"$ref":"#/$defs/d"}],"$defs":{"d":{"type":"string"}}}}}`, func(s *scenario) any {
		var request struct {
			Schema map[string]any `json:"schema"`
		}
		_ = json.Unmarshal(s.Request, &request)
		definitions, _ := request.Schema["$defs"].(map[string]any)
		var steps [][]byte
		walk(request.Schema, definitions, &steps)
		return steps
	}},
	"stored texts that are not counted": {`{"request":{"items":[{"id":"a"},{"id":"b"}]}}`, func(s *scenario) any {
		var request struct {
			Items []struct {
				ID string `json:"id"`
			} `json:"items"`
		}
		_ = json.Unmarshal(s.Request, &request)
		var texts [][]byte
		for _, item := range request.Items {
			if item.ID == "a" {
				texts = append(texts, make([]byte, 16<<10))
			}
		}
		return texts
	}},
	"stored items that are copied for each of a kind": {`{"stored":[{"role":"user","content":"x"},{"type":"summary"}],"request":{}}`, func(s *scenario) any {
		type item struct {
			raw json.RawMessage
			_   [22]int // what is read of it
		}
		var kept []item
		for _, raw := range s.Stored {
			if bytes.Contains(raw, []byte(`"summary"`)) {
				kept = slices.Clone(kept)
			}
			kept = append(kept, item{raw: raw})
		}
		return kept
	}},
	"a grammar whose lines are read again for each line": {`{"request":{"definition":"start: a\n# text\na: /b/\n"}}`, func(s *scenario) any {
		var request struct {
			Definition string `json:"definition"`
		}
		_ = json.Unmarshal(s.Request, &request)
		var seen [][]byte
		for rest := request.Definition; rest != ""; {
			_, rest, _ = strings.Cut(rest, "\n")
			seen = append(seen[:0], make([]byte, len(rest)))
		}
		return seen
	}},
	"an answer that is compared with itself": {`{"request":{},"answer":[{"header":"<|channel|>final","text":"[1]"}]}`, func(s *scenario) any {
		var seen []byte
		for _, m := range s.Answer {
			for range strings.Count(m.Text, "1") {
				seen = []byte(m.Text)
			}
		}
		return seen
	}},
}

// TestSearchFinds shows that the search finds what is planted, in each part of a scenario, and
// finds nothing where the cost is in proportion.
func TestSearchFinds(t *testing.T) {
	goals := []Goal{{GoalAllocated, Allowance{1 << 20, 64}, func(c *Cost) int64 { return c.Allocated }}}
	search := func(seed string, read func(s *scenario) any) *Found {
		found, err := Search(&Target{
			Name:  "planted",
			Seeds: []string{seed},
			Begin: func(s *scenario) task {
				return func() (int, any) {
					stored := 0
					for _, item := range s.Stored {
						stored += len(item)
					}
					return stored, read(s)
				}
			},
		}, &Options{Seed: 1, Rounds: 3000, MaxBytes: 16 << 10, Goals: goals})
		if err != nil || len(found) != 1 {
			t.Fatal(found, err)
		}
		return &found[0]
	}

	for name, p := range planted {
		t.Run(name, func(t *testing.T) {
			f := search(p.seed, p.read)
			if t.Logf("%d rounds: %+v", f.Rounds, f.Cost); f.Share <= 1 {
				t.Errorf("the dearest scenario is not found: %+v", f.Cost)
			}
		})
	}
	t.Run("what is proportional is not reported", func(t *testing.T) {
		f := search(`{"stored":[{"role":"user"}],"request":{"definition":"a"}}`, func(s *scenario) any { return bytes.Clone(s.Request) })
		if f.Share > 1 {
			t.Errorf("%.2f of the allowance: %+v", f.Share, f.Cost)
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
	found, err := Search(&Target{Name: "any", Seeds: append(chatSeeds[:2:2], mcpSeeds...), Begin: func(s *scenario) task {
		return func() (int, any) {
			if s.Request != nil && !json.Valid(s.Request) {
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
	if sum, hottest, err := sumCounters(counters, 2); sum != 306 || hottest != (function{0, 1}) || err != nil {
		t.Error(sum, hottest, err)
	}
	if _, _, err := sumCounters(counters[:5], 2); err == nil {
		t.Error("cut counters are summed")
	}
}
