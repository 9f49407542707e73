//go:build browser

package operations

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/inspect"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// These tests open the inspector's page in a headless Chromium.

var (
	screenshots = flag.String("screenshots", "", "folder for pictures of the page, in all sizes and both color schemes")
	pictures    = flag.String("pictures", "", "folder in which the pictures of docs/inspector.md are renewed")
)

const inspectedTool = `"tools":[{"type":"function","name":"get_weather","description":"Returns the weather.","parameters":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}]`

// inspectedExchanges is how many exchanges inspected makes.
const inspectedExchanges = 8

// inspected starts a data plane that records, makes some exchanges, and serves the page, with records that are older.
func inspected(t *testing.T, token string, older ...*record.Record) (page string) {
	t.Helper()
	d := stack.Start(t, stack.Options{Config: func(c *config.Config) { c.Record.Percent, c.Record.Content = 100, true }})
	post := func(path, body string) map[string]any {
		t.Helper()
		resp, err := d.Client.Post(d.URL+path, "application/json", strings.NewReader(body)) //nolint:noctx // of a test
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		// To its end: a client that leaves early is another outcome.
		answer, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		var object map[string]any
		_ = json.Unmarshal(answer, &object) // a stream is none
		return object
	}
	chat := func(question, more string) {
		t.Helper()
		post("/v1/chat/completions", fmt.Sprintf(`{"model":"gpt-oss-20b","messages":[{"role":"user","content":%q}]%s}`, question, more))
	}

	// A tool is called, and its result is sent with other instructions, which the cache does not have.
	first := post("/v1/responses", `{"model":"gpt-oss-20b","instructions":"Be brief.","input":"How is the weather in Bern?\nTHINK The user asks for the weather. I call the tool.\nCALL get_weather {\"city\":\"Bern\"}\nSAY It is sunny in Bern, 21 °C.",`+inspectedTool+`}`)
	call := ""
	for _, o := range first["output"].([]any) {
		if id, ok := o.(map[string]any)["call_id"].(string); ok {
			call = id
		}
	}
	post("/v1/responses", fmt.Sprintf(`{"model":"gpt-oss-20b","instructions":"Be brief, and polite.","previous_response_id":%q,"input":[{"type":"function_call_output","call_id":%q,"output":"sunny"}],%s}`, first["id"], call, inspectedTool))

	// What the model writes is repaired, in its form and in its arguments.
	chat("Greet me.\n@@<channel>analysis<message>The user wants a greeting.<end><message>Good morning!<return>@@", "")
	post("/v1/responses", `{"model":"gpt-oss-20b","input":"And in Rome?\nTHINK I ask the tool.\nCALL get_weather {\"city\": \"Rome\",}",`+inspectedTool+`}`)

	// What is hard to show: markup, a word without end, an answer of many tokens, a stream that breaks.
	chat("Markup\nSAY <img src=x onerror=document.title='broken'>", `,"logprobs":true`)
	chat(strings.Repeat("Wide", 100)+"\nSAY "+strings.Repeat("wide", 400), "")
	chat("Tell a long story.\nNOTHINK\nWORDS 4000", "")
	chat("Which stream breaks?\nNOTHINK\nWORDS 60\nSIM fault=error@40", `,"stream":true`)

	server := httptest.NewServer(inspect.Handler(withOlder{d.Service, older}, token))
	t.Cleanup(server.Close)
	return server.URL + "/inspector/"
}

// withOlder has records before those of a source.
type withOlder struct {
	inspect.Source

	older []*record.Record
}

func (s withOlder) Records() []*record.Record { return slices.Concat(s.older, s.Source.Records()) }

