package operations

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Sizes of the sessions that are rendered.
const (
	sessionTokens = 72_000 // of the last prompt, nearly
	sessionTurns  = 40
	sessionTools  = 20
	coldSessions  = 60 // each only with its last request
	wholeSessions = 8  // with all of their requests
)

// BenchmarkRenderService asks /v1/chat/completions/render of a process of the service
// for agent sessions, with a client for each core: the last requests of sessions that
// are new to the service, and sessions turn by turn. With RENDER_URL it asks another
// server, for the model RENDER_MODEL; RENDER_PID is the process whose CPU time counts.
func BenchmarkRenderService(b *testing.B) {
	url, model := os.Getenv("RENDER_URL"), cmp.Or(os.Getenv("RENDER_MODEL"), stack.VLLMModel)
	pid, _ := strconv.Atoi(os.Getenv("RENDER_PID"))
	if url == "" {
		service, p := startRender(b, &stack.LogFile{Quiet: true})
		url, pid = service.URL, p.Process.Pid
	}

	seed := uint64(0)
	session := func() [][]byte {
		seed++
		return agentSession(seed, model)
	}

	transport := &http.Transport{MaxIdleConnsPerHost: runtime.NumCPU()}
	defer transport.CloseIdleConnections()
	r := &renderLoad{url: url + "/v1/chat/completions/render", client: &http.Client{Transport: transport}, process: stack.OSProcess(pid)}
	r.ask(b, session()[0]) // what is loaded with the first request does not count

	b.Run("new sessions", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			sessions := make([][][]byte, coldSessions)
			for i := range sessions {
				all := session()
				sessions[i] = all[len(all)-1:]
			}
			b.StartTimer()
			r.run(b, sessions)
		}
	})

	b.Run("turns in order", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			sessions := make([][][]byte, wholeSessions)
			for i := range sessions {
				sessions[i] = session()
			}
			b.StartTimer()
			r.run(b, sessions)
		}
	})
}

// renderLoad loads a server.
type renderLoad struct {
	url     string
	client  *http.Client
	process stack.OSProcess // 0: unknown
}

