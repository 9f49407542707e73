//go:build attack

package attack

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/tidwall/gjson"
)

// secretOfVictim is what another tenant must not read.
const secretOfVictim = "victims-secret-4711"

// as sends a request of a tenant.
func (a *attempt) as(tenant, method, path, body string) answerOf {
	a.Helper()
	return a.send(method, path, strings.NewReader(body), "X-Tenant", tenant)
}

// victim stores a response with the secret and returns it.
func (a *attempt) victim(more string) gjson.Result {
	a.Helper()
	r := a.as("victim", http.MethodPost, responsesPath, responsesBody(jsonText("THINK "+secretOfVictim+"\nSAY "+secretOfVictim), more))
	if r.status != http.StatusOK {
		a.Fatalf("the victim's request: %s", r.brief())
	}
	return gjson.Parse(r.text)
}

// crossed checks a reply, and that neither it nor the engine's prompt has the secret.
func (a *attempt) crossed(r answerOf) {
	a.Helper()
	a.check(r)
	if strings.Contains(r.text, secretOfVictim) {
		a.Errorf("the reply has the victim's secret: %.300s", r.text)
	}
	if r.id() == "" {
		return
	}
	for _, record := range a.EngineRequests(a.T, r.id()) {
		if strings.Contains(record.Prompt, secretOfVictim) {
			a.Errorf("the prompt has the victim's secret: %s", record.Prompt)
		}
	}
}

