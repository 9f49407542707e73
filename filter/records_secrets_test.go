package filter

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
)

// credentials makes requests that have secrets wherever an API, or the software around it,
// takes some. Each secret has the same word in it.
type credentials struct {
	*rand.Rand

	n int
}

// secretWord is in every secret. Base64 of it, at any offset, is searched for too.
const secretWord = "zq7xkv0wj4y8"

func (g *credentials) secret() string {
	g.n++
	return fmt.Sprintf("%s%d", secretWord, g.n)
}

func pick[T any](g *credentials, list ...T) T { return list[g.IntN(len(list))] }

// name is a member's name in one of its spellings.
func (g *credentials) name(name string) string {
	if g.IntN(4) > 0 {
		return fmt.Sprintf("%q", name)
	}
	i := g.IntN(len(name))
	return fmt.Sprintf(`"%s\u%04x%s"`, name[:i], name[i], name[i+1:])
}

// credentialNames are members that somebody has given credentials.
var credentialNames = []string{
	"authorization", "Authorization", "AUTHORIZATION", "authorization_token", "api_key", "apiKey", "x-api-key", "token", "access_token",
	"bearer", "password", "secret", "client_secret", "credentials", "auth", "oauth", "cookie", "session_token", "pin", "otp", "dpop",
	"sig", "grant", "key", "private_key", "extra_headers", "default_headers", "extra_body", "extra_query", "api_base", "base_url",
	"domain_secrets", "proxy", "env", "aws_secret_access_key", "user_api_key", "litellm_params", "vertex_credentials", "HEADERS", "Server_URL",
}

// value is a secret in one of its forms.
func (g *credentials) value(depth int) string {
	s := g.secret()
	if depth > 2 {
		return fmt.Sprintf("%q", s)
	}
	switch g.IntN(7) {
	case 0:
		return fmt.Sprintf("%q", "Bearer "+s)
	case 1:
		return fmt.Sprintf(`"\u%04x%s"`, s[0], s[1:])
	case 2:
		return "[" + g.value(depth+1) + "," + g.value(depth+1) + "]"
	case 3:
		return "{" + g.name("type") + `:"bearer",` + g.name("value") + ":" + g.value(depth+1) + "}"
	case 4:
		return fmt.Sprintf("%q", "https://u:"+s+"@h.test/"+s+"?k="+s)
	case 5:
		return fmt.Sprintf(`{%q:%q}`, s, s)
	}
	return fmt.Sprintf("%q", s)
}

// extra are members with credentials, each followed by a comma.
func (g *credentials) extra() string {
	var b strings.Builder
	for range g.IntN(3) {
		name := pick(g, credentialNames...)
		value := g.value(0)
		if strings.HasPrefix(name, "authorization") {
			// Another type is refused before a member that is there twice is, and a replay has a
			// text in its place.
			value = fmt.Sprintf("%q", g.secret())
		}
		fmt.Fprintf(&b, "%s:%s,", g.name(name), value)
	}

	// Members of the APIs, with a URL or an object in which nobody expects it.
	if g.IntN(6) == 0 {
		name := pick(g, "url", "image", "document", "file", "input_audio", "configs", "filters", "skills", "user_location")
		address := fmt.Sprintf("%q", g.fileURL())
		value := pick(g, address, "["+address+"]", `{"url":`+address+"}", `[{"url":[`+address+"]}]",
			fmt.Sprintf(`{%s:%q,"headers":%s}`, g.name("authorization"), g.secret(), g.headers()))
		fmt.Fprintf(&b, "%s:%s,", g.name(name), value)
	}
	return b.String()
}

// serverURL is the URL of an MCP server with secrets in some of its parts.
func (g *credentials) serverURL() string {
	s := g.secret()
	if g.IntN(3) > 0 { // one that is accepted
		return pick(g, "https://127.0.0.1:1/"+s, "https://127.0.0.1:1/mcp?key="+s, "https://127.0.0.1:1/mcp/"+s+"/x?"+s)
	}
	return pick(g, "https://u:"+s+"@127.0.0.1:1/mcp",
		"https://127.0.0.1:1/#"+s, s+"://x", "https://127.0.0.1:1//"+s+"/%2F"+s, "mailto:"+s)
}

