package prompt

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// TestBehindCalls shows where results move to. Of each item the test has a letter and the
// id of its call: c and r are calls and results, u, d and s texts of the user, of the
// developer, and summaries, a answers and t reasoning.
func TestBehindCalls(t *testing.T) {
	t.Parallel()
	kinds := map[byte]item.Kind{'c': item.Call, 'r': item.Result, 'u': item.User, 's': item.User, 'd': item.Instructions, 'a': item.Answer, 't': item.Reasoning}

	for in, want := range map[string]string{
		"u c1 r1 a u":             "u c1 r1 a u",
		"u c1 u r1 a":             "u c1 r1 u a",
		"u c1 d u r1":             "u c1 r1 d u",
		"u c1 c2 u r1 r2":         "u c1 c2 r1 r2 u",
		"u c1 c2 r1 u r2":         "u c1 c2 r1 r2 u",
		"u c1 t c2 r1 r2":         "u c1 t c2 r1 r2",
		"u c1 r1 u c2 u r2":       "u c1 r1 u c2 r2 u",
		"u c1 u c2 u r2 r1":       "u c1 r1 u c2 r2 u",
		"u c1 s r1":               "u c1 s r1",
		"u r9 u":                  "u r9 u",
		"u c1 u1 r1 u r1":         "u c1 r1 r1 u1 u",
		"":                        "",
		"u c1 a r1":               "u c1 a r1",
		"u t c1 u r1 t c2 u r2 a": "u t c1 r1 u t c2 r2 u a",
	} {
		var items []item.Item
		for name := range strings.FieldsSeq(in) {
			it := item.Item{Kind: kinds[name[0]], Summary: name[0] == 's', Path: name}
			if it.Kind == item.Call || it.Kind == item.Result {
				it.CallID = name[1:]
			}
			items = append(items, it)
		}

		ordered := afterCalls(items)
		got := make([]string, 0, len(ordered))
		for i := range ordered {
			got = append(got, ordered[i].Path)
		}

		if strings.Join(got, " ") != want {
			t.Errorf("%s: %s, want %s", in, strings.Join(got, " "), want)
		}
	}
}

// TestInCallOrder shows in which order results are rendered. Of each item the test has a letter and the
// name of its call, which begins with that of its tool: c and r are calls and results, h the result of a
// hosted call, t are tools that join, a answers and u texts of the user.
func TestInCallOrder(t *testing.T) {
	t.Parallel()
	kinds := map[byte]item.Kind{'c': item.Call, 'r': item.Result, 'h': item.Result, 't': item.Tools, 'a': item.Answer, 'u': item.User}

	for in, want := range map[string]string{
		"cf1 rf1":                             "f1",
		"cf1 cf2 rf1 rf2":                     "f1 f2",
		"cf1 cf2 rf2 rf1":                     "f1 f2",
		"cf1 cf2 cf3 rf3 rf1 rf2":             "f1 f2 f3",
		"cf1 cg1 rg1 rf1":                     "g1 f1", // the names say whose they are
		"cf1 cg1 cf2 rf2 rg1 rf1":             "f1 g1 f2",
		"cf1 cg1 cf2 cg2 rg2 rf2 rg1 rf1":     "g1 f1 g2 f2",
		"cf1 rf1 cf2 rf2":                     "f1 f2",
		"cf1 cf2 a rf2 rf1":                   "f1 f2",
		"cf1 hf1 cg1 hg1 cf2 cf3 rf3 rf2":     "f1 g1 f2 f3",
		"cf1 cm1 hm1 cf2 rf2 rf1":             "m1 f1 f2",
		"cf1 cf2 rf2 cf3 rf1 rf3":             "f1 f2 f3", // calls of two steps
		"cf1 cf2 rf2 cf3 rf3 rf1":             "f1 f2 f3",
		"cf1 cf2 cf3 rf3 cf4 rf2 rf4 rf1":     "f1 f2 f3 f4",
		"cf1 cf2 rf2 cg1 rg1 rf1":             "f1 f2 g1",
		"cf1 cg1 rg1 cf2 rf1 rf2":             "g1 f1 f2",
		"cf1 cg1 rg1 cf2 rf2 rf1":             "g1 f1 f2",
		"cf1 cf2 rf2 a rf1":                   "f1 f2",
		"cf1 cf2 rf2 cf3 u rf3 rf1":           "f1 f2 f3",
		"cf1 cf2 rf2 u rf1":                   "f1 f2",
		"cf1 cf2 rf2 t rf1":                   "f1 f2",
		"cf1 cf2 rf2 rf1 cf3 cf4 rf4 rf3":     "f1 f2 f3 f4",
		"cf1 cf2 rf2 rx1 rf1":                 "f1 x1 f2", // of no call
		"rx2 rx1":                             "x2 x1",
		"cf1 cf1 rf1 rf1":                     "f1 f1",
		"cf1 cf2 rf2 rf2 rf1":                 "f1 f2 f2",
		"u cf1 cf2 rf2 rf1 a u cf1 cf2 rf2 a": "f1 f2 f2",
	} {
		var items []item.Item
		for name := range strings.FieldsSeq(in) {
			it := item.Item{Kind: kinds[name[0]], CallID: name[1:], Hosted: name[0] == 'h', Text: name[1:], Tools: &item.JoinedTools{}}
			if it.Kind == item.Call {
				it.Name = name[1:2]
			}
			items = append(items, it)
		}

		before := slices.Clone(items)
		got := resultTexts((&Prefix{}).messages(opening{}, afterCalls(items), true))
		if got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
		if !slices.Equal(items, before) {
			t.Errorf("%s: the items are changed", in)
		}
	}
}