// isolationArea has a tenant that reads and changes what belongs to another.
func isolationArea() area {
	var all []attack
	add := func(name, want string, run func(a *attempt) answerOf) {
		all = append(all, attack{name: name, want: want, run: func(a *attempt) { a.crossed(run(a)) }})
	}
	for _, q := range []struct{ name, method, path, body string }{
		{"GET of a response", http.MethodGet, "/v1/responses/ID", ""},
		{"stream of a response", http.MethodGet, "/v1/responses/ID?stream=true", ""},
		{"DELETE of a response", http.MethodDelete, "/v1/responses/ID", ""},
		{"cancel of a response", http.MethodPost, "/v1/responses/ID/cancel", "{}"},
		{"input items of a response", http.MethodGet, "/v1/responses/ID/input_items", ""},
		{"continuation of a response", http.MethodPost, responsesPath, responsesBody(simple, `,"previous_response_id":"ID"`)},
		{"input_tokens of a response", http.MethodPost, responsesPath + "/input_tokens", responsesBody(simple, `,"previous_response_id":"ID"`)},
		{"compaction of a response", http.MethodPost, responsesPath + "/compact", responsesBody(simple, `,"previous_response_id":"ID"`)},
	} {
		for _, background := range []string{"", `,"background":true`} {
			name := q.name
			if background != "" {
				name += ", background"
			}
			add(name, "4xx", func(a *attempt) answerOf {
				id := a.victim(background).Get("id").Str
				return a.as("attacker", q.method, strings.ReplaceAll(q.path, "ID", id), strings.ReplaceAll(q.body, "ID", id))
			})
		}
	}
	add("reference to an item", "4xx", func(a *attempt) answerOf {
		return a.as("attacker", http.MethodPost, responsesPath, responsesBody(fmt.Sprintf(`[{"type":"item_reference","id":%s},{"role":"user","content":%s}]`, a.victim("").Get("output.#(type==message).id").Raw, simple), ""))
	})
	for _, q := range []struct{ name, method, path, body string }{
		{"GET of a conversation", http.MethodGet, "/v1/conversations/ID", ""},
		{"change of a conversation", http.MethodPost, "/v1/conversations/ID", `{"metadata":{"a":"b"}}`},
		{"DELETE of a conversation", http.MethodDelete, "/v1/conversations/ID", ""},
		{"items of a conversation", http.MethodGet, "/v1/conversations/ID/items", ""},
		{"new items of a conversation", http.MethodPost, "/v1/conversations/ID/items", `{"items":[{"role":"user","content":"x"}]}`},
		{"an item of a conversation", http.MethodGet, "/v1/conversations/ID/items/ITEM", ""},
		{"DELETE of an item", http.MethodDelete, "/v1/conversations/ID/items/ITEM", ""},
		{"continuation of a conversation", http.MethodPost, responsesPath, responsesBody(simple, `,"conversation":"ID"`)},
	} {
		add(q.name, "4xx", func(a *attempt) answerOf {
			r := a.as("victim", http.MethodPost, "/v1/conversations", `{"items":[{"type":"message","role":"user","content":`+jsonText(secretOfVictim)+`}]}`)
			id := gjson.Get(r.text, "id").Str
			item := gjson.Get(a.as("victim", http.MethodGet, "/v1/conversations/"+id+"/items", "").text, "data.0.id").Str
			if id == "" || item == "" {
				a.Fatalf("the victim's conversation: %s", r.brief())
			}
			swap := strings.NewReplacer("ITEM", item, "ID", id)
			return a.as("attacker", q.method, swap.Replace(q.path), swap.Replace(q.body))
		})
	}
	sealed := func(a *attempt) string {
		a.Helper()
		text := a.victim(`,"store":false,"include":["reasoning.encrypted_content"]`).Get("output.#(type==reasoning).encrypted_content").Str
		if text == "" {
			a.Fatal("the victim has no sealed reasoning")
		}
		return text
	}
	reasoning := func(text string) string {
		return responsesBody(`[{"role":"user","content":"x"},{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":`+jsonText(text)+`},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"o"}]`, `,"store":false`)
	}
	for name, change := range map[string]func(string) string{
		"of another tenant": func(s string) string { return s },
		"flipped": func(s string) string {
			b := []byte(s)
			b[len(b)/2] ^= 1
			return string(b)
		},
		"cut":       func(s string) string { return s[:len(s)/2] },
		"of 5 MB":   func(string) string { return strings.Repeat("QUJD", 5*million/4) },
		"not known": func(string) string { return "secret" },
	} {
		add("sealed reasoning "+name, "200 4xx", func(a *attempt) answerOf {
			return a.as("attacker", http.MethodPost, responsesPath, reasoning(change(sealed(a))))
		})
	}
	add("kept reasoning by the id of a call", "200", func(a *attempt) answerOf {
		const tools = `"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{}}}}]`
		first := a.as("victim", http.MethodPost, chatPath, chatBody(jsonText("THINK "+secretOfVictim+"\nCALL f {}"), ","+tools))
		call := gjson.Get(first.text, "choices.0.message.tool_calls.0")
		if call.Get("id").Str == "" {
			a.Fatalf("the victim has no call: %s", first.text)
		}
		return a.as("attacker", http.MethodPost, chatPath, `{"model":"gpt-oss-20b","messages":[{"role":"user","content":"x"},{"role":"assistant","tool_calls":[`+call.Raw+`]},{"role":"tool","tool_call_id":`+call.Get("id").Raw+`,"content":"r"}],`+tools+`}`)
	})
	for _, tenant := range []string{"Victim", "VICTIM", "victim,", "victim,attacker", "attacker,victim", "victim/", "./victim", "vic\u200btim", "vіctim", "victim\u00a0", "victim%00", strings.Repeat("victim", 2000), "*", "victim:"} {
		add(fmt.Sprintf("tenant %.30q", tenant), "4xx", func(a *attempt) answerOf {
			id := a.victim("").Get("id").Str
			return a.as(tenant, http.MethodGet, "/v1/responses/"+id, "")
		})
	}
	for _, lines := range []string{"x-tenant: attacker\r\nx-tenant: victim", "x-tenant: victim\r\nx-tenant: attacker", "x-tenant: \r\nx-tenant: victim", "X_Tenant: victim"} {
		all = append(all, attack{name: fmt.Sprintf("headers %.50q", lines), want: "4xx", run: func(a *attempt) {
			id := a.victim("").Get("id").Str
			text := a.raw("GET /v1/responses/" + id + " HTTP/1.1\r\nhost: x\r\n" + lines + "\r\n\r\n")
			a.checkRaw(text)
			if strings.Contains(text, secretOfVictim) {
				a.Errorf("the reply has the victim's secret")
			}
		}})
	}
	return area{name: "isolation", attacks: all}
}