// fileURL is a signed URL.
func (g *credentials) fileURL() string {
	s := g.secret()
	return pick(g, "https://h.test/a.png?X-Amz-Signature="+s, "https://u:"+s+"@h.test/a.png", "https://h.test/a.png#"+s, "https://h.test/a?sig="+s+"&b=c")
}

// headers is an object with headers.
func (g *credentials) headers() string {
	return fmt.Sprintf(`{"X-Pass":%q,"Authorization":%q,"authorization":%q}`, g.secret(), g.secret(), g.secret())
}

// tool is a tool of Responses.
func (g *credentials) tool(depth int) string {
	label := fmt.Sprintf("s%d", g.IntN(1000))
	switch g.IntN(7) {
	case 0, 1:
		return fmt.Sprintf(`{%s%s:"mcp",%s:%q,%s:%q,%s:%q,%s:%s,"require_approval":"never"}`, g.extra(), g.name("type"), g.name("server_label"), label,
			g.name("server_url"), g.serverURL(), g.name("authorization"), g.secret(), g.name("headers"), g.headers())
	case 2:
		if depth < 3 {
			return fmt.Sprintf(`{%s"type":"namespace","name":%q,"description":"d",%s:[%s,%s]}`, g.extra(), label, g.name("tools"), g.tool(depth+1), g.tool(depth+1))
		}
		fallthrough
	case 3:
		return fmt.Sprintf(`{%s"type":"function","name":%q,"parameters":{"type":"object","properties":{"authorization":{"type":"string"},"headers":{"type":"object"}}}}`, g.extra(), label)
	case 4:
		return fmt.Sprintf(`{%s"type":"custom","name":%q,"description":"d"}`, g.extra(), label)
	case 5:
		return fmt.Sprintf(`{%s"type":"shell","environment":{"type":"container_auto","network_policy":{"type":"allowlist","allowed_domains":["a.test"],%s:[{"domain":"a.test","name":"K","value":%q}]}}}`,
			g.extra(), g.name("domain_secrets"), g.secret())
	}
	return fmt.Sprintf(`{%s"type":%q,"authorization":%q}`, g.extra(), pick(g, "web_search", "code_interpreter", "image_generation", "odd_tool"), g.secret())
}

// choice is a tool_choice with a credential.
func (g *credentials) choice() string {
	return pick(g, fmt.Sprintf(`{%s"type":"mcp","server_label":"s","headers":%s}`, g.extra(), g.headers()),
		fmt.Sprintf(`{"type":"allowed_tools","mode":"auto",%s"tools":[%s]}`, g.extra(), g.tool(1)), `"auto"`)
}

// item is an item of a conversation.
func (g *credentials) item() string {
	switch g.IntN(8) {
	case 0:
		return fmt.Sprintf(`{%s"type":"additional_tools","tools":[%s]}`, g.extra(), g.tool(0))
	case 1:
		return fmt.Sprintf(`{"type":"tool_search_call","call_id":"c","arguments":{}},{%s"type":"tool_search_output","call_id":"c","tools":[%s,%s]}`, g.extra(), g.tool(0), g.tool(0))
	case 2:
		return fmt.Sprintf(`{%s"role":"user","content":[{%s"type":"input_image","image_url":%q},{"type":"input_text","text":"see"}]}`, g.extra(), g.extra(), g.fileURL())
	case 3:
		return fmt.Sprintf(`{%s"role":"user","content":[{"type":"input_file","filename":"f",%s:%q}]}`, g.extra(), g.name("file_url"), g.fileURL())
	case 4:
		return fmt.Sprintf(`{%s"type":%q,"authorization":%q,"headers":%s,"text":"odd"}`, g.extra(), pick(g, "odd_item", "program"), g.secret(), g.headers())
	case 5:
		return fmt.Sprintf(`{"type":"function_call","call_id":"f","name":"f","arguments":"{}"},{%s"type":"function_call_output","call_id":"f","output":[{%s"type":"input_image","image_url":%q}]}`, g.extra(), g.extra(), g.fileURL())
	case 6:
		return fmt.Sprintf(`{%s"type":"mcp_list_tools","id":"mcpl_1","server_label":"s","server_url":%q,"tools":[{%s"name":"n","input_schema":{"type":"object"}}]}`, g.extra(), g.serverURL(), g.extra())
	}
	return fmt.Sprintf(`{%s"type":"message","role":"user","content":"Hi"}`, g.extra())
}

