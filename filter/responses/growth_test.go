package responses

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/read"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// grown is what a turn of a chain costs.
type grown struct {
	decode time.Duration // of the request, with its reads of the store and the prompt's rendering
	end    time.Duration // of the reply: it is stored, and the chain remembered
	copied time.Duration // within decode: writing the ids that are remembered
	rows   int           // read of the store
	bytes  int           // of the items in them
}

// growing makes chains turn by turn.
type growing struct {
	*server
	reads    *countingStore
	previous string
	calls    []string // of the last turn
	output   []harmony.Token
}

func newGrowing(output string) *growing {
	s := newServer()
	s.Store = store.NewMemory(store.Options{ResponseBytes: 1 << 28, ResponseTTL: time.Hour, Now: s.rc.Now})
	s.rc.Model.ContextLength = 1 << 24
	s.rc.Renderer = harmony.NewRenderer(harmony.WithCacheBytes(64 << 20))
	s, reads := s.replica()
	s.Chains = read.NewChains(64 << 20)
	return &growing{server: s, reads: reads, output: apitest.Tokens(output)}
}

// body is the next request: some hundred tokens.
func (g *growing) body(i int) []byte {
	input := fmt.Sprintf(`{"role":"user","content":"Question %d: %s"}`, i, strings.Repeat("some words ", 50))
	if len(g.calls) > 0 {
		input = fmt.Sprintf(`{"type":"function_call_output","call_id":%q,"output":"Result %d: %s"}`, g.calls[0], i, strings.Repeat("a result ", 50))
	}
	return fmt.Appendf(nil, `{"model":"gpt-oss-20b"%s%s,"input":[%s]}`, g.previous, weatherTool, input)
}

// turn makes the next response.
func (g *growing) turn(b *testing.B, i int) grown {
	b.Helper()
	body := g.body(i)
	g.reads.reads()
	var cost grown
	begin := time.Now()
	request, err := g.decode(body, g.rc)
	cost.decode = time.Since(begin)
	if err != nil {
		b.Fatal(err)
	}
	cost.rows, cost.bytes = g.reads.rows, g.reads.bytes
	if g.previous != "" {
		cost.copied = copied(request.Engine().Prompt)
	}
	r := newReply(request, api.SingleCall)
	if _, err := r.Push(nil, &engine.Chunk{Tokens: g.output, Finish: engine.FinishStop}); err != nil {
		b.Fatal(err)
	}
	begin = time.Now()
	object := mustEnd(b, r, nil)
	cost.end = time.Since(begin)
	g.previous = `,"previous_response_id":"` + request.ResponseID + `"`
	g.calls = g.calls[:0]
	for _, id := range gjson.GetBytes(object, "output.#.call_id").Array() {
		g.calls = append(g.calls, id.Str)
	}
	return cost
}

// copied is how long it takes to write ids to a new prompt.
func copied(ids []harmony.Token) time.Duration {
	begin := time.Now()
	prompt = append(make([]harmony.Token, 0, len(ids)), ids...)
	return time.Since(begin)
}

var prompt []harmony.Token // keeps the compiler from leaving the copy out

// at is the median of what the turns around one cost, over several chains.
func at(chains [][]grown, turn int, column func(*grown) float64) float64 {
	var all []float64
	for _, chain := range chains {
		for i := turn - 10; i < turn+10; i++ {
			all = append(all, column(&chain[i]))
		}
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// BenchmarkGrowth shows what turn 500 of a chain costs beside turn 50, on a
// replica that remembers the chain: what it reads of the store, and the time of
// its request without the copy of the ids, which is reported beside it, and of its
// end. The turns have either an answer each, or a tool call each and never an
// answer. Cold is the request on a replica that remembers nothing.
func BenchmarkGrowth(b *testing.B) {
	const short, long = 50, 500
	for name, output := range map[string]string{
		"answers": "<|channel|>analysis<|message|>" + strings.Repeat("a thought ", 30) + "<|end|><|start|>assistant<|channel|>final<|message|>" + strings.Repeat("an answer ", 30) + "<|return|>",
		"tools":   "<|channel|>analysis<|message|>" + strings.Repeat("a thought ", 30) + "<|end|><|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{}<|call|>",
	} {
		chains := make([][]grown, 0, 3)
		cold := map[int]time.Duration{}
		for range cap(chains) {
			g := newGrowing(output)
			chain := make([]grown, 0, long+10)
			for i := range cap(chain) {
				chain = append(chain, g.turn(b, i))
				if i == short || i == long {
					cold[i] = g.cold(b)
				}
			}
			chains = append(chains, chain)
		}
		show := func(column, unit string, of func(*grown) float64) {
			b.Run(name+"/"+column, func(b *testing.B) {
				report(b, unit, at(chains, short, of), at(chains, long, of))
			})
		}
		show("rows", "rows", func(c *grown) float64 { return float64(c.rows) })
		show("bytes", "B", func(c *grown) float64 { return float64(c.bytes) })
		show("request", "us", func(c *grown) float64 { return micros(c.decode - c.copied) })
		show("end", "us", func(c *grown) float64 { return micros(c.end) })
		show("copy", "us", func(c *grown) float64 { return micros(c.copied) })
		b.Run(name+"/cold", func(b *testing.B) { report(b, "us", micros(cold[short]), micros(cold[long])) })
	}
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// report prints what turn 50 and turn 500 cost.
func report(b *testing.B, unit string, short, long float64) {
	for b.Loop() { // nothing: it has been measured
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(short, unit+"@50")
	b.ReportMetric(long, unit+"@500")
	if short > 0 {
		b.ReportMetric(long/short, "x")
	}
}

// cold is how long the next request takes where nothing is remembered.
func (g *growing) cold(b *testing.B) time.Duration {
	b.Helper()
	known := g.Chains
	defer func() { g.Chains = known }()
	g.Chains = read.NewChains(64 << 20)
	body := g.body(0)
	begin := time.Now()
	if _, err := g.decode(body, g.rc); err != nil {
		b.Fatal(err)
	}
	return time.Since(begin)
}
