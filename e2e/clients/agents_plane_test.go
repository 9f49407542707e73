//go:build clients

package clients

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// agentPatience bounds one run of a coding agent.
const agentPatience = 2 * time.Minute

// agentAlias is the beginning of model names that stand for a gpt-oss model.
const agentAlias = "claude-"

// agentPlane is a data plane for coding agents. It records their requests and can
// make the engine fail.
type agentPlane struct {
	*stack.Dataplane
	base string // URL without /v1

	mu       sync.Mutex
	requests []agentRequest
	fault    string // directives of the simulated engine's next requests
	once     bool   // the fault is for one request of the engine, not for one of the agent
}

// agentRequest is a request of an agent.
type agentRequest struct {
	path   string
	header http.Header
	body   string
	status int
}

func startAgentPlane(t *testing.T) *agentPlane {
	t.Helper()
	d := &agentPlane{}
	d.Dataplane = stack.Start(t, stack.Options{
		Engine: d.faulty,
		Config: func(c *config.Config) {
			c.Responses.SealKeys = []string{stack.SealKey}
			c.Limits.MaxContinuations = 0 // the tests show what agents do with a stream that breaks
			c.Aliases = []config.Alias{{Name: agentAlias + "*", Model: stack.SGLangModel}}
			c.Models = append(c.Models,
				config.Model{Match: "=" + shortModel, Engine: "vllm", ContextLength: shortLength},
				config.Model{Match: "=" + strictModel, UpstreamModel: stack.SGLangModel, ToolStrictness: turn.StrictnessAll},
			)
		},
	})

	target, err := url.Parse(d.CheckedURL(t))
	if err != nil {
		t.Fatal(err)
	}

	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: d.Client.Transport, FlushInterval: -1}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		// An agent may leave a stream that breaks before its end, which ends this goroutine.
		number := d.note(agentRequest{path: r.URL.Path, header: r.Header, body: string(body)})
		proxy.ServeHTTP(&statusWriter{w, func(status int) { d.answered(number, status) }}, r)
	}))

	t.Cleanup(server.Close)
	d.base = server.URL
	return d
}

// statusWriter says what the status of a reply is.
type statusWriter struct {
	http.ResponseWriter
	say func(status int)
}

// WriteHeader implements [http.ResponseWriter].
func (w *statusWriter) WriteHeader(status int) {
	w.say(status)
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap returns the writer, for [http.ResponseController].
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// note records a request of an agent, and returns its number.
func (d *agentPlane) note(r agentRequest) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.requests = append(d.requests, r)
	return len(d.requests) - 1
}

// answered records the status of a request. A fault that the agent has seen is over.
func (d *agentPlane) answered(number, status int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.requests[number].status = status
	if status >= http.StatusBadRequest {
		d.fault = ""
	}
}

// faulty is a handler in front of the engine that sets its directives: calls have headers in the forms
// that gpt-oss writes, and there may be a fault.
func (d *agentPlane) faulty(engine http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			d.mu.Lock()
			r.Header.Set("x-engine-sim", strings.TrimSpace("headers=seed "+d.fault))
			if d.once {
				d.fault = ""
			}
			d.mu.Unlock()
		}
		engine.ServeHTTP(w, r)
	})
}

// failNext makes the engine fail until the agent has seen an error, or once.
func (d *agentPlane) failNext(directives string, once bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault, d.once = directives, once
}

// since returns the agents' requests for a path, after the first n of all.
func (d *agentPlane) since(n int, path string) []agentRequest {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(d.requests[n:]), func(r agentRequest) bool { return !strings.HasSuffix(r.path, path) })
}

// agentRun is an agent with its own home and working directory.
type agentRun struct {
	t              *testing.T
	d              *agentPlane
	base           string // URL without /v1
	home, folder   string
	engineBefore   int // number of the engine's requests before
	requestsBefore int // number of the agents' requests before
	stderr         string
}

// newAgentRun returns a run of a client, which has the name of its manifest.
func newAgentRun(t *testing.T, d *agentPlane, client string) *agentRun {
	t.Helper()
	return &agentRun{t: t, d: d, base: recorded(t, d.base, client), home: t.TempDir(), folder: t.TempDir(), engineBefore: len(d.EngineRequests(t, "")), requestsBefore: len(d.since(0, ""))}
}

// run runs a program of e2e/clients with the prompt on standard input and returns its
// standard output. WantError says whether it is to fail.
func (a *agentRun) run(wantError bool, environment []string, prompt, program string, arguments ...string) string {
	a.t.Helper()
	modules, err := filepath.Abs("clients/node_modules")
	if err != nil {
		a.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(a.t.Context(), agentPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(modules, ".bin", program), arguments...)
	cmd.Dir = a.folder
	// The agents' programs need a newer Node.js than some systems have.
	cmd.Env = append([]string{"PATH=" + filepath.Join(modules, "node", "bin") + ":" + os.Getenv("PATH"), "HOME=" + a.home, "TMPDIR=" + a.home}, environment...)
	cmd.Stdin = strings.NewReader(prompt)
	cmd.WaitDelay = 5 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); (err != nil) != wantError {
		a.t.Fatalf("%s: error %v, want one: %t\n%s\n%s", program, err, wantError, &stdout, &stderr)
	}
	a.stderr = stderr.String()
	return strings.TrimSpace(stdout.String())
}

