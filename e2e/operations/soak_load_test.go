//go:build soak

package operations

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// soakWorker is one client after another. Each makes one thing of the mixture.
type soakWorker struct {
	*soak
	*rand.Rand
}

// soakMixture is what clients do, with its weight.
var soakMixture = []struct {
	weight int
	do     func(soakWorker)
}{
	{20, soakWorker.asks},
	{8, soakWorker.asksAfterAnother},
	{4, soakWorker.converses},
	{6, soakWorker.asksInTheBackground},
	{8, soakWorker.usesTools},
	{10, soakWorker.meetsAFault},
	{12, soakWorker.leaves},
	{4, soakWorker.readsSlowly},
	{4, soakWorker.errs},
	{6, soakWorker.isNotForTheFilter},
}

// work runs until the load ends.
func (w soakWorker) work() {
	sum := 0
	for _, m := range soakMixture {
		sum += m.weight
	}
	for w.loaded() {
		at := w.IntN(sum)
		for _, m := range soakMixture {
			if at -= m.weight; at < 0 {
				m.do(w)
				break
			}
		}
		time.Sleep(time.Duration(w.IntN(50)) * time.Millisecond)
	}
}

// soakAPIs are the APIs by the path of their main request.
var soakAPIs = map[string]string{"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}

// request returns a request of an API with a text of the user, and more members, each
// after a comma.
func (w soakWorker) request(api, text, more string, streamed bool) soakRequest {
	model := stack.HarmonyModels[w.IntN(len(stack.HarmonyModels))]
	head := fmt.Sprintf(`{"model":%q,"stream":%v%s`, model, streamed, more)
	q := soakRequest{api: api, path: soakAPIs[api], streamed: streamed}
	switch api {
	case "responses":
		q.body = fmt.Sprintf(`%s,"input":%q}`, head, text)
	default:
		q.body = fmt.Sprintf(`%s,"max_tokens":20000,"messages":[{"role":"user","content":%q}]}`, head, text)
	}
	return q
}

// anyAPI returns the name of an API.
func (w soakWorker) anyAPI() string { return []string{"chat", "responses", "messages"}[w.IntN(3)] }

// words returns a text that makes the model answer with words, and the answer.
func (w soakWorker) words(most int) (text, answer string) {
	n := 1 + w.IntN(most)
	text = fmt.Sprintf("THINK Count.\nWORDS %d", n)
	if w.IntN(3) == 0 {
		text += "\nSIM delay=2ms"
	}
	if w.IntN(3) == 0 {
		text += "\nSIM tokens-per-event=random:8 cut=random:100"
	}
	return text, stack.WordsTo(n)
}

func (w soakWorker) asks() {
	text, answer := w.words(80)
	api := w.anyAPI()
	more := ""
	if api == "responses" && w.IntN(2) == 0 {
		more = `,"store":false`
	}
	q := w.request(api, text, more, w.IntN(2) == 0)
	q.text = answer
	w.do(q)
}

// asksAfterAnother continues a stored response, reads it and deletes it.
func (w soakWorker) asksAfterAnother() {
	id := ""
	for range 1 + w.IntN(3) {
		text, answer := w.words(40)
		more := ""
		if id != "" {
			more = fmt.Sprintf(`,"previous_response_id":%q`, id)
		}
		q := w.request("responses", text, more, false)
		q.text = answer
		if id = gjson.Get(w.do(q), "id").Str; id == "" {
			return
		}
	}
	w.do(soakRequest{api: "responses", reads: true, method: http.MethodGet, path: "/v1/responses/" + id})
	w.do(soakRequest{api: "responses", reads: true, method: http.MethodGet, path: "/v1/responses/" + id + "/input_items"})
	if w.IntN(2) == 0 {
		w.do(soakRequest{api: "responses", reads: true, method: http.MethodDelete, path: "/v1/responses/" + id})
	}
}

func (w soakWorker) converses() {
	id := gjson.Get(w.do(soakRequest{api: "responses", reads: true, path: "/v1/conversations", body: `{"items":[{"type":"message","role":"user","content":"Be brief."}]}`}), "id").Str
	if id == "" {
		return
	}
	for range 1 + w.IntN(3) {
		text, answer := w.words(40)
		q := w.request("responses", text, fmt.Sprintf(`,"conversation":%q`, id), w.IntN(2) == 0)
		q.text = answer
		w.do(q)
	}
	w.do(soakRequest{api: "responses", reads: true, method: http.MethodGet, path: "/v1/conversations/" + id + "/items?limit=100"})
	w.do(soakRequest{api: "responses", reads: true, method: http.MethodDelete, path: "/v1/conversations/" + id})
}

// asksInTheBackground creates a background response, follows, polls or cancels it, and
// counts it with its last status.
func (w soakWorker) asksInTheBackground() {
	text, answer := w.words(100)
	q := w.request("responses", text+"\nSIM delay=5ms", `,"background":true`, false)
	q.begins = true
	id := gjson.Get(w.do(q), "id").Str
	if id == "" {
		return
	}

	path := "/v1/responses/" + id
	switch w.IntN(3) {
	case 0:
		w.do(soakRequest{api: "responses", reads: true, streamed: true, method: http.MethodGet, path: path + "?stream=true", text: answer})
	case 1: // a follower that leaves does not end the response
		w.do(soakRequest{api: "responses", reads: true, streamed: true, method: http.MethodGet, path: path + "?stream=true", leaves: w.soon()})
	default:
		w.do(soakRequest{api: "responses", reads: true, path: path + "/cancel"})
	}

	for deadline := time.Now().Add(soakLimit); ; time.Sleep(100 * time.Millisecond) {
		body := w.do(soakRequest{api: "responses", reads: true, method: http.MethodGet, path: path})
		status := gjson.Get(body, "status").Str
		if status != "queued" && status != "in_progress" {
			if _, outcome, err := responseObject([]byte(body)); err == nil {
				w.ended("responses", outcome)
			}
			break
		}
		if time.Now().After(deadline) {
			w.problem(fmt.Sprintf("the background response %s does not end: %s", id, body))
			return
		}
	}

	w.do(soakRequest{api: "responses", reads: true, method: http.MethodDelete, path: path})
}

// usesTools lets the filter call tools of MCP servers: some succeed, some fail, and of
// some the connection breaks.
func (w soakWorker) usesTools() {
	text, answer := w.words(20)
	server, call := "docs", []string{`docs.search {"q":"x"}`, `docs.delete-all {}`}[w.IntN(2)]
	if w.IntN(5) == 0 { // breaks the connections of all who use that server
		server, call, answer = "fragile", `fragile.die {}`, ""
	}
	api, more := "responses", fmt.Sprintf(`,"tools":[{"type":"mcp","server_label":%q,"require_approval":"never"}]`, server)
	if w.IntN(2) == 0 {
		api, more = "messages", fmt.Sprintf(`,"mcp_servers":[{"type":"url","name":%q}]`, server)
	}
	q := w.request(api, "CALL "+call+"\n"+text, more, w.IntN(2) == 0)
	q.text = answer
	w.do(q)
}

// meetsAFault asks for a reply in which the engine fails. A stream that has begun ends
// with an error event, all else is an error object.
func (w soakWorker) meetsAFault() {
	api := w.anyAPI()
	// More tokens than a reply's three calls have before their faults: two continuations, which
	// is what a reply may have, do not save it.
	text := "NOTHINK\nWORDS 100\nSIM delay=1ms "
	may := []string{outcomeFailed}
	switch w.IntN(10) {
	case 0:
		text, may = text+"status=400", []string{outcomeRejected}
	case 1:
		text, may = text+"status=429 retry-after=1", []string{outcomeRejected}
	case 2:
		text += "status=500 body=detail"
	case 3:
		text += "status=503 body=html"
	case 4:
		text += "fault=hang@20"
	default:
		kinds := []string{"error", "cut", "end", "done", "garbage"}
		text += fmt.Sprintf("fault=%s@%d", kinds[w.IntN(len(kinds))], 5+w.IntN(40))
	}

	q := w.request(api, text, "", w.IntN(3) > 0)
	q.may = may
	w.do(q)
}

// soon is when a client leaves: at once, before the first token, or in the reply.
func (w soakWorker) soon() time.Duration {
	return time.Duration(1+w.IntN([]int{5, 50, 500, 2000}[w.IntN(4)])) * time.Millisecond
}

// leaves disconnects at any time: in the body, before the reply, in it, and also without
// reading any of it.
func (w soakWorker) leaves() {
	q := w.request(w.anyAPI(), "NOTHINK\nWORDS 100000\nSIM delay=1ms first="+strconv.Itoa(w.IntN(200))+"ms", "", w.IntN(4) > 0)
	q.leaves = w.soon()
	switch w.IntN(4) {
	case 0:
		q.cut = 1 + w.IntN(len(q.body))
	case 1:
		q.deaf = true
	}
	w.do(q)
}

// readsSlowly reads a stream more slowly than the engine makes it, to its end.
func (w soakWorker) readsSlowly() {
	n := 100 + w.IntN(500)
	q := w.request(w.anyAPI(), fmt.Sprintf("NOTHINK\nWORDS %d", n), "", true)
	q.slow, q.text = true, stack.WordsTo(n)
	w.do(q)
}

// errs sends a request that the filter rejects.
func (w soakWorker) errs() {
	q := w.request(w.anyAPI(), "SAY x", []string{`,"temperature":"hot"`, `,"model":"x"`, `,`}[w.IntN(3)], w.IntN(2) == 0)
	q.may = []string{outcomeRejected}
	w.do(q)
}

// isNotForTheFilter sends a request that passes through.
func (w soakWorker) isNotForTheFilter() {
	streamed := w.IntN(2) == 0
	w.do(soakRequest{path: "/v1/chat/completions", streamed: streamed, body: fmt.Sprintf(`{"model":%q,"stream":%v,"messages":[{"role":"user","content":%q}]}`, stack.OtherModel, streamed, strings.Repeat("x", w.IntN(20000)))})
}
