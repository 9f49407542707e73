package operations

import (
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// planted are words that records are searched for: credentials and names of users, which no record
// may have, and what clients, models and tools have written, which a redacted one may not.
type planted struct{ secrets, contents []string }

func (p *planted) secret(what string) string {
	p.secrets = append(p.secrets, what+"-zq7secret")
	return what + "-zq7secret"
}

func (p *planted) content(what string) string {
	p.contents = append(p.contents, what+"Xylophon")
	return what + "Xylophon"
}

// recordsOf starts a data plane that records everything, with a tool server, and returns
// a function that ends the filter and returns the records' files, as they are on the disk
// and as JSON.
func recordsOf(t *testing.T, p *planted, content bool) (d *stack.Dataplane, mcp string, read func() string) {
	t.Helper()
	result := p.content("result")
	server := stack.NewFixedServer(t, fmt.Sprintf(`[{"name":"whoami","description":%q,"inputSchema":{"type":"object","description":%q}}]`, p.content("listed"), p.content("listedSchema")),
		func(_ string, r *http.Request) string {
			return stack.ToolResult(result+" "+r.Header.Get("Authorization")+r.Header.Get("X-Operator")+r.Header.Get("X-Own"), false)
		})

	own := strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
	folder := t.TempDir()

	d = stack.Start(t, stack.Options{Config: func(c *config.Config) {
		c.Tools.Servers = []config.ToolServer{{Label: "docs", URL: server.URL + "/?key=" + p.secret("operatorURL"), Headers: map[string]string{"X-Operator": p.secret("operatorHeader")}}}
		c.Tools.AllowedHosts = []string{own}
		c.Tools.AllowedNetworks = []string{"127.0.0.0/8", "::1/128"}
		c.Inspector.Enabled, c.Inspector.Token = true, p.secret("inspector")
		c.Record.Percent, c.Record.Content, c.Record.Folder = 100, content, folder
	}})

	return d, own, func() string {
		d.Filter.Stop()
		var all strings.Builder

		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) { // the last ones are written at the end
			all.Reset()
			files, err := record.Files([]string{folder})
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range files {
				all.WriteString(inflated(t, name))
			}
			if strings.Count(all.String(), `"format":`) >= len(d.Service.Records()) && len(d.Service.Live(0)) == 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("the records are not written")
			}
		}

		for _, r := range d.Service.Records() {
			text, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(text)
		}

		return all.String()
	}
}

func inflated(t *testing.T, name string) string {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Records are searched for planted words. A redacted one has nothing of what clients,
// models and tools have written, and no record has credentials.
func TestRecordsHaveNoSecrets(t *testing.T) {
	for _, content := range []bool{false, true} {
		t.Run(fmt.Sprintf("content=%t", content), func(t *testing.T) {
			var p planted
			d, own, read := recordsOf(t, &p, content)

			ask := func(path, body string) string {
				return d.Answer(t, path, body,
					"authorization", "Bearer "+p.secret("bearer"), "x-api-key", p.secret("apiKey"), "cookie", "id="+p.secret("cookie"), "x-custom-token", p.secret("custom"), "x-plain", p.secret("header"), "x-pin", p.secret("pin"))
			}

			function := fmt.Sprintf(`"name":%q,"description":%q,"parameters":{"type":"object","properties":{%q:{"type":"string","enum":[%q]}}}`,
				p.content("tool"), p.content("toolDescription"), p.content("parameter"), p.content("enum"))
			ask("/v1/chat/completions?trace="+p.secret("trace")+"&sig="+p.secret("query"), fmt.Sprintf(
				`{"model":%q,"messages":[{"role":"system","content":%q},{"role":"user","name":%q,"content":%q}],"tools":[{"type":"function","function":{%s}}],"user":%q,"stop":[%q],"metadata":{%q:%q},"prompt_cache_key":%q}`,
				stack.VLLMModel, p.content("system"), p.content("name"), "SAY "+p.content("said"), function, p.secret("user"), p.content("stop"), p.content("metadataKey"), p.content("metadata"), p.content("cacheKey")))

			for _, stream := range []bool{false, true} {
				ask("/v1/responses", fmt.Sprintf(
					`{"model":%q,"stream":%t,"instructions":%q,"input":[{"role":"user","content":%q}],"api_key":%q,"tools":[{"type":"mcp","server_label":"own","server_url":%q,"require_approval":"never","authorization":%q,"headers":{"X-Own":%q}},%s,{"type":"function",%s}]}`,
					stack.VLLMModel, stream, p.content("instructions"), "NOTHINK\nCALL own.whoami {}\nSAY "+p.content("input"), p.secret("body"), own+"/"+p.secret("ownPath")+"?key="+p.secret("ownQuery"), p.secret("mcpBearer"), p.secret("mcpHeader"), stack.DocsTool, function))
			}

			ask("/v1/responses", fmt.Sprintf(`{"model":%q,"input":%q,"tools":[%s]}`, stack.VLLMModel, "NOTHINK\nCALL docs.whoami {}", stack.DocsTool))
			ask("/v1/messages", fmt.Sprintf(
				`{"model":%q,"max_tokens":1000,"system":%q,"messages":[{"role":"user","content":%q}],"metadata":{"user_id":%q},"mcp_servers":[{"type":"url","name":"docs","url":%q,"authorization_token":%q}]}`,
				stack.VLLMModel, p.content("messagesSystem"), "SAY "+p.content("messages"), p.secret("messagesUser"), own, p.secret("messagesToken")))
			ask("/v1/responses/render", fmt.Sprintf(`{"model":%q,"input":%q}`, stack.VLLMModel, p.content("rendered")))

			records := read()
			if n := strings.Count(records, `"format":`); n < 12 { // 6 on the disk, 6 in memory
				t.Fatalf("%d records", n)
			}

			absent := p.secrets
			if !content {
				absent = append(absent, p.contents...)
			}

			for _, word := range absent {
				wantAbsent(t, records, word)
			}
			for _, word := range p.contents {
				if content && !strings.Contains(records, word) {
					t.Errorf("%s is not in the records with contents: its absence from redacted ones says nothing", word)
				}
			}
		})
	}
}

// wantAbsent looks for a word as text, in base64 and as tokens.
func wantAbsent(t *testing.T, records, word string) {
	t.Helper()
	tokens := harmony.AppendEncode(nil, word)
	ids := make([]string, len(tokens))
	for i, id := range tokens {
		ids[i] = strconv.FormatUint(uint64(id), 10)
	}
	forms := map[string]string{"text": word, "tokens": strings.Join(ids, ",")}
	for shift := range 3 { // of the groups of three bytes
		form := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", shift) + word))
		forms[fmt.Sprint("base64 ", shift)] = form[4 : len(form)-4]
	}
	for form, text := range forms {
		if i := strings.Index(records, text); i >= 0 {
			t.Errorf("%s is in a record as %s: …%s…", word, form, records[max(0, i-200):min(len(records), i+80)])
		}
	}
}