// file returns the path of a file in the working directory.
func (a *agentRun) file(name string) string { return filepath.Join(a.folder, name) }

// write makes a file in the working directory.
func (a *agentRun) write(name, content string) {
	a.t.Helper()
	if err := os.WriteFile(a.file(name), []byte(content), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// writePicture makes a PNG of one pixel in the working directory.
func (a *agentRun) writePicture(name string) {
	a.t.Helper()
	png, err := base64.StdEncoding.DecodeString("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(name, string(png))
}

// wantFile checks a file that the agent has written.
func (a *agentRun) wantFile(name, want string) {
	a.t.Helper()
	if got, err := os.ReadFile(a.file(name)); err != nil || string(got) != want {
		a.t.Errorf("%s has %q (%v), want %q", name, got, err, want)
	}
}

// want checks what the agent has printed.
func (a *agentRun) want(got, want string) {
	a.t.Helper()
	if got != want {
		a.t.Errorf("the agent prints %q, want %q", got, want)
	}
}

// engineCalls returns the model calls of the agent.
func (a *agentRun) engineCalls() []stack.EngineRequest {
	a.t.Helper()
	return slices.DeleteFunc(a.d.EngineRequests(a.t, "")[a.engineBefore:], func(r stack.EngineRequest) bool { return len(r.PromptIDs) == 0 })
}

// headerForms are the forms in which gpt-oss writes the header of a call, around the tool's name.
var headerForms = [][2]string{
	{"<channel>commentary to=functions.", " <constrain>json<message>"},
	{" to=functions.", "<channel>commentary <constrain>json<message>"},
	{"<channel>commentary to=functions.", " json<message>"},
}

// exact returns the script of a turn with tool calls, as exact tokens: calls are the
// names and the arguments of tools. Each step has its header in another form, and
// which one is the first depends on the answer.
func exact(answer string, calls ...string) string {
	var b strings.Builder
	for i := 0; i < len(calls); i += 2 {
		form := headerForms[(len(answer)+i/2)%len(headerForms)]
		b.WriteString("@@<channel>analysis<message>Step by step, 世界.<end><start>assistant" + form[0] + calls[i] + form[1] + calls[i+1] + "<call>")
	}
	return b.String() + "@@<channel>analysis<message>Enough.<end><start>assistant<channel>final<message>" + answer + "<return>@@"
}

// wantTurn checks that model calls form one turn: each prompt begins with all tokens
// of the previous prompt and of its output.
func (a *agentRun) wantTurn(calls []stack.EngineRequest) {
	a.t.Helper()
	for i, r := range calls[:len(calls)-1] {
		a.wantBegins(i+2, calls[i+1].PromptIDs, slices.Concat(r.PromptIDs, r.OutputIDs[0]))
	}
}

// reasoned matches the reasoning of an output in a prompt's text.
var reasoned = regexp.MustCompile(`<\|channel\|>analysis<\|message\|>[^<]*<\|end\|><\|start\|>assistant`)

// wantNextTurn checks that the prompt of a turn begins with all tokens of the prompt
// that began the turn before, and with everything of that turn but its reasoning. The
// headers of its calls are in the form in which they were written, which the ids say.
func (a *agentRun) wantNextTurn(before []stack.EngineRequest, next stack.EngineRequest) {
	a.t.Helper()
	a.wantBegins(next.Number, next.PromptIDs, before[0].PromptIDs)
	last := before[len(before)-1]
	want := reasoned.ReplaceAllString(last.Prompt+strings.TrimSuffix(last.Output[0], "<|return|>"), "") + "<|end|>"
	if !strings.HasPrefix(next.Prompt, want) {
		at := sharedPrefix(next.Prompt, want)
		a.t.Errorf("prompt %d has other history: %.300q, want %.300q", next.Number, next.Prompt[at:], want[at:])
	}
}

// wantForms checks that the calls of a turn have headers in all forms that gpt-oss writes.
func (a *agentRun) wantForms(calls []stack.EngineRequest) {
	a.t.Helper()
	called := regexp.MustCompile(`<\|start\|>assistant(\S* to=)[\w.-]+(.*<\|message\|>)[^<]*<\|call\|>$`)
	forms := map[string]bool{}
	for _, r := range calls {
		if m := called.FindStringSubmatch(r.Output[0]); m != nil {
			forms[m[1]+m[2]] = true
		}
	}
	if len(forms) != len(headerForms) {
		a.t.Errorf("the headers of calls have the forms %v", forms)
	}
}

func (a *agentRun) wantBegins(number int, prompt, want []harmony.Token) {
	a.t.Helper()
	at := 0
	for at < min(len(prompt), len(want)) && prompt[at] == want[at] {
		at++
	}
	if at < len(want) {
		a.t.Errorf("prompt %d has the first %d of %d tokens that it should begin with, then\n%s\nwant\n%s", number, at, len(want), shown(prompt[at:]), shown(want[at:]))
	}
}

// shown returns the beginning of tokens as text. Some of them may be special.
func shown(ids []harmony.Token) string {
	text, err := harmony.AppendDecode(nil, ids[:min(len(ids), 100)])
	if err != nil {
		return err.Error()
	}
	return string(text)
}