func (g *credentials) items() string {
	list := make([]string, 1+g.IntN(3))
	for i := range list {
		list[i] = g.item()
	}
	return "[" + strings.Join(list, ",") + "]"
}

// request is a request of an API, with its path.
func (g *credentials) request() (path, body string) {
	const model = `"model":"gpt-oss-20b"`
	switch g.IntN(7) {
	case 0, 1:
		return "/v1/responses" + pick(g, "", "", "/input_tokens", "/render", "/compact"), fmt.Sprintf(`{%s%s,"input":%s,"tools":[%s],"tool_choice":%s,"stream":%t}`,
			g.extra(), model, g.items(), g.tool(0), g.choice(), g.IntN(2) == 0)
	case 2:
		return "/v1/responses", fmt.Sprintf(`{%s%s,"input":"Hi","tools":[%s,%s]}`, g.extra(), model, g.tool(0), g.tool(0))
	case 3:
		return "/v1/conversations", fmt.Sprintf(`{%s%s:%s,"metadata":{"a":"b"}}`, g.extra(), g.name("items"), g.items())
	case 4:
		return "/v1/chat/completions" + pick(g, "", "", "/render"), fmt.Sprintf(
			`{%s%s,"messages":[{%s"role":"user","content":[{%s"type":"image_url","image_url":{%s"url":%q}},{"type":"text","text":"x"}]}],"tools":[{%s"type":"function","function":{%s"name":"f","parameters":{"type":"object"}}}],"tool_choice":%s}`,
			g.extra(), model, g.extra(), g.extra(), g.extra(), g.fileURL(), g.extra(), g.extra(), pick(g, `"auto"`, g.choice()))
	case 5:
		return "/v1/messages" + pick(g, "", "", "/count_tokens"), fmt.Sprintf(
			`{%s%s,"max_tokens":50,"messages":[{%s"role":"user","content":[{%s"type":"image","source":{%s"type":"url","url":%q}},{"type":"text","text":"x"}]}],"mcp_servers":[{%s"type":"url","name":"n","url":%q,%s:%q}],"tools":[{%s"name":"f","input_schema":{"type":"object"}}]}`,
			g.extra(), model, g.extra(), g.extra(), g.extra(), g.fileURL(), g.extra(), g.serverURL(), g.name("authorization_token"), g.secret(), g.extra())
	}
	return "/v1/chat/completions", fmt.Sprintf(`{%s%s,"messages":[{"role":"user","content":"Hi"}],%s:{"a":%q}}`, g.extra(), model, pick(g, `"client_metadata"`, `"chat_template_kwargs"`, `"kv_transfer_params"`), g.secret())
}

// damaged is a body in one of the forms in which it is no JSON any more, as often as not.
func (g *credentials) damaged(body string, headers map[string]string) string {
	switch g.IntN(24) {
	case 0:
		return "\ufeff" + body
	case 1:
		return body[:g.IntN(len(body))]
	case 2:
		return body + body
	case 3:
		return strings.Replace(body, ":", "=", 1)
	case 4:
		return body[:len(body)-1] + ",\xff}"
	case 5:
		headers["content-type"] = pick(g, "text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-16")
	case 6:
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		_, _ = io.WriteString(z, body)
		_ = z.Close()
		headers["content-encoding"] = "gzip"
		return packed.String()
	case 7:
		return strings.Repeat("[", 200) + body
	}
	return body
}

// path has secrets in its query.
func (g *credentials) query() string {
	if g.IntN(2) == 0 {
		return ""
	}
	pairs := make([]string, 1+g.IntN(3))
	for i := range pairs {
		name := pick(g, "sig", "code", "X-Amz-Signature", "key", "access%5Ftoken", "q", "%73ig", "Limit")
		pairs[i] = pick(g, name+"="+g.secret(), g.secret(), name+"=a="+url.QueryEscape(g.secret()), "%zz"+g.secret())
	}
	return "?" + strings.Join(pairs, "&")
}

