package inspect

import (
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// A view does not grow with the square of an exchange's length: of the calls of a long one,
// the prompts begin where they differ from those before.
func TestOfManyCalls(t *testing.T) {
	t.Parallel()
	message := append([]harmony.Token{harmony.TokenStart, 1428, harmony.TokenMessage}, make([]harmony.Token, 20_000)...)
	const calls = 40
	prompt := make([]harmony.Token, 0, calls*len(message))
	tape := record.NewTape(record.Record{Started: started}, 1<<30, time.Now)
	for range calls {
		prompt = append(prompt, message...)
		tape.Call(&engine.Request{Prompt: prompt, N: 1}, 0)
	}
	r := tape.Ended(record.Result{})
	v := Of(&r)
	shown := 0
	for i := range v.Calls {
		c := &v.Calls[i]
		end := 0
		for j := range c.Prompt {
			shown += len(c.Prompt[j].Pieces)
			end = c.Prompt[j].Start + len(c.Prompt[j].Pieces)
		}
		if end != c.Tokens || c.Prompt[0].Start > c.Shared {
			t.Errorf("call %d: its prompt is shown from %d to %d of %d, %d are shared", i, c.Prompt[0].Start, end, c.Tokens, c.Shared)
		}
	}
	if most := maxShown + len(prompt); len(v.Calls) != calls || shown > most {
		t.Errorf("%d tokens of %d calls are shown, more than %d", shown, len(v.Calls), most)
	}
}