// ask sends a request and returns the length of the prompt in tokens.
func (r *renderLoad) ask(b *testing.B, body []byte) int {
	b.Helper()
	resp, err := r.client.Post(r.url, "application/json", bytes.NewReader(body))
	if err != nil {
		b.Error(err)
		return 0
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	ids := gjson.GetBytes(answer, "token_ids").Raw
	if err != nil || resp.StatusCode != http.StatusOK || ids == "" {
		b.Errorf("status %d: %v: %.300s", resp.StatusCode, err, answer)
	}
	return strings.Count(ids, ",") + 1
}

// run sends the requests of each session in order, and reports what they took.
func (r *renderLoad) run(b *testing.B, sessions [][][]byte) {
	b.Helper()
	var before time.Duration
	if r.process != 0 {
		before = stack.CPUOf(b, r.process)
	}

	var mu sync.Mutex
	requests, tokens, longest := 0, 0, 0
	queue := make(chan [][]byte, len(sessions))
	for _, s := range sessions {
		queue <- s
	}
	close(queue)

	begun := time.Now()
	var clients sync.WaitGroup
	for range runtime.NumCPU() {
		clients.Go(func() {
			for s := range queue {
				for _, body := range s {
					n := r.ask(b, body)
					mu.Lock()
					requests, tokens, longest = requests+1, tokens+n, max(longest, n)
					mu.Unlock()
				}
			}
		})
	}

	clients.Wait()
	took := time.Since(begun)
	b.ReportMetric(float64(requests), "requests")
	b.ReportMetric(float64(requests)/took.Seconds(), "requests/s")
	b.ReportMetric(float64(tokens)/took.Seconds(), "tokens/s")
	b.ReportMetric(float64(tokens)/float64(requests), "tokens/request")
	b.ReportMetric(float64(longest), "longest")

	if r.process != 0 {
		b.ReportMetric(float64((stack.CPUOf(b, r.process)-before).Microseconds())/1000/float64(requests), "cpu-ms/request")
	}
}

// agentSession returns the requests of one session of an agent: instructions, tools,
// and then turns with reasoning, a call and its result each. The last request has
// sessionTokens tokens, but for the frames of the messages.
func agentSession(seed uint64, model string) [][]byte {
	w := &writer{rand.New(rand.NewPCG(seed, 72))}

	tools := make([]json.RawMessage, sessionTools)
	for i := range tools {
		tools[i] = w.tool(i)
	}

	messages := []json.RawMessage{
		members("role", "system", "content", w.text(3000, w.prose)),
		members("role", "user", "content", w.text(400, w.prose)+"\n```go\n"+w.text(600, w.code)+"```\n"),
	}

	head := 0
	for _, part := range append(tools, messages...) {
		head += countTokens(string(part))
	}
	perTurn := (sessionTokens - head) / (sessionTurns - 1)

	bodies := make([][]byte, 0, sessionTurns)
	for turn := range sessionTurns {
		if turn > 0 {
			id := fmt.Sprintf("call_%d_%d", seed, turn)

			thought, arguments := w.text(60, w.prose), string(w.object(2))
			call := members("id", id, "type", "function", "function", map[string]string{"name": "tool_" + strconv.Itoa(turn%sessionTools), "arguments": arguments})
			rest := perTurn - countTokens(thought+arguments) - 25 // the frames of three messages
			kind := []func() string{w.code, w.code, w.prose, func() string { return string(w.object(3)) + "\n" }}[turn%4]
			messages = append(messages,
				members("role", "assistant", "content", nil, "reasoning", thought, "tool_calls", []json.RawMessage{call}),
				members("role", "tool", "tool_call_id", id, "content", w.text(rest, kind)))
		}

		bodies = append(bodies, members("model", model, "reasoning_effort", "high", "tools", tools, "messages", messages))
	}
	return bodies
}

// countTokens counts the tokens of a text.
func countTokens(text string) int { return len(harmony.AppendEncode(nil, text)) }

// members returns an object of names and values.
func members(list ...any) json.RawMessage {
	m := map[string]any{}
	for i := 0; i < len(list); i += 2 {
		m[list[i].(string)] = list[i+1] //nolint:forcetypeassert // names are strings
	}
	text, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return text
}

// writer writes texts of its own.
type writer struct{ random *rand.Rand }

var plainWords = strings.Fields(`the a of to and in that it is was for on with as by at from this which not are be
	request response server client token cache error value result file test branch build change before after
	while each other first last small large slow fast because should could would must never always reads writes
	returns waits fails begins ends checks keeps adds removes finds moves needs uses opens closes number list
	string buffer limit memory network address header body stream event model engine filter session answer
	question reason user system release version option default example folder path line column table row key
	member field order time second minute morning house water river light window garden market letter music`)

var syllables = strings.Fields(`ab ad al an ar as at bel ber bo ca cen cha con cor de den di do el en er est fa fer
	fin for ga gen gra he hol in is ja ker la len li lo ma men mi mo na nel ni no ol on or pa per pli po pre qua ra ren ri
	ro sa sen shi so sta ta ter ti tra ul un ur va ver vi vo wa wen ya zen zo`)

// word is mostly one of few words, the first ones more often, and else one that is new.
func (w *writer) word() string {
	if w.random.IntN(8) > 0 {
		return plainWords[w.random.IntN(w.random.IntN(len(plainWords))+1)]
	}
	made := make([]string, 2+w.random.IntN(3))
	for i := range made {
		made[i] = syllables[w.random.IntN(len(syllables))]
	}
	return strings.Join(made, "")
}

func (w *writer) name() string {
	word := w.word()
	for range w.random.IntN(3) {
		next := w.word()
		word += strings.ToUpper(next[:1]) + next[1:]
	}
	return word
}

// text joins pieces to a text of about so many tokens.
func (w *writer) text(tokens int, piece func() string) string {
	var t strings.Builder
	for n := 0; n < tokens; {
		p := piece()
		n += countTokens(p)
		t.WriteString(p)
	}
	return t.String()
}

func (w *writer) prose() string {
	words := make([]string, 6+w.random.IntN(14))
	for i := range words {
		words[i] = w.word()
		if w.random.IntN(12) == 0 {
			words[i] += ","
		}
	}
	end := []string{". ", ". ", ".\n", "? ", ":\n\n- "}[w.random.IntN(5)]
	return strings.ToUpper(words[0][:1]) + strings.Join(words, " ")[1:] + end
}

func (w *writer) code() string {
	a, c := w.name(), w.name()
	switch w.random.IntN(5) {
	case 0:
		return fmt.Sprintf("// %s %s %s %s.\nfunc (%c *%s) %s(ctx context.Context, %s []byte) (int, error) {\n", a, w.word(), w.word(), w.word(), c[0], c, a, w.word())
	case 1:
		return fmt.Sprintf("\tif err := %s.%s(%q, %d); err != nil {\n\t\treturn 0, fmt.Errorf(\"%s %s: %%w\", err)\n\t}\n", a, c, w.word(), w.random.IntN(4096), w.word(), w.word())
	case 2:
		return fmt.Sprintf("\tfor i, %s := range %s {\n\t\t%s[i] += %s * 0x%x\n\t}\n", w.word(), a, c, w.word(), w.random.IntN(1<<16))
	case 3:
		return fmt.Sprintf("\t%s := map[string]int{%q: %d, %q: %d}\n", a, w.word(), w.random.IntN(100), w.name(), w.random.IntN(100000))
	}
	return "\treturn " + a + "." + c + "\n}\n\n"
}

// object writes a JSON object of some depth.
func (w *writer) object(depth int) json.RawMessage {
	m := map[string]any{}
	for range 2 + w.random.IntN(4) {
		switch kind := w.random.IntN(5); {
		case kind == 0 && depth > 1:
			m[w.name()] = w.object(depth - 1)
		case kind == 1:
			m[w.name()] = w.random.IntN(1_000_000)
		case kind == 2:
			m[w.word()] = []any{w.word(), w.random.Float32(), nil, true}
		case kind == 3:
			m["path"] = "/" + w.word() + "/" + w.word() + "/" + w.name() + ".go"
		default:
			m[w.word()] = w.prose()
		}
	}
	text, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		panic(err)
	}
	return text
}

// tool writes the definition of a tool.
func (w *writer) tool(i int) json.RawMessage {
	properties := map[string]any{}
	for range 3 {
		properties[w.name()] = map[string]string{"type": []string{"string", "integer", "boolean"}[w.random.IntN(3)], "description": w.prose()}
	}
	return members("type", "function", "function", map[string]any{
		"name": "tool_" + strconv.Itoa(i), "description": w.text(60, w.prose),
		"parameters": map[string]any{"type": "object", "properties": properties},
	})
}