func (g *credentials) requestHeaders() map[string]string {
	h := map[string]string{}
	for range g.IntN(4) {
		name := pick(g, "authorization", "x-api-key", "x-pass", "x-pin", "x-otp", "dpop", "cookie", "x-odd", "x-forwarded-client-cert", "referer", "forwarded", "x-amz-security-token", "traceparent", fmt.Sprintf("x-%d", g.IntN(99)))
		h[name] = g.secret()
	}
	return h
}

// secretForms are the spellings of secretWord that a record is searched for.
func secretForms() *regexp.Regexp {
	const shifts = 3
	forms := append(make([]string, 0, 1+shifts), secretWord)
	for shift := range shifts {
		form := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", shift) + secretWord))
		forms = append(forms, form[4:len(form)-4])
	}
	return regexp.MustCompile(strings.Join(forms, "|"))
}

// No record has a credential, whatever the request is: its shape, its place, its spelling,
// the form of its body. And a record without them is replayed without a difference.
func TestRecordsHaveNoCredentials(t *testing.T) {
	_, _, configure := newReloading(t)
	cfg := configure(func(c *config.Config) {
		c.Record.Percent, c.Record.Content, c.Record.MemoryBytes = 100, true, 256<<20
		c.Tools.AllowedHosts, c.Tools.AllowedNetworks = []string{"127.0.0.1:1"}, []string{"127.0.0.0/8"}
	})
	log := logrus.New()
	log.SetOutput(io.Discard)
	s, err := New(cfg, Options{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	g := &credentials{Rand: rand.New(rand.NewPCG(1, 2))}
	answered := 0
	for range 600 {
		path, body := g.request()
		headers := g.requestHeaders()
		body = g.damaged(body, headers)
		x := ask(t, s, path+g.query(), body, headers)

		// What was stored comes back in other exchanges.
		var made struct{ ID, Object string }
		if json.Unmarshal(x.body.Bytes(), &made) != nil || made.ID == "" {
			continue
		}
		answered++
		switch made.Object {
		case "response":
			ask(t, s, "/v1/responses/"+made.ID+"/input_items", "", map[string]string{":method": "GET"})
			ask(t, s, "/v1/responses", `{"model":"gpt-oss-20b","input":"more","previous_response_id":"`+made.ID+`"}`, nil)
		case "conversation":
			ask(t, s, "/v1/conversations/"+made.ID+"/items", "", map[string]string{":method": "GET"})
			ask(t, s, "/v1/conversations/"+made.ID+"/items", `{"items":`+g.items()+`}`, nil)
			ask(t, s, "/v1/responses", `{"model":"gpt-oss-20b","input":"more","conversation":"`+made.ID+`"}`, nil)
		}
	}
	if answered < 60 {
		t.Errorf("only %d requests were answered", answered)
	}
	records := s.Records()
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkRecords(t, cfg, records)
}

// checkRecords searches records, as files have them, for secrets, and replays them.
func checkRecords(t *testing.T, cfg *config.Config, records []*record.Record) {
	t.Helper()
	player, err := NewPlayer(cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	forms := secretForms()
	read, replayed, skipped := 0, 0, map[string]int{}
	for _, kept := range records {
		var file bytes.Buffer
		if err := record.Write(&file, kept); err != nil {
			t.Fatal(err)
		}
		err := record.Read(&file, func(r *record.Record) {
			read++
			text, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			if at := forms.FindIndex(text); at != nil {
				t.Errorf("%s %s has a secret: …%s…", r.Request.Method, r.Request.Path, text[max(0, at[0]-300):min(len(text), at[1]+80)])
			}
			played := player.Play(t.Context(), r)
			switch {
			case played.Skipped != "":
				skipped[played.Skipped]++
			default:
				replayed++
			}
			if len(played.Differences) > 0 {
				t.Errorf("%s %s: %v", r.Request.Path, r.Request.Body, played.Differences)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if read < 300 || replayed < 200 {
		t.Errorf("%d records, %d replayed: this shows little", read, replayed)
	}
	t.Logf("%d records, %d replayed, skipped %v", read, replayed, skipped)
}