// longNames is an exchange in which everything that others choose is long and without a space.
func longNames() *record.Record {
	long := func(name string) string { return name + strings.Repeat("-long", 40) }
	prompt := harmony.AppendEncodeSpecial(nil, "<|start|>user<|message|>Long names<|end|><|start|>assistant")
	output := harmony.AppendEncodeSpecial(nil, "<|channel|>"+long("channel")+" to="+long("functions")+"<|message|>{}<|call|>")
	return &record.Record{
		ID: long("id"), Tenant: long("tenant"), Started: time.Unix(1790000000, 0), Settings: record.Settings{Session: long("session")},
		Request: record.Request{Method: "POST", Path: "/v1/responses?" + long("query"), Body: record.NewText([]byte(`{"` + long("a") + `":1}`))},
		Target:  record.Target{API: "responses", Model: long("model"), Engine: long("engine")}, Config: long("config"),
		Events: []record.Event{
			{Kind: record.KindCall, At: 1000, Call: &record.Call{ID: long("call"), Prompt: prompt, Count: len(prompt), Options: []byte(`"` + long("options") + `"`)}},
			{Kind: record.KindAnswer, At: 2000, Answer: &record.Answer{Status: 200, Replica: long("replica")}},
			{Kind: record.KindTokens, At: 3000, Tokens: &record.Tokens{IDs: output}},
			{Kind: record.KindBroken, At: 4000, Text: record.NewText([]byte(long("broken")))},
			{Kind: record.KindTool, At: 9000, Tool: &record.ToolRun{Server: long("server"), Tool: long("tool"), Micros: 4000}},
			{Kind: record.KindSent, At: 9000, Text: record.NewText([]byte(long("data:")))},
		},
		Result: record.Result{Outcome: "failed", Status: 502, Error: long("error"), Micros: 9000, Response: long("response"), Repairs: map[string]int{long("repair"): 1, "unknown_channel": 1}},
	}
}

// list waits for the list with all exchanges.
func (b *browser) list() {
	b.t.Helper()
	b.awaitRows(inspectedExchanges)
}

func (b *browser) awaitRows(n int) {
	b.t.Helper()
	b.await(fmt.Sprintf(`document.querySelectorAll("#list a").length === %d`, n))
}

// open opens the last exchange whose row has a text.
func (b *browser) open(text string) {
	b.t.Helper()
	b.eval(fmt.Sprintf(`[...document.querySelectorAll("#list a")].find((a) => a.textContent.includes(%q)).click()`, text))
	b.await(fmt.Sprintf(`document.querySelector("main dd")?.textContent.includes(%q)`, text))
}

// focused is the element that has the focus: its name, its id or that of its exchange, and its text.
func (b *browser) focused() string {
	b.t.Helper()
	return b.eval(`[document.activeElement.localName, document.activeElement.id, document.activeElement.name, document.activeElement.textContent.slice(0, 200)].filter(Boolean).join(" ")`)
}

// The page lists exchanges by their questions, and shows one: its prompt, its output token by token, its time, and
// what was sent and received.
func TestInspector(t *testing.T) {
	page := inspected(t, "")
	b := openBrowser(t)
	b.show(page, 1280, 900, "light")
	b.list()

	b.open("How is the weather in Bern?")
	text := b.eval(`document.querySelector("main").innerText`)
	for _, want := range []string{"Timeline", "queue", "generate", "Model call 1", "from the engine's cache", "assistant analysis", "assistant final", "<|return|>", "It is sunny in Bern"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page has no %q:\n%s", want, text)
		}
	}
	if n := b.eval(`document.querySelectorAll("main details[open] pre.final span.special").length`); n == "0" {
		t.Error("no control token is marked")
	}
	b.docPicture("inspector")

	// Request and reply have a member in each line, written as they were; the configuration is folded.
	for name, want := range map[string]string{
		"Request": "{\n  \"model\": \"gpt-oss-20b\",\n  \"instructions\": \"Be brief, and polite.\"",
		"Reply":   "\n  \"object\": \"response\",\n",
	} {
		if got := b.eval(fmt.Sprintf(`document.querySelector("section[aria-label=%s] details[open] pre").textContent`, name)); !strings.Contains(got, want) {
			t.Errorf("%s: %s", name, got)
		}
	}
	if b.eval(`document.querySelector("section[aria-label=Configuration] details").open`) != "false" {
		t.Error("the configuration is not folded")
	}

	b.eval(`[...document.querySelectorAll("main a")].find((a) => a.textContent.startsWith("compare")).click()`)
	b.await(`document.querySelectorAll(".differs").length === 2`)
	if text := b.eval(`document.querySelector("main").innerText`); !strings.Contains(text, "The first difference is token") {
		t.Errorf("two prompts: %s", text)
	}
	b.docPicture("inspector-compare")
}

