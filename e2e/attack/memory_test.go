//go:build attack

package attack

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// serveWithin is ServeProgram in a cgroup with a memory limit, where the machine allows
// it. Else the runtime has the limit that the program would set itself.
func serveWithin(t testing.TB, log *stack.LogFile, limit int64, config ...string) (*stack.Program, *cgroup) {
	t.Helper()
	if limit == 0 {
		return stack.ServeProgram(t, log, config...), nil
	}
	binary, err := stack.BuildProgram()
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, config...)
	cmd := exec.CommandContext(t.Context(), binary, args...)
	group := newCgroup(t, limit)
	if group == nil {
		t.Logf("this machine lets us make no cgroup: GOMEMLIMIT has 70 %% of %d MiB, and the peak is that of resident memory", limit>>20)
		cmd.Env = append(os.Environ(), "GOMEMLIMIT="+strconv.FormatInt(limit/10*7, 10))
	} else {
		group.inside(cmd)
	}
	p := stack.Launch(t, log, "serving", cmd)
	p.Config = config
	return p, group
}

// mostMemory is the part of its cgroup's memory that the filter may use, in per cent.
const mostMemory = 80

// mix is requests that are made at one time.
type mix struct {
	name string
	// prepare stores what the requests refer to, and returns how one is sent. Each is
	// sent by a goroutine of its own.
	prepare func(*attempt) (n int, send func(i int) answerOf)
}

// memoryArea has requests that make much out of little, or out of much, in a filter with
// little memory: it refuses what does not fit, and lives.
func memoryArea(mebibytes int64) area {
	limit := mebibytes << 20

	mixes := []mix{
		{"30 compactions of 70 references to 450 KB", compactions},
		{"60 lists of the largest conversation", lists},
		{"detokenize of a million tokens of 128 spaces", detokenizations},
		{"tokenize with texts", tokenizations},
		{"400 unread GETs of a stored stream", unreadStreams},
		{"27 bodies of 30 MB", bodies},
		{"60 bodies of 12 MB, in five forms", manyForms},
		{"100 zipped bodies of 12 MB", zippedBodies},
		{"objects of many tokens of 128 spaces", wideObjects},
		{"8 arrays of millions of zeros", longArrays},
		{"150 conversations of 19,000 small messages", smallMessages},
		{"150 schemas of many small values", smallValues},
	}

	all := area{name: fmt.Sprintf("memory %d", mebibytes), config: func(_ *testing.T, c *stackConfig) { c.memory = limit }}
	row := func(name string, heavy bool, mixes ...mix) {
		all.attacks = append(all.attacks, attack{
			name: name, want: "200 4xx 503, below 80 %", heavy: heavy, grow: limit,
			run: func(a *attempt) { a.withinMemory(limit, mixes) },
		})
	}

	for _, m := range mixes {
		row(m.name, mebibytes > 512, m)
	}
	row("all of them at one time", true, mixes...)

	return all
}

