package record_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/chat"
	"github.com/envoy-harmony/envoy-harmony/filter/messages"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
	"github.com/envoy-harmony/envoy-harmony/filter/render"
	"github.com/envoy-harmony/envoy-harmony/filter/responses"
)

// keeper is that of the program.
var keeper = record.NewKeeper(chat.Fields(), messages.Fields(), responses.Fields(), render.Fields())

func TestBody(t *testing.T) {
	t.Parallel()
	const function = `{"type":"function","name":"f","parameters":{"headers":{"a":"b"},"authorization":"x"}}`
	for _, c := range []struct{ name, body, want string }{
		{"nothing", `{"input":"authorization", "tools":[` + function + `]}`, `{"input":"authorization", "tools":[` + function + `]}`},
		{
			"Responses", `{"tools": [ {"authorization" : "s1", "type":"mcp","headers":{"A":"s2","B": 3 }}, {"type":"mcp"}],"input":"x"}`,
			`{"tools": [ {"authorization" : "[hidden]", "type":"mcp","headers":{"A":"[hidden]","B": 0 }}, {"type":"mcp"}],"input":"x"}`,
		},
		{"escapes", `{"tools":[{"type":"mcp","\u0061uthorization":"s\"1","temperature":1}]}`, `{"tools":[{"type":"mcp","\u0061uthorization":"[hidden]","temperature":1}]}`},
		{"another case", `{"Authorization":"s1","HEADERS":{"a":"s2"}}`, `{"Authorization":"[hidden]","HEADERS":{"[hidden]":"[hidden]"}}`},
		{"twice", `{"tools":[{"authorization":"s1"}],"tools":[{"authorization":"s2"}]}`, `{"tools":[{"authorization":"[hidden]"}],"tools":[{"authorization":"[hidden]"}]}`},
		{"items", `{"input":["x",{"type":"additional_tools","tools":[{"type":"mcp","authorization":"s1"}]}]}`, `{"input":["x",{"type":"additional_tools","tools":[{"type":"mcp","authorization":"[hidden]"}]}]}`},
		{"a conversation", `{"items":[{"type":"tool_search_output","tools":[{"type":"namespace","tools":[{"authorization":"s1"}]}]}]}`, `{"items":[{"type":"tool_search_output","tools":[{"type":"namespace","tools":[{"authorization":"[hidden]"}]}]}]}`},
		{"a choice", `{"tool_choice":{"type":"mcp","headers":{"a":"s1"},"key":"s2"}}`, `{"tool_choice":{"type":"mcp","headers":{"a":"[hidden]"},"key":"[hidden]"}}`},
		{"Messages", `{"mcp_servers":[{"type":"url","url":"https://u:p@h/s1?k=s2#f","authorization_token":"s1"},7]}`, `{"mcp_servers":[{"type":"url","url":"https://hidden@h/hidden?hidden#hidden","authorization_token":"[hidden]"},7]}`},
		{"a container", `{"tools":[{"type":"shell","environment":{"type":"container_auto","network_policy":{"domain_secrets":[{"value":"s1"}]}}}]}`, `{"tools":[{"type":"shell","environment":{"type":"container_auto","network_policy":{"[hidden]":"[hidden]"}}}]}`},
		{"a request to derender", `{"responses_request":{"tools":[{"type":"mcp","authorization":"s1"}]},"stream":false}`, `{"responses_request":{"tools":[{"type":"mcp","authorization":"[hidden]"}]},"stream":false}`},
		{"unknown members", `{"api_key":"s1","extra_headers":{"a":"s2"},"pin":1234,"odd":[1,"s3",{"a":[]}],"on":true,"none":null}`, `{"api_key":"[hidden]","extra_headers":{"[hidden]":"[hidden]"},"pin":0,"odd":["[hidden]"],"on":true,"none":null}`},
		{"a grant", `{"code":"s1","input":[{"type":"code_interpreter_call","code":"1+1"}],"tools":[{"code":"s2"}]}`, `{"code":"[hidden]","input":[{"type":"code_interpreter_call","code":"1+1"}],"tools":[{"code":"[hidden]"}]}`},
		{
			"servers", `[{"server_url":"https://h:1/mcp/s1"},{"server_url":"https://h:1/"},{"server_url":"https://h"},{"server_url":"s1"},{"server_url":""},{"server_url":"s1://h"},{"server_url":["https://h/s1"]}]`,
			`[{"server_url":"https://h:1/hidden"},{"server_url":"https://h:1/"},{"server_url":"https://h"},{"server_url":"[hidden]"},{"server_url":""},{"server_url":"hidden://h"},{"server_url":["https://h/hidden"]}]`,
		},
		{
			"files", `{"content":[{"type":"image_url","image_url":{"url":"https://h/a%20b?sig=s1"}},{"image_url":"data:image/png;base64,AA"},{"source":{"url":"https://u@h/a"}},{"file_url":"https://h/a%20b"},{"image_url":"data:s?a"}]}`,
			`{"content":[{"type":"image_url","image_url":{"url":"https://h/a%20b?hidden"}},{"image_url":"data:image/png;base64,AA"},{"source":{"url":"https://hidden@h/a"}},{"file_url":"https://h/a%20b"},{"image_url":"data:s?a"}]}`,
		},
		{"pages", `{"input":[{"type":"web_search_call","action":{"type":"open_page","url":"https://h/a?b=c"}}]}`, `{"input":[{"type":"web_search_call","action":{"type":"open_page","url":"https://h/a?b=c"}}]}`},
		{"an object in place of content", `{"input":{"key":"s1"},"text":{"format":{"type":"json_schema","schema":{"key":1}},"key":"s2"}}`, `{"input":{"key":"[hidden]"},"text":{"format":{"type":"json_schema","schema":{"key":1}},"key":"[hidden]"}}`},
		{"a tool's arguments", `{"content":[{"type":"tool_use","input":{"key":"k"}},{"arguments":{"key":"k"}}]}`, `{"content":[{"type":"tool_use","input":{"key":"k"}},{"arguments":{"key":"k"}}]}`},
		{
			"users", `{"user":"s1","safety_identifier":"s2","metadata":{"user_id":"s3","User":"s4","team":"t"},"user_profile_id":"s5","prompt_cache_key":"k","input":[{"role":"user","user":{"name":"s6"}}],"client_metadata":{"user_id":7}}`,
			`{"user":"[hidden]","safety_identifier":"[hidden]","metadata":{"user_id":"[hidden]","User":"[hidden]","team":"t"},"user_profile_id":"[hidden]","prompt_cache_key":"k","input":[{"role":"user","user":{"[hidden]":"[hidden]"}}],"client_metadata":{"user_id":0}}`,
		},
		{"a user's data", `{"tools":[{"type":"file_search","filters":{"user_id":"u"}}],"arguments":{"user":"u"},"safety_identifier":null}`, `{"tools":[{"type":"file_search","filters":{"user_id":"u"}}],"arguments":{"user":"u"},"safety_identifier":null}`},
		{
			"what refused fields accept", `{"n_predict":-1,"options":{},"bad_words":[],"extra_body":{"a":"s1"},"temp":0.5,"negative_prompt":"s2","search_parameters":{"mode":"off"},"do_sample":true}`,
			`{"n_predict":-1,"options":{},"bad_words":[],"extra_body":"[hidden]","temp":0.5,"negative_prompt":"[hidden]","search_parameters":{"mode":"off"},"do_sample":true}`,
		},
		{"what is empty", `{"odd":{},"more":[ ],"authorization":{"a":1},"headers":{}}`, `{"odd":{},"more":[ ],"authorization":{"[hidden]":"[hidden]"},"headers":{}}`},
		{"numbers", ` [-1.5e9,{"a":-1.5e9}, 0 ,{"n":1}]`, ` [-1.5e9,{"a":0}, 0 ,{"n":1}]`},
		{"nothing in it", ` {} `, ` {} `},
	} {
		body := []byte(c.body)
		got := keeper.Body(body)
		if diff := cmp.Diff(c.want, got.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
		clear(body)
		if got.String() != c.want {
			t.Errorf("%s: the record has the request's memory", c.name)
		}
	}
}

// Of a body that is no JSON there is the length.
func TestBodyThatIsNoJSON(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		`{"tools":[`, "\ufeff{}", `{}{}`, "a=b", "\xff", `{"a":"` + "\xff" + `"}`, strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000),
	} {
		got := keeper.Body([]byte(body))
		if got.Bytes() != nil || got.Len() != len(body) {
			t.Errorf("%.20q: %d bytes, of which there are %.20q", body, got.Len(), got.Bytes())
		}
		r := record.Redact(&record.Record{Request: record.Request{Body: got}})
		if r.Request.Body.Len() != len(body) {
			t.Errorf("%.20q: redacted, it has %d bytes", body, r.Request.Body.Len())
		}
	}
	if got := keeper.Body(nil); !got.IsZero() {
		t.Errorf("no body has %d bytes", got.Len())
	}
}

