package extproc

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/tidwall/gjson"
)

// agentBody is a request with the history of an agent: messages messages of about words
// words each, with lines and quotes as in code.
func agentBody(messages, words int) string {
	random := rand.New(rand.NewPCG(7, 7))
	vocabulary := strings.Fields("the of and to in request response gateway filter listener return func error package string value cluster route header token prompt if else for range import map struct")
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	all := make([]message, messages, messages+1)
	for i := range all {
		var text strings.Builder
		for n := range words {
			text.WriteString(vocabulary[random.IntN(len(vocabulary))])
			switch {
			case n%12 == 11:
				text.WriteString("\n")
			case n%29 == 28:
				text.WriteString(` "x" `)
			default:
				text.WriteString(" ")
			}
		}
		text.WriteString(strconv.Itoa(i))
		all[i] = message{[]string{"user", "assistant"}[i%2], text.String()}
	}
	all = append(all, message{"user", "Go on."})
	body, err := json.Marshal(map[string]any{"model": "gpt-oss-20b", "stream": true, "messages": all})
	if err != nil {
		panic(err) // strings only
	}
	return string(body)
}

// inPieces is a request whose body comes in pieces of size bytes.
func inPieces(body string, size int) []*extprocv3.ProcessingRequest {
	messages := chatRequest("")[:1]
	for len(body) > size {
		messages = append(messages, requestBody(body[:size], false))
		body = body[size:]
	}
	return append(messages, requestBody(body, true))
}

// BenchmarkAgentTurn is what the filter adds to a turn of an agent: 200,000 tokens that
// were rendered before, in pieces as Envoy sends them. gRPC and the loopback are not in
// it.
func BenchmarkAgentTurn(b *testing.B) {
	s := newServer(b, directly(func(w *wiring) { w.cfg.ModelDefaults.ContextLength = 1 << 20 }))
	s.o.Env.Telemetry.Log.SetLevel(0) // nothing is logged
	body := agentBody(400, 440)
	var wire []*extprocv3.ProcessingResponse
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		messages := inPieces(body, 16<<10)
		b.StartTimer()
		x := newStepped(context.Background(), s.Server)
		feed(b, x, messages...)
		if x.phase != phaseRun {
			b.Fatal("the request was not sent on")
		}
		wire = x.to.out
		x.close(x.now)
	}
	var sent strings.Builder
	for _, m := range wire {
		sent.Write(m.GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse().GetBody())
	}
	b.ReportMetric(float64(gjson.Get(sent.String(), "prompt.#").Int()), "tokens")
}

// BenchmarkNewPrompt is what the filter adds to a request with a text of 128,000 tokens
// that is new.
func BenchmarkNewPrompt(b *testing.B) {
	s := newServer(b, directly(func(w *wiring) { w.cfg.ModelDefaults.ContextLength = 1 << 20 }))
	s.o.Env.Telemetry.Log.SetLevel(0) // nothing is logged
	text := strings.Repeat("the request of response and gateway filter return error package string value ", 128000/13)
	for n := 0; b.Loop(); n++ {
		b.StopTimer()
		messages := inPieces(`{"model":"gpt-oss-20b","messages":[{"role":"user","content":"`+strconv.Itoa(n)+text+`"}]}`, 1<<20)
		b.StartTimer()
		x := newStepped(context.Background(), s.Server)
		feed(b, x, messages...)
		if x.phase != phaseRun {
			b.Fatal("the request was not sent on")
		}
		x.close(x.now)
	}
}