// JSON is shown in lines, and nothing in it changes: numbers, escapes, names that are there twice. What is no JSON
// stays as it is, and hostile texts stay small.
func TestInspectorJSON(t *testing.T) {
	page := inspected(t, "")
	b := openBrowser(t)
	b.show(page, 800, 600, "light")
	b.list()
	for text, want := range map[string]string{
		`{"a":12345678901234567890,"a":[1.0,{}],"b":"\u003c {\"x\":[1,2]}","c":[ ]}`: "{\n  \"a\": 12345678901234567890,\n  \"a\": [\n    1.0,\n    {}\n  ],\n  \"b\": \"\\u003c {\\\"x\\\":[1,2]}\",\n  \"c\": []\n}",
		`data: {"a":1}`: `data: {"a":1}`,
		`{"a":`:         `{"a":`,
		`"text"`:        `"text"`,
		``:              ``,
	} {
		if got := b.eval(fmt.Sprintf(`import("./common.js").then((c) => c.indented(%q))`, text)); got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
	if n := b.eval(`import("./common.js").then((c) => c.block("[".repeat(5000) + "]".repeat(5000)).textContent.length < 600000)`); n != "true" {
		t.Error("brackets alone become a long text")
	}
	if n := b.eval(`import("./common.js").then((c) => c.block("[" + "1,".repeat(2000000) + "1]").textContent.length < 1.1 * 2**20)`); n != "true" {
		t.Error("a long text is shown whole")
	}

	// The cut is in a string of quotation marks, as that of a long file in a request is.
	const cut = `"x".repeat(2**20 - 150000) + '"b'.repeat(200000)`
	ms := b.eval(`import("./common.js").then((c) => {
		const text = JSON.stringify({ a: ` + cut + ` }), begun = performance.now();
		c.block(text);
		return Math.round(performance.now() - begun);
	})`)
	if n, err := strconv.Atoi(ms); err != nil || n > 3000 {
		t.Errorf("a text that is cut in a string takes %s ms", ms)
	}
}

// What a record has is text, whatever it looks like.
func TestInspectorShowsTextOnly(t *testing.T) {
	page := inspected(t, "")
	b := openBrowser(t)
	b.show(page, 1000, 800, "light")
	b.list()
	b.open("Markup SAY")
	b.await(`document.querySelector("main").innerText.includes("onerror")`)
	if n := b.eval(`document.querySelectorAll("img").length + document.title`); n != "0envoy-harmony inspector" {
		t.Errorf("markup of a record is markup of the page: %s", n)
	}
	if rows := b.eval(`document.getElementById("list").innerText`); !strings.Contains(rows, "<img src=x") {
		t.Errorf("the list: %s", rows)
	}

	// If something became markup all the same, the policy would stop it, and these tests would see that.
	b.eval(`document.body.append(Object.assign(document.createElement("script"), { textContent: "document.title = 'run'" }))`)
	stack.Eventually(t, "the fault of the page", func() bool { return b.eval(`document.title`) != "run" && len(b.faults) > 0 })
	b.faults = nil
}

// Of a redacted record the page has lengths and times, and no word; an address leads to it. An address that is none
// shows the list.
func TestInspectorRedacted(t *testing.T) {
	named := longNames()
	named.ID = "redacted"
	redacted := record.Redact(named)
	page := inspected(t, "", &redacted)
	b := openBrowser(t)
	b.show(page+"#redacted", 400, 850, "light")
	b.await(`document.querySelector("main")?.innerText.includes("redacted: record.content is false")`)

	text := b.eval(`document.querySelector("main").textContent + document.querySelector("#list li:last-child").textContent`)
	for word, want := range map[string]bool{
		`"[201 bytes] 1": "[number]"`: true, "The record does not have it.": true, "Long names": false, "tool-long": false,
	} {
		if strings.Contains(text, word) != want {
			t.Errorf("%q should be there: %t, in %s", word, want, text)
		}
	}
	b.screenshot("400-light-redacted")
	if faults := b.eval(overflows); faults != "" {
		t.Errorf("overflows:\n%s", faults)
	}

	b.show(page+"#%", 400, 850, "light")
	b.awaitRows(inspectedExchanges + 1)
	if text := b.eval(`document.querySelector("main").innerText`); !strings.Contains(text, "Choose an exchange.") {
		t.Errorf("at an address that is none: %s", text)
	}
}

// An answer of more than 10,000 tokens is shown whole.
func TestInspectorLongAnswer(t *testing.T) {
	page := inspected(t, "")
	b := openBrowser(t)
	b.show(page, 1280, 900, "dark")
	b.list()
	b.open("Tell a long story.")
	b.await(`document.querySelectorAll("pre.final span").length > 8000`)
	t.Logf("scrolling through it: %s ms", b.eval(`(async () => {
		const main = document.querySelector("main"), begun = performance.now();
		for (let y = 0; y < main.scrollHeight; y += 2000) { main.scrollTop = y; await new Promise(requestAnimationFrame); }
		return Math.round(performance.now() - begun);
	})()`))
}

// With a token, the page asks for it, and sends it for the record too.
func TestInspectorToken(t *testing.T) {
	page := inspected(t, "opensesame")
	b := openBrowser(t)
	b.show(page, 1000, 800, "light")
	b.await(`document.getElementById("sign-in")?.hidden === false`)
	b.await(`document.getElementById("status").textContent.includes("Enter the token above.")`)
	if n := b.eval(`document.querySelectorAll("#list a").length`); n != "0" {
		t.Errorf("%s exchanges are listed without the token", n)
	}
	b.eval(`document.querySelector("[name=token]").focus()`)
	b.write("opensesame")
	b.press("Enter")
	b.list()

	b.open("Greet me.")
	folder := t.TempDir()
	b.call("Browser.setDownloadBehavior", map[string]any{"behavior": "allow", "downloadPath": folder})
	b.eval(`[...document.querySelectorAll("main a")].find((a) => a.textContent.startsWith("download")).click()`)
	saved := ""
	stack.Eventually(t, "the saved record", func() bool {
		names, _ := filepath.Glob(filepath.Join(folder, "*.json"))
		if len(names) == 1 {
			saved = names[0]
		}
		return saved != ""
	})
	if text, err := os.ReadFile(saved); err != nil || !strings.Contains(string(text), `"format":1`) {
		t.Errorf("the saved record: %.100s, %v", text, err)
	}
}

// The list is searched by the first words of questions, and by ids.
func TestInspectorSearch(t *testing.T) {
	page := inspected(t, "")
	b := openBrowser(t)
	b.show(page, 1280, 900, "light")
	b.list()
	response := b.eval(`fetch("records").then((r) => r.json()).then((all) => all.find((l) => l.question.startsWith("Greet")).result.response)`)
	request := b.eval(`fetch("records").then((r) => r.json()).then((all) => all.find((l) => l.question.startsWith("Greet")).id)`)

	for text, want := range map[string]int{"GREET me": 1, "weather in bern": 2, response: 1, request[4:]: 1, "nobody asked this": 0} {
		b.eval(`document.querySelector("[name=q]").focus()`)
		b.write(text)
		b.awaitRows(want)
		b.press("Escape")
		b.list()
	}
	b.write("nobody asked this")
	b.await(`document.getElementById("status").textContent === "No exchange is like that."`)
}

// Where an output was repaired is marked: in the list, at the message, at the token.
func TestInspectorRepairs(t *testing.T) {
	page := inspected(t, "")
	b := openBrowser(t)
	b.show(page, 1280, 900, "light")
	b.list()
	for _, c := range []struct{ question, row, message, token string }{
		{"Greet me.", "2 repairs", "repaired: missing_start, missing_channel", "<|message|>"},
		{"And in Rome?", "1 repair", "repaired: trailing_comma", "<|call|>"},
	} {
		b.open(c.question)
		if row := b.eval(`document.querySelector("#list a[aria-current] .repair").textContent`); row != c.row {
			t.Errorf("%s: the list has %q", c.question, row)
		}
		if mark := b.eval(`[...document.querySelectorAll("main summary .repair")].map((e) => e.textContent).join()`); mark != c.message {
			t.Errorf("%s: a message has %q", c.question, mark)
		}
		if token := b.eval(`[...document.querySelectorAll("main pre .repaired")].map((e) => e.textContent).join()`); token != c.token {
			t.Errorf("%s: the token is %q", c.question, token)
		}

		b.eval(`[...document.querySelectorAll("main button")].find((e) => e.textContent === "show where").click()`)
		if got := b.focused(); !strings.HasPrefix(got, "summary") || !strings.Contains(got, "repaired:") {
			t.Errorf("%s: shown is %q", c.question, got)
		}
	}
}

// Everything can be reached and used with the keys alone, and what has the focus shows it.
func TestInspectorKeyboard(t *testing.T) {
	page := inspected(t, "")
	b := openBrowser(t)
	b.show(page, 1280, 900, "light")
	b.list()
	expect := func(what, prefix string) {
		t.Helper()
		if got := b.focused(); !strings.HasPrefix(got, prefix) {
			t.Fatalf("%s: the focus is at %q", what, got)
		}
	}

	// Search, then into the list, and to an exchange.
	b.press("/")
	expect("/", "input q")
	b.write("how is")
	b.awaitRows(2)
	b.press("ArrowDown")
	expect("from the search to the list", "a How is the weather")
	b.press("/")
	b.press("Escape")
	b.list()
	b.press("Escape")
	expect("Escape in an empty search", "a Which stream")
	b.press("ArrowDown")
	expect("down", "a Tell a long story")
	b.press("ArrowUp")
	expect("up", "a Which stream")
	b.press("End")
	expect("to the end", "a How is the weather")
	b.press("ArrowUp")
	b.press("Enter")
	b.await(`document.querySelectorAll("main section").length > 4`)
	b.await(`document.activeElement.id === "main"`)

	// Every control of the exchange has its turn, in the order of the page, and shows that it has the focus.
	const tabbable = `[...document.querySelectorAll("main a, main button, main summary, main pre[tabindex]")].filter((e) => e.checkVisibility())`
	stops := b.eval(tabbable + `.length`)
	b.eval(`globalThis.stops = []`)
	for range 100 {
		b.press("Tab")
		if b.eval(`document.querySelector("main").contains(document.activeElement)`) != "true" {
			break
		}
		b.eval(`stops.push(document.activeElement)`)
		if style := b.eval(`getComputedStyle(document.activeElement).outline`); !strings.Contains(style, "solid 2px") {
			t.Errorf("%s has the focus, with the outline %q", b.focused(), style)
		}
	}
	if got := b.eval(fmt.Sprintf(`stops.length + " " + stops.every((e, i) => e === %s[i])`, tabbable)); got != stops+" true" {
		t.Errorf("of %s controls Tab reaches %s of them in their order", stops, got)
	}

	// A message opens, its tokens are gone through, and Escape leads back to the row.
	b.eval(`document.querySelector("main summary").focus()`)
	b.press("Enter")
	b.await(`document.querySelector("main details").open`)
	b.press("Enter")
	b.await(`!document.querySelector("main details").open`)
	b.eval(`document.querySelector("main pre.analysis").focus()`)
	b.press("ArrowRight")
	b.await(`!document.getElementById("token").hidden`)
	if about := b.eval(`document.getElementById("token").textContent`); !strings.Contains(about, "id 200005") || !strings.Contains(about, "ms") {
		t.Errorf("of the first token: %q", about)
	}
	b.press("Escape")
	expect("Escape in a message", "a How is the weather")
	if b.eval(`document.getElementById("token").hidden`) != "true" {
		t.Error("what is known of a token stays")
	}

	// The exchange is shown already: its row leads there again. From the head, Tab leads to the list and past it.
	b.press("Enter")
	b.await(`document.activeElement.id === "main"`)
	b.eval(`document.querySelector("[name=follow]").focus()`)
	b.press("Tab")
	expect("Tab to the list", "a How is the weather")
	b.press("Tab")
	if b.eval(`document.querySelector("main").contains(document.activeElement)`) != "true" {
		t.Errorf("Tab after the list: %s", b.focused())
	}

	// Enter in the search opens the first one that is found.
	b.press("/")
	b.write("greet")
	b.press("Enter")
	b.await(`document.querySelector("main dd").textContent.startsWith("Greet")`)
}

// overflows names the elements that are wider than the window, than what they are in, or than their own box.
const overflows = `(() => {
	const faults = [];
	const add = (e, why) => faults.push(why + ": " + e.localName + "." + e.className + " " + e.textContent.slice(0, 30));
	if (document.documentElement.scrollWidth > innerWidth) add(document.documentElement, "the page");
	for (const e of document.body.querySelectorAll("*")) {
		const box = e.getBoundingClientRect();
		if (!box.width) continue;
		if (box.left < -1 || box.right > innerWidth + 1) add(e, "beyond the window");
		const around = e.parentElement.closest("section, nav, header, main, body").getBoundingClientRect();
		if (box.left < around.left - 1 || box.right > around.right + 1) add(e, "beyond its part");
		if (e.clientWidth && getComputedStyle(e).textOverflow !== "ellipsis" && e.scrollWidth > e.clientWidth + 1) add(e, "beyond its box");
	}
	return faults.slice(0, 10).join("\n");
})()`

// contrasts names the texts whose contrast with what is behind them is below 4.5, which WCAG 2.2 AA demands, and marks
// without text that have less than 3.
const contrasts = `(() => {
	const rgb = (c) => { const p = c.match(/[\d.]+/g).map(Number); return p.length < 4 ? [...p, 1] : p; };
	const light = (c) => c.slice(0, 3).map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
		.reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
	const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
	const behind = (e) => {
		for (; e; e = e.parentElement) {
			const c = rgb(getComputedStyle(e).backgroundColor);
			if (c[3] === 1) return c;
			if (c[3] !== 0) throw new Error("a background that can be seen through");
		}
		throw new Error("no background");
	};
	const faults = new Set();
	const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	let n = 0;
	while (texts.nextNode()) {
		const e = texts.currentNode.parentElement;
		if (!texts.currentNode.data.trim() || !e.checkVisibility() || e.closest("select")) continue;
		n++;
		for (let p = e; p; p = p.parentElement) if (getComputedStyle(p).opacity !== "1") faults.add("opacity: " + p.className);
		const r = ratio(rgb(getComputedStyle(e).color), behind(e));
		if (r < 4.5) faults.add(r.toFixed(2) + ": " + e.localName + "." + e.className + " in " + e.parentElement.className);
	}
	for (const e of document.querySelectorAll("input, select, button")) {
		if (e.checkVisibility() && ratio(rgb(getComputedStyle(e).color), behind(e)) < 4.5) faults.add(e.localName);
	}
	for (const bar of document.querySelectorAll(".bar i")) if (ratio(behind(bar), behind(bar.parentElement)) < 3) faults.add("bar");
	if (n < 50) faults.add("only " + n + " texts");
	return [...faults].join("\n");
})()`

// In all sizes and both schemes nothing overflows, every text can be read, and the page does only what its policy
// allows.
func TestInspectorFits(t *testing.T) {
	page := inspected(t, "", longNames())
	b := openBrowser(t)
	for _, size := range []struct{ width, height int }{{400, 850}, {500, 850}, {760, 900}, {800, 1000}, {960, 900}, {1280, 900}} {
		for _, scheme := range []string{"light", "dark"} {
			name := fmt.Sprintf("%d-%s", size.width, scheme)
			check := func(what string) {
				t.Helper()
				b.screenshot(name + "-" + what)
				for _, expression := range []string{overflows, contrasts} {
					if faults := b.eval(expression); faults != "" {
						t.Errorf("%s, %s:\n%s", name, what, faults)
					}
				}
			}

			b.show(page, size.width, size.height, scheme)
			b.awaitRows(inspectedExchanges + 1)
			check("list")
			for _, question := range []string{"How is the weather in Bern?", "Greet me.", "Which stream breaks?", "WideWide", "Long names"} {
				b.open(question)
				check(strings.ToLower(strings.Trim(strings.Fields(question)[0], "?.")))
				b.eval(`document.querySelectorAll("main details").forEach((d) => { d.open = true; })`)
				b.await(`[...document.querySelectorAll("main details")].every((d) => d.children.length > 1)`)
				b.eval(`document.querySelector("main pre.final")?.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" }))`)
				check(strings.ToLower(strings.Trim(strings.Fields(question)[0], "?.")) + "-open")
			}

			b.open("How is the weather in Bern?")
			b.eval(`[...document.querySelectorAll("main a")].find((a) => a.textContent.startsWith("compare")).click()`)
			b.await(`document.querySelectorAll(".differs").length === 2`)
			check("compare")
		}
	}
}

// screenshot writes a picture of the page, where a folder is named for them.
func (b *browser) screenshot(name string) {
	b.t.Helper()
	if *screenshots == "" {
		return
	}
	if err := os.MkdirAll(*screenshots, 0o755); err != nil { //nolint:gosec // of pictures
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*screenshots, name+".png"), b.picture(), 0o644); err != nil { //nolint:gosec // a picture
		b.t.Fatal(err)
	}
}