// withinMemory makes the requests of mixes at one time, and checks what they took.
func (a *attempt) withinMemory(limit int64, mixes []mix) {
	a.Helper()
	var sends []func() answerOf
	for _, m := range mixes {
		n, send := m.prepare(a)
		for i := range n {
			sends = append(sends, func() answerOf { return send(i) })
		}
	}

	a.resetPeak()
	if a.group != nil {
		a.group.reset()
	}

	statuses := map[int]int{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, send := range sends {
		all.Go(func() {
			r := send()
			mu.Lock()
			defer mu.Unlock()
			statuses[r.status]++
			if r.status == 0 || !statusIs(r.status, "200 400 404 408 413 429 503 529") || r.status == http.StatusServiceUnavailable && r.header.Get("Retry-After") == "" {
				a.Errorf("%s, retry-after %q", r.brief(), r.header.Get("Retry-After"))
			}
		})
	}

	all.Wait()
	peak, of := a.memory("VmHWM"), "resident"
	if a.group != nil {
		peak, of = a.group.peak(), "cgroup"
	}
	a.see("%s %d MB, %d %%, %v", of, peak>>20, peak*100/limit, statuses)
	if peak*100 > limit*mostMemory {
		a.Errorf("%d MB are more than %d %% of %d MB", peak>>20, mostMemory, limit>>20)
	}

	if dead := a.dead(); dead != "" {
		a.Errorf("%s has ended", dead)
	}
}

// spaceText is a text with few tokens for its bytes, so that much of it fits into a
// model's context.
func spaceText(n int) string { return strings.Repeat(" ", n) }

// largest is the largest body of a request, and the largest conversation, that the filter
// accepts by default.
func (a *attempt) largest() int64 {
	if a.group == nil {
		return 32 << 20
	}
	return min(32<<20, (a.group.limit/10*7-64<<20)/24)
}

func compactions(a *attempt) (int, func(int) answerOf) {
	made := a.post(responsesPath, responsesBody(`[{"role":"user","content":"`+spaceText(450_000)+`NOTHINK\nSAY done"}]`, ""))
	id := gjson.Get(made.text, "id").Str
	item := gjson.Get(a.send(http.MethodGet, responsesPath+"/"+id+"/input_items", http.NoBody).text, "data.0.id").Str
	if item == "" {
		a.Fatalf("the item is not stored: %s", made.brief())
	}
	references := int(min(70, a.largest()/452_000))
	body := responsesBody(`[`+strings.TrimSuffix(strings.Repeat(`{"type":"item_reference","id":"`+item+`"},`, references), ",")+`]`, "")
	return 30, func(int) answerOf { return a.post(responsesPath+"/compact", body) }
}

// largestConversation makes a conversation that is as large as it may be.
func (a *attempt) largestConversation() string {
	a.Helper()
	made := a.post("/v1/conversations", `{}`)
	path := "/v1/conversations/" + gjson.Get(made.text, "id").Str + "/items"
	for range 40 {
		if r := a.post(path, `{"items":[{"role":"user","content":"`+spaceText(1<<20)+`"}]}`); r.status != http.StatusOK {
			break
		}
	}
	return path
}

func lists(a *attempt) (int, func(int) answerOf) {
	path := a.largestConversation()
	return 60, func(i int) answerOf {
		if i%2 == 0 {
			return a.send(http.MethodGet, path+"?limit=100", http.NoBody)
		}
		return a.unread(path + "?limit=100")
	}
}

// spaces128 is the token of 128 spaces.
const spaces128 = 72056

func detokenizations(a *attempt) (int, func(int) answerOf) {
	body := func(n int) string {
		return `{"model":"gpt-oss-20b","tokens":[` + strings.TrimSuffix(strings.Repeat(strconv.Itoa(spaces128)+",", n), ",") + `]}`
	}
	million, some := body(1_000_000), body(120_000)
	return 40, func(i int) answerOf {
		if i < 8 {
			return a.post("/detokenize", million)
		}
		return a.post("/detokenize", some)
	}
}

func tokenizations(a *attempt) (int, func(int) answerOf) {
	body := `{"model":"gpt-oss-20b","return_token_strs":true,"prompt":"` + strings.Repeat("é\\u0001", 500_000) + `"}`
	return 30, func(int) answerOf { return a.post("/tokenize", body) }
}

func unreadStreams(a *attempt) (int, func(int) answerOf) {
	id := a.background(88_000) // 29 MB
	return 400, func(int) answerOf { return a.unread(responsesPath + "/" + id + "?stream=true") }
}

func bodies(a *attempt) (int, func(int) answerOf) {
	body := chatBody(`"`+strings.Repeat("word ", int(min(30<<20, a.largest()-1000)/5))+`"`, "")
	return 27, func(int) answerOf { return a.post(chatPath, body) }
}

func manyForms(a *attempt) (int, func(int) answerOf) {
	const size = 12 << 20
	times := func(text string) string { return strings.Repeat(text, size/len(text)) }
	forms := []struct{ path, body string }{
		{responsesPath, responsesBody(`[`+strings.TrimSuffix(strings.Repeat(`{"role":"user","content":"`+spaceText(64<<10)+`"},`, size>>16), ",")+`,{"role":"user","content":"NOTHINK\nSAY done"}]`, "")},
		{responsesPath, responsesBody(simple, `,"stream":true,"tools":[{"type":"file_search","vector_store_ids":["`+times("x")+`"]},{"type":"function","name":"f","parameters":{},"description":"`+times(`\n`)+`"}]`)},
		{chatPath, chatBody(`"`+times(`\u0041`)+`"`, "")},
		{"/v1/messages", `{"model":"gpt-oss-20b","max_tokens":10,"messages":[{"role":"user","content":[` + strings.TrimSuffix(times(`{"type":"text","text":"`+spaceText(4000)+`"},`), ",") + `]}]}`},
		{"/v1/conversations", `{"items":[{"role":"user","content":"` + times(`\t`) + `"}]}`},
	}
	return 60, func(i int) answerOf { return a.post(forms[i%len(forms)].path, forms[i%len(forms)].body) }
}

func zippedBodies(a *attempt) (int, func(int) answerOf) {
	body := zipped(strings.NewReader(chatBody(`"`+strings.Repeat(`\u0041`, 2<<20)+`"`, "")))
	return 100, func(int) answerOf {
		return a.send(http.MethodPost, chatPath, bytes.NewReader(body), "Content-Encoding", "gzip")
	}
}

// wideObjects has whole objects, each of the many choices of which the reply keeps.
func wideObjects(a *attempt) (int, func(int) answerOf) {
	text := jsonText("NOTHINK\nSAY " + strings.Repeat("x"+spaceText(127), 20_000))
	return 20, func(i int) answerOf { return a.post(chatPath, chatBody(text, fmt.Sprintf(`,"n":%d`, 1+i%2*15))) }
}

// longArrays has arrays whose elements have two bytes, where an array is allowed and where not.
func longArrays(a *attempt) (int, func(int) answerOf) {
	zeros := `[` + strings.Repeat("0,", int(a.largest()-1000)/2) + `0]`
	forms := []struct{ path, body string }{
		{chatPath, chatBody(simple, `,"bad_words":`+zeros)},
		{responsesPath, responsesBody(simple, `,"tools":[{"type":"function","name":"f","allowed_callers":`+zeros+`}]`)},
		{responsesPath, responsesBody(`[{"type":"shell_call","call_id":"a","action":{"commands":["ls"]}},{"type":"shell_call_output","call_id":"a","output":`+zeros+`}]`, "")},
		{chatPath + "/derender", `{"model":"gpt-oss-20b","generate_response":{"choices":` + zeros + `},"chat_request":` + chatBody(simple, "") + `}`},
	}
	return 8, func(i int) answerOf { return a.post(forms[i%len(forms)].path, forms[i%len(forms)].body) }
}

// smallMessages has conversations whose messages take more memory than they have bytes.
func smallMessages(a *attempt) (int, func(int) answerOf) {
	many := func(message string) string { return `[` + strings.Repeat(message+",", 19_000) + message + `]` }
	forms := []struct{ path, body string }{
		{chatPath, `{"model":"gpt-oss-20b","messages":` + many(`{"role":"user","content":""}`) + `}`},
		{responsesPath, responsesBody(many(`{"type":"reasoning"}`), "")},
		{"/v1/messages", `{"model":"gpt-oss-20b","max_tokens":10,"messages":` + many(`{"role":"user","content":""}`) + `}`},
	}
	return 150, func(i int) answerOf { return a.post(forms[i%len(forms)].path, forms[i%len(forms)].body) }
}

// smallValues has tools and formats whose schemas have as many values as their bytes allow.
func smallValues(a *attempt) (int, func(int) answerOf) {
	schema := `{"type":"object","properties":{"a":{"type":"string"}},"examples":[` + strings.Repeat("0,", 125_000) + `0]}`
	forms := []string{
		chatBody(simple, `,"tools":[{"type":"function","function":{"name":"f","parameters":`+schema+`}}]`),
		chatBody(simple, `,"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":`+schema+`}}`),
	}
	return 150, func(i int) answerOf { return a.post(chatPath, forms[i%len(forms)]) }
}

// unread asks for something, reads how the answer begins, and then nothing for a while.
func (a *attempt) unread(path string) answerOf {
	a.Helper()
	const pause = 12 * time.Second
	ctx, cancel := context.WithTimeout(a.Context(), 6*stack.Patience)
	defer cancel()

	conn := a.dial()
	defer conn.Close()
	_, _ = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nhost: localhost\r\nx-tenant: attacker\r\n\r\n", path)
	_ = conn.SetReadDeadline(time.Now().Add(2 * stack.Patience))

	first := make([]byte, 2<<10)
	n, err := conn.Read(first)
	if err != nil {
		return answerOf{text: err.Error(), header: http.Header{}}
	}

	head, _, _ := strings.Cut(string(first[:n]), "\r\n\r\n")
	r := answerOf{status: rawStatus(head), text: string(first[:n]), header: http.Header{}}
	for line := range strings.SplitSeq(head, "\r\n") {
		if name, value, ok := strings.Cut(line, ": "); ok {
			r.header.Add(name, value)
		}
	}

	if r.status == http.StatusOK {
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return r
}