// What the filter writes is kept, except what it repeats of the client's.
func TestReply(t *testing.T) {
	t.Parallel()
	const tool, clean = `{"type":"custom","name":"f","key":"s1"}`, `{"type":"custom","name":"f","key":"[hidden]"}`
	encoded := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	for text, want := range map[string]string{
		`{"id":"r","system_fingerprint":"x","tools":[` + tool + `]}`:                                                                `{"id":"r","system_fingerprint":"x","tools":[` + clean + `]}`,
		"event: a\ndata: {\"response\":{\"own\":1,\"tools\":[" + tool + "]}}\n\n: comment\n\ndata: {\"own\":2}\n\ndata: [DONE]\n\n": "event: a\ndata: {\"response\":{\"own\":1,\"tools\":[" + clean + "]}}\n\n: comment\n\ndata: {\"own\":2}\n\ndata: [DONE]\n\n",
		`{"sampling_params":{"temperature":1,"trace":"x"},"provider":"p"}`:                                                          `{"sampling_params":{"temperature":1,"trace":"x"},"provider":"p"}`,
		`{"id":"r","safety_identifier":"s1","metadata":{"user_id":"s2"},"prompt_cache_key":"k"}`:                                    `{"id":"r","safety_identifier":"[hidden]","metadata":{"user_id":"[hidden]"},"prompt_cache_key":"k"}`,
		`{"ID":"r","Object":"` + encoded(`{"own":1,"tools":[`+tool+`]}`) + `","Input":[{"ID":"i","JSON":"` + encoded(`{"type":"odd","key":"s1","code":"x"}`) + `"}]}`: `{"ID":"r","Object":"` +
			encoded(`{"own":1,"tools":[`+clean+`]}`) + `","Input":[{"ID":"i","JSON":"` + encoded(`{"type":"odd","key":"[hidden]","code":"x"}`) + `"}]}`,
		`{"own":{"authorization":"s1"}}`: `{"own":{"authorization":"[hidden]"}}`,
		`{"Object":"no base64!"}`:        `{"Object":"[hidden]"}`,
		"":                               "", "text": "text",
	} {
		if diff := cmp.Diff(want, string(keeper.Reply([]byte(text)))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

// FuzzBody shows that any valid body stays valid JSON, that what is clean stays as it is, and
// that nothing is left of a member that is not on the list.
func FuzzBody(f *testing.F) {
	f.Add(`{"tools":[{"type":"mcp","authorization":"s","headers":{"a":"b"}}],"input":[{"tools":[]}]}`)
	f.Add(`{"mcp_servers":[{"authorization_token":"s","url":"https://u:p@h/a"}],"x_request":{}}`)
	f.Add(`[[{"a":{"b":[1,-2.5e3,true,null,"\u0061\"\\"]}}], {"headers":[{"a":[]}]} ]`)
	f.Fuzz(func(t *testing.T, body string) {
		got := keeper.Body([]byte(body))
		if got.Bytes() == nil {
			return
		}
		if !gjson.Valid(got.String()) {
			t.Errorf("%s became %s", body, got)
		}
		if again := keeper.Body(got.Bytes()); again.String() != got.String() {
			t.Errorf("%s became %s", got, again)
		}
		const secret = "planted-4711"
		hidden := keeper.Body([]byte(`{"unknown":` + body + `,"authorization":"` + secret + `","input":[{"odd":[` + body + `,"` + secret + `"]}]}`))
		if text := hidden.String(); strings.Contains(text, secret) || strings.Count(text, `"input":[{"odd":["[hidden]"]}]}`) != 1 {
			t.Errorf("%s", text)
		}
	})
}