// maxPicture is how many bytes a picture of the docs has at most.
const maxPicture = 150_000

// docPicture renews a picture of the docs, where that is asked for.
func (b *browser) docPicture(name string) {
	b.t.Helper()
	if *pictures == "" {
		return
	}
	picture, err := png.Decode(bytes.NewReader(b.picture()))
	if err != nil {
		b.t.Fatal(err)
	}

	var file bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	if err := encoder.Encode(&file, fewColors(picture)); err != nil {
		b.t.Fatal(err)
	}
	if file.Len() > maxPicture {
		b.t.Errorf("%s.png has %d bytes, more than %d", name, file.Len(), maxPicture)
	}
	if err := os.WriteFile(filepath.Join(*pictures, name+".png"), file.Bytes(), 0o644); err != nil { //nolint:gosec // a picture
		b.t.Fatal(err)
	}
}

// fewColors is a picture whose colors have five bits a channel, the 256 that it has most of. It has a third of the bytes:
// the edges of letters have many colors that nobody can tell apart.
func fewColors(picture image.Image) image.Image {
	box := picture.Bounds()
	coarse := func(x, y int) color.RGBA {
		c := color.RGBAModel.Convert(picture.At(x, y)).(color.RGBA)
		c.R, c.G, c.B = c.R&^7|c.R>>5, c.G&^7|c.G>>5, c.B&^7|c.B>>5
		return c
	}
	counts := map[color.RGBA]int{}
	for y := box.Min.Y; y < box.Max.Y; y++ {
		for x := box.Min.X; x < box.Max.X; x++ {
			counts[coarse(x, y)]++
		}
	}

	few := image.NewPaletted(box, nil)
	nearest := map[color.RGBA]uint8{}
	for _, c := range slices.SortedFunc(maps.Keys(counts), func(a, b color.RGBA) int { return counts[b] - counts[a] }) {
		if len(few.Palette) < 256 {
			few.Palette = append(few.Palette, c)
		}
		nearest[c] = uint8(few.Palette.Index(c)) //nolint:gosec // below 256
	}
	for y := box.Min.Y; y < box.Max.Y; y++ {
		for x := box.Min.X; x < box.Max.X; x++ {
			few.SetColorIndex(x, y, nearest[coarse(x, y)])
		}
	}
	return few
}