func resultTexts(msgs []harmony.Message) string {
	var texts []string
	for i := range msgs {
		if msgs[i].Role == harmony.RoleTool {
			texts = append(texts, string(msgs[i].Content[0].(harmony.Text)))
		}
	}
	return strings.Join(texts, " ")
}

// TestAnyOrderOfResults shows that of a step with calls of few tools any order of the results is read as
// theirs: the results of each tool in the order of its calls, where the client has results of that tool.
// One step has more calls than could be compared in pairs.
func TestAnyOrderOfResults(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(21, 22))
	const small = 500
	sizes := append(make([]int, 0, 1+small), 100_000)
	for range small {
		sizes = append(sizes, rng.IntN(20))
	}

	for _, n := range sizes {
		tools := 1 + rng.IntN(3)
		calls, results := make([]item.Item, n), make([]item.Item, n)
		for i := range n {
			id := "f" + strconv.Itoa(rng.IntN(tools)) + "-" + strconv.Itoa(i)
			name, _, _ := strings.Cut(id, "-")
			calls[i] = item.Item{Kind: item.Call, CallID: id, Name: name}
			results[i] = item.Item{Kind: item.Result, CallID: id, Text: id}
		}
		if got := resultTexts((&Prefix{}).messages(opening{}, slices.Concat(calls, results), true)); got != texts(results) {
			t.Fatalf("results in order are moved: %s", got)
		}

		// The first of each tool takes the first place of the tool, and so on.
		shuffled := slices.Clone(results)
		rng.Shuffle(n, func(i, k int) { shuffled[i], shuffled[k] = shuffled[k], shuffled[i] })
		of := map[string][]item.Item{}
		for i := range n {
			of[calls[i].Name] = append(of[calls[i].Name], results[i])
		}
		want := slices.Clone(shuffled)
		for i := range want {
			name, _, _ := strings.Cut(want[i].CallID, "-")
			want[i], of[name] = of[name][0], of[name][1:]
		}
		if got := resultTexts((&Prefix{}).messages(opening{}, slices.Concat(calls, shuffled), true)); got != texts(want) {
			t.Fatalf("%.500s, want %.500s", got, texts(want))
		}
	}
}

func texts(items []item.Item) string {
	all := make([]string, len(items))
	for i := range items {
		all[i] = items[i].Text
	}
	return strings.Join(all, " ")
}

// TestInCallOrderAllocates shows that nothing is allocated for results that stay where they are.
func TestInCallOrderAllocates(t *testing.T) {
	callees := map[string]item.Callee{"1": {Recipient: "f", At: 0}, "2": {Recipient: "f", At: 1}, "3": {Recipient: "g", At: 2}}
	for _, order := range []string{"123", "132", "312"} {
		items := make([]item.Item, 0, len(order))
		for _, id := range order {
			items = append(items, item.Item{Kind: item.Result, CallID: string(id)})
		}
		if n := testing.AllocsPerRun(100, func() { inCallOrder(items, callees) }); n > 0 {
			t.Errorf("%s: %v allocations", order, n)
		}
	}
}
