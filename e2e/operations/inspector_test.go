//go:build browser

package operations

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/websocket"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/inspect"
)

// These tests open the inspector's page in a headless Chromium.

var screenshots = flag.String("screenshots", "", "folder for pictures of the page")

// browser is a page in Chromium, driven by its DevTools protocol.
type browser struct {
	t    *testing.T
	ws   *websocket.Conn
	next int
}

// devTools is the line in which Chromium says where its DevTools are.
var devTools = regexp.MustCompile(`ws://(\S+)/devtools`)

// openBrowser starts Chromium with an empty page of a size.
func openBrowser(t *testing.T, width, height int, options ...string) *browser {
	t.Helper()
	binary, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is not installed: on Debian, apt-get install chromium")
	}

	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, binary, append(options, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-port=0",
		fmt.Sprintf("--window-size=%d,%d", width, height), "--user-data-dir="+t.TempDir(), "about:blank")...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}

	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		cancel()
		_, _ = io.Copy(io.Discard, stderr) // until the last of its processes has ended, which write to their folder
		_ = cmd.Wait()
	})

	host := ""
	for lines := bufio.NewScanner(stderr); host == "" && lines.Scan(); {
		if m := devTools.FindStringSubmatch(lines.Text()); m != nil {
			host = m[1]
		}
	}

	var pages []struct {
		Type string
		URL  string `json:"webSocketDebuggerUrl"`
	}
	getJSON(t, "http://"+host+"/json", &pages)
	for _, p := range pages {
		if p.Type == "page" {
			ws, err := websocket.Dial(p.URL, "", "http://"+host)
			if err != nil {
				t.Fatal(err)
			}
			ws.MaxPayloadBytes = 64 << 20
			t.Cleanup(func() { _ = ws.Close() })
			return &browser{t: t, ws: ws}
		}
	}

	t.Fatalf("no page: %+v", pages)
	return nil
}

func getJSON(t *testing.T, url string, to any) {
	t.Helper()
	resp, err := http.Get(url) //nolint:noctx // of a test
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(to); err != nil {
		t.Fatal(err)
	}
}

// call calls a method of the DevTools protocol.
func (b *browser) call(method string, parameters map[string]any) json.RawMessage {
	b.t.Helper()
	b.next++
	if err := websocket.JSON.Send(b.ws, map[string]any{"id": b.next, "method": method, "params": parameters}); err != nil {
		b.t.Fatal(err)
	}

	for {
		var answer struct {
			ID     int
			Result json.RawMessage
			Error  json.RawMessage
		}
		if err := b.ws.SetReadDeadline(time.Now().Add(stack.Patience)); err != nil {
			b.t.Fatal(err)
		}
		if err := websocket.JSON.Receive(b.ws, &answer); err != nil {
			b.t.Fatal(err)
		}

		if answer.ID != b.next {
			continue // an event
		}
		if answer.Error != nil {
			b.t.Fatalf("%s: %s", method, answer.Error)
		}
		return answer.Result
	}
}

// eval returns the value of an expression in the page as a text.
func (b *browser) eval(expression string) string {
	b.t.Helper()
	var r struct {
		Result           struct{ Value any }
		ExceptionDetails json.RawMessage
	}
	if err := json.Unmarshal(b.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}), &r); err != nil {
		b.t.Fatal(err)
	}
	if r.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s", expression, r.ExceptionDetails)
	}
	return fmt.Sprint(r.Result.Value)
}

// await waits until an expression is true.
func (b *browser) await(expression string) {
	b.t.Helper()
	for end := time.Now().Add(stack.Patience); b.eval("Boolean("+expression+")") != "true"; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("never: %s\n%s", expression, b.eval("document.body.innerText"))
		}
	}
}

// press presses a key.
func (b *browser) press(key string) {
	b.t.Helper()
	for _, kind := range []string{"keyDown", "keyUp"} {
		b.call("Input.dispatchKeyEvent", map[string]any{"type": kind, "key": key, "code": key})
	}
}

// picture writes a picture of the page, where a folder is named for pictures.
func (b *browser) picture(name string) {
	b.t.Helper()
	if *screenshots == "" {
		return
	}
	var r struct{ Data string }
	if err := json.Unmarshal(b.call("Page.captureScreenshot", map[string]any{"format": "png"}), &r); err != nil {
		b.t.Fatal(err)
	}
	picture, err := base64.StdEncoding.DecodeString(r.Data)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*screenshots, name+".png"), picture, 0o644); err != nil { //nolint:gosec // a picture
		b.t.Fatal(err)
	}
}

const inspectedTool = `"tools":[{"type":"function","name":"get_weather","description":"Returns the weather.","parameters":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}]`

