//go:build browser

package operations

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/websocket"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// browser is a page in Chromium, driven by its DevTools protocol.
type browser struct {
	t    *testing.T
	ws   *websocket.Conn
	next int
	// faults are what the page did that its policy forbids, and its exceptions.
	faults []string
}

// devTools is the line in which Chromium says where its DevTools are.
var devTools = regexp.MustCompile(`ws://(\S+)/devtools`)

// openBrowser starts Chromium with an empty page.
func openBrowser(t *testing.T) *browser {
	t.Helper()
	binary, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is not installed: on Debian, apt-get install chromium")
	}

	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, binary, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
		"--remote-debugging-port=0", "--user-data-dir="+t.TempDir(), "about:blank")
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
			b := &browser{t: t, ws: ws}
			t.Cleanup(func() { b.close() })
			b.call("Log.enable", nil)
			b.call("Runtime.enable", nil)
			return b
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

// close ends the connection. A page that has tried what its policy forbids fails the test.
func (b *browser) close() {
	_ = b.ws.Close()
	for _, fault := range b.faults {
		b.t.Errorf("the page: %s", fault)
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
			Method string
			Params json.RawMessage
		}
		if err := b.ws.SetReadDeadline(time.Now().Add(stack.Patience)); err != nil {
			b.t.Fatal(err)
		}
		if err := websocket.JSON.Receive(b.ws, &answer); err != nil {
			b.t.Fatal(err)
		}

		if answer.ID != b.next {
			b.event(answer.Method, answer.Params)
			continue
		}
		if answer.Error != nil {
			b.t.Fatalf("%s: %s", method, answer.Error)
		}
		return answer.Result
	}
}

// event takes an event of the page.
func (b *browser) event(method string, parameters json.RawMessage) {
	switch text := string(parameters); {
	case method == "Runtime.exceptionThrown",
		method == "Log.entryAdded" && strings.Contains(text, `"source":"security"`):
		b.faults = append(b.faults, text)
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

// keys are the keys that do more than to be told: their codes, and the text that they write.
var keys = map[string]struct {
	code int
	text string
}{
	"Enter": {13, "\r"}, "Tab": {9, ""}, "Escape": {27, ""}, "ArrowDown": {40, ""}, "ArrowUp": {38, ""},
	"ArrowRight": {39, ""}, "ArrowLeft": {37, ""}, "End": {35, ""}, " ": {32, " "},
}

// press presses a key: one of keys, or a character.
func (b *browser) press(key string) {
	b.t.Helper()
	k, known := keys[key]
	if !known {
		k.text = key
	}
	b.call("Input.dispatchKeyEvent", map[string]any{
		"type": "keyDown", "key": key, "text": k.text, "windowsVirtualKeyCode": k.code,
	})
	b.call("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key, "windowsVirtualKeyCode": k.code})
}

// write presses the keys of a text.
func (b *browser) write(text string) {
	b.t.Helper()
	for _, c := range text {
		b.press(string(c))
	}
}

// show opens an address in a window of a size, with a color scheme.
func (b *browser) show(url string, width, height int, scheme string) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{
		"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false,
	})
	b.call("Emulation.setEmulatedMedia", map[string]any{
		"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}},
	})
	// Away first: of an address that differs in its fragment alone the page stays as it is.
	b.call("Page.navigate", map[string]any{"url": "about:blank"})
	b.call("Page.navigate", map[string]any{"url": url})
}

// picture takes a picture of the page, as PNG.
func (b *browser) picture() []byte {
	b.t.Helper()
	var r struct{ Data []byte }
	if err := json.Unmarshal(b.call("Page.captureScreenshot", map[string]any{"format": "png"}), &r); err != nil {
		b.t.Fatal(err)
	}
	return r.Data
}