// inspected starts a data plane that records, makes some exchanges, and serves the page.
func inspected(t *testing.T, token string) (page string) {
	t.Helper()
	d := stack.Start(t, stack.Options{Config: func(c *config.Config) { c.Record.Percent, c.Record.Content = 100, true }})

	post := func(path, body string) map[string]any {
		t.Helper()
		resp, err := d.Client.Post(d.URL+path, "application/json", strings.NewReader(body)) //nolint:noctx // of a test
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var object map[string]any
		_ = json.NewDecoder(resp.Body).Decode(&object) // a stream is none
		return object
	}

	first := post("/v1/responses", `{"model":"gpt-oss-20b","instructions":"Be brief.","input":"THINK The user asks for the weather. I call the tool.\nCALL get_weather {\"city\":\"Bern\"}\nSAY It is sunny in Bern, 21 °C.",`+inspectedTool+`}`)
	call := ""
	for _, o := range first["output"].([]any) {
		if id, ok := o.(map[string]any)["call_id"].(string); ok {
			call = id
		}
	}

	post("/v1/responses", fmt.Sprintf(`{"model":"gpt-oss-20b","instructions":"Be brief, and polite.","previous_response_id":%q,"input":[{"type":"function_call_output","call_id":%q,"output":"sunny"}],%s}`, first["id"], call, inspectedTool))
	post("/v1/chat/completions", `{"model":"gpt-oss-20b","messages":[{"role":"user","content":"SAY <img src=x onerror=document.title='broken'>"}],"logprobs":true}`)
	post("/v1/chat/completions", `{"model":"gpt-oss-20b","messages":[{"role":"user","content":"NOTHINK\nWORDS 4000"}]}`)

	server := httptest.NewServer(inspect.Handler(d.Service, token))
	t.Cleanup(server.Close)
	return server.URL + "/inspector/"
}

// The page lists exchanges, and shows one: its prompt, its output token by token, and its
// time. It can be used with the keyboard alone.
func TestInspector(t *testing.T) {
	page := inspected(t, "")
	b := openBrowser(t, 1400, 1100)
	b.call("Page.navigate", map[string]any{"url": page})
	b.await(`document.querySelectorAll("#list a").length === 4`)

	b.eval(`document.querySelectorAll("#list a")[0].focus()`)
	for range 2 {
		b.press("ArrowDown")
	}
	b.eval(`document.activeElement.click()`)
	b.await(`document.querySelectorAll("main section").length > 4`)
	b.picture("inspector")
	text := b.eval(`document.querySelector("main").innerText`)
	for _, want := range []string{"Timeline", "queue", "generate", "Model call 1", "from the engine's cache", "assistant analysis", "assistant final", "<|return|>", "It is sunny in Bern"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page has no %q:\n%s", want, text)
		}
	}
	if n := b.eval(`document.querySelectorAll("main details[open] pre.final span.special").length`); n == "0" {
		t.Error("no control token is marked")
	}
	b.eval(`document.querySelector("pre.final").focus()`)
	b.press("ArrowRight")
	b.await(`!document.getElementById("token").hidden`)
	if about := b.eval(`document.getElementById("token").textContent`); !strings.Contains(about, "id 200006") || !strings.Contains(about, "ms") {
		t.Errorf("of the first token: %q", about)
	}

	b.eval(`[...document.querySelectorAll("main a")].find((a) => a.textContent.startsWith("compare")).click()`)
	b.await(`document.querySelectorAll(".differs").length === 2`)
	b.picture("inspector-compare")
	if text := b.eval(`document.querySelector("main").innerText`); !strings.Contains(text, "The first difference is token") {
		t.Errorf("two prompts: %s", text)
	}
}

// What a record has is text, whatever it looks like.
func TestInspectorShowsTextOnly(t *testing.T) {
	page := inspected(t, "")
	b := openBrowser(t, 1000, 800)
	b.call("Page.navigate", map[string]any{"url": page})
	b.await(`document.querySelectorAll("#list a").length === 4`)
	b.eval(`document.querySelectorAll("#list a")[1].click()`)
	b.await(`document.querySelector("main").innerText.includes("onerror")`)
	if n := b.eval(`document.querySelectorAll("img").length + document.title`); n != "0envoy-harmony inspector" {
		t.Errorf("markup of a record is markup of the page: %s", n)
	}
}

// An answer of more than 10,000 tokens is shown whole.
func TestInspectorLongAnswer(t *testing.T) {
	page := inspected(t, "")
	b := openBrowser(t, 1400, 900, "--force-dark-mode", "--enable-features=WebContentsForceDark")
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": "dark"}}})
	b.call("Page.navigate", map[string]any{"url": page})
	b.await(`document.querySelectorAll("#list a").length === 4`)
	b.eval(`document.querySelectorAll("#list a")[0].click()`)
	b.await(`document.querySelectorAll("pre.final span").length > 10000`)
	b.picture("inspector-dark")
	t.Logf("scrolling through it: %s ms", b.eval(`(async () => {
		const main = document.querySelector("main"), begun = performance.now();
		for (let y = 0; y < main.scrollHeight; y += 2000) { main.scrollTop = y; await new Promise(requestAnimationFrame); }
		return Math.round(performance.now() - begun);
	})()`))
}

// With a token, the page asks for it.
func TestInspectorToken(t *testing.T) {
	page := inspected(t, "opensesame")
	b := openBrowser(t, 1000, 800)
	b.call("Page.navigate", map[string]any{"url": page})
	b.await(`document.getElementById("sign-in")?.hidden === false`)
	if n := b.eval(`document.querySelectorAll("#list a").length`); n != "0" {
		t.Errorf("%s exchanges are listed without the token", n)
	}
	b.eval(`document.querySelector("[name=token]").value = "opensesame"; document.querySelector("#sign-in button").click()`)
	b.await(`document.querySelectorAll("#list a").length === 4`)
}
