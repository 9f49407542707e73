package replies

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// A content part without what its type requires is a 400 that names it, in every place where
// parts of its kind may be. Texts may be empty: clients send such parts.
func TestIncompleteParts(t *testing.T) {
	d := stack.Start(t, stack.Options{})
	const (
		chat, responses, messages = "/v1/chat/completions", "/v1/responses", "/v1/messages"
		chatCall                  = `{"role":"user","content":"Hi"},{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]}`
		inputCall                 = `{"role":"user","content":"Hi"},{"type":"function_call","call_id":"a","name":"f","arguments":"{}"}`
		toolUse                   = `{"role":"user","content":"Hi"},{"role":"assistant","content":[{"type":"tool_use","id":"toolu_a","name":"f","input":{}}]}`
		hi                        = `{"role":"user","content":"Hi"}`
	)

	// Where parts stand: the API, the conversation with a part P in it, and the part's path.
	type place struct{ api, conversation, at string }
	var (
		chatUser     = place{chat, `{"role":"user","content":[P]}`, "messages[0].content[0]"}
		chatAnswer   = place{chat, hi + `,{"role":"assistant","content":[P]},` + hi, "messages[1].content[0]"}
		chatTool     = place{chat, chatCall + `,{"role":"tool","tool_call_id":"a","content":[P]}`, "messages[2].content[0]"}
		inputUser    = place{responses, `{"role":"user","content":[P]}`, "input[0].content[0]"}
		inputAnswer  = place{responses, hi + `,{"role":"assistant","content":[P]},` + hi, "input[1].content[0]"}
		inputOutput  = place{responses, inputCall + `,{"type":"function_call_output","call_id":"a","output":[P]}`, "input[2].output[0]"}
		blocksUser   = place{messages, `{"role":"user","content":[P]}`, "messages[0].content[0]"}
		blocksAnswer = place{messages, hi + `,{"role":"assistant","content":[P]},` + hi, "messages[1].content[0]"}
		blocksResult = place{messages, toolUse + `,{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_a","content":[P]}]}`, "messages[2].content[0].content[0]"}
	)

	for _, tt := range []struct {
		part   string
		param  string // behind the part's path; "": the part is complete
		places []place
	}{
		{`{"type":"text"}`, ".text", []place{chatUser, chatAnswer, chatTool}},
		{`{"type":"text","text":null}`, ".text", []place{chatUser, chatTool}},
		{`{"type":"refusal"}`, ".refusal", []place{chatAnswer}},
		{`{"type":"image_url"}`, ".image_url.url", []place{chatUser, chatTool}},
		{`{"type":"image_url","image_url":{}}`, ".image_url.url", []place{chatUser, chatTool}},
		{`{"type":"image_url","image_url":{"url":""}}`, ".image_url.url", []place{chatUser, chatTool}},
		{`{"type":"image_url","image_url":{"url":7}}`, ".image_url.url", []place{chatUser}},
		{`{"type":"input_image"}`, ".image_url", []place{chatUser, inputUser, inputOutput}},
		{`{"type":"input_image","image_url":"","detail":"low"}`, ".image_url", []place{inputUser, inputOutput}},
		{`{"type":"input_image","image_url":null,"file_id":null}`, ".image_url", []place{inputUser}},
		{`{"type":"image"}`, ".image", []place{chatUser}},
		{`{"type":"input_audio"}`, ".type", []place{chatUser, inputUser}},
		{`{"type":"file","file":{}}`, ".type", []place{chatUser}},
		{`{"text":"a"}`, ".type", []place{chatUser, inputUser, blocksUser}},
		{`{}`, ".type", []place{chatUser, inputUser, blocksUser, blocksResult}},

		{`{"type":"input_text"}`, ".text", []place{inputUser, inputOutput}},
		{`{"type":"output_text","annotations":[]}`, ".text", []place{inputAnswer}},
		{`{"type":"refusal"}`, ".refusal", []place{inputAnswer}},
		{`{"type":"input_file"}`, ".file_data", []place{inputOutput}},
		{`{"type":"input_file","file_data":"","filename":"a"}`, ".file_data", []place{inputOutput}},

		{`{"type":"image"}`, ".source.type", []place{blocksUser, blocksResult}},
		{`{"type":"image","source":{}}`, ".source.type", []place{blocksUser}},
		{`{"type":"image","source":{"type":"base64","media_type":"image/png"}}`, ".source.data", []place{blocksUser, blocksResult}},
		{`{"type":"image","source":{"type":"base64","data":""}}`, ".source.data", []place{blocksUser}},
		{`{"type":"image","source":{"type":"url","url":""}}`, ".source.url", []place{blocksUser, blocksResult}},
		{`{"type":"image","source":{"type":"file"}}`, ".source.file_id", []place{blocksUser}},
		{`{"type":"document"}`, ".source.type", []place{blocksUser, blocksResult}},
		{`{"type":"document","source":{"type":"text"}}`, ".source.data", []place{blocksUser}},
		{`{"type":"document","source":{"type":"base64","data":""}}`, ".source.data", []place{blocksUser}},
		{`{"type":"document","source":{"type":"content"}}`, ".source.content", []place{blocksUser}},
		{`{"type":"document","source":{"type":"content","content":[{"type":"text"}]}}`, ".source.content[0].text", []place{blocksUser}},
		{`{"type":"document","source":{"type":"content","content":[{"type":"image"}]}}`, ".source.content[0].source.type", []place{blocksUser}},
		{`{"type":"search_result","source":"s","title":"t"}`, ".content", []place{blocksUser, blocksResult}},
		{`{"type":"search_result","title":"t","content":[]}`, ".source", []place{blocksUser}},
		{`{"type":"search_result","source":"s","content":[]}`, ".title", []place{blocksUser}},
		{`{"type":"thinking"}`, ".thinking", []place{blocksAnswer}},
		{`{"type":"redacted_thinking"}`, ".data", []place{blocksAnswer}},
		{`{"type":"redacted_thinking","data":""}`, ".data", []place{blocksAnswer}},
		{`{"type":"tool_use","name":"f","input":{}}`, ".id", []place{blocksAnswer}},
		{`{"type":"tool_use","id":"toolu_b","input":{}}`, ".name", []place{blocksAnswer}},
		{`{"type":"tool_result","content":"x"}`, ".tool_use_id", []place{blocksUser}},
		{`{"type":"tool_reference"}`, ".tool_name", []place{blocksResult}},

		// Complete, and sent by clients.
		{`{"type":"text","text":""}`, "", []place{chatUser, chatAnswer, chatTool, blocksUser, blocksAnswer, blocksResult}},
		{`{"type":"input_text","text":""}`, "", []place{inputUser, inputOutput}},
		{`{"type":"output_text","text":""}`, "", []place{inputAnswer}},
		{`{"type":"image_url","image_url":"https://x/a.png"}`, "", []place{chatUser, chatTool}},
		{`{"type":"image","image":"data:image/png;base64,AA"}`, "", []place{chatUser}},
		{`{"type":"image","source":{"type":"base64","data":"AA"}}`, "", []place{chatUser, blocksUser, blocksResult}},
		{`{"type":"input_image","file_id":"file-1"}`, "", []place{inputUser, inputOutput}},
		{`{"type":"input_file","file_id":"file-1"}`, "", []place{inputOutput}},
		{`{"type":"document","source":{"type":"text","data":"","media_type":"text/plain"}}`, "", []place{blocksUser}},
		{`{"type":"search_result","source":"","title":"","content":[]}`, "", []place{blocksUser}},
		{`{"type":"thinking","thinking":"","signature":""}`, "", []place{blocksAnswer}},
		{`{"type":"thinking","thinking":"Hm."}`, "", []place{blocksAnswer}},
		{`{"type":"thinking","signature":"AA"}`, "", []place{blocksAnswer}},
	} {
		for _, p := range tt.places {
			field, more := "messages", `,"max_tokens":50`
			if p.api == responses {
				field, more = "input", ""
			}
			body := `{"model":"` + stack.VLLMModel + `","` + field + `":[` + strings.Replace(p.conversation, "P", tt.part, 1) + `]` + more + `}`
			resp := d.Do(t, http.MethodPost, p.api, "application/json", strings.NewReader(body))
			text := stack.ReadText(t, resp)

			status, param := http.StatusOK, ""
			if tt.param != "" {
				status, param = http.StatusBadRequest, p.at+tt.param
			}
			named := gjson.Get(text, "error.param").Str
			if p.api == messages {
				named = param
				if !strings.Contains(gjson.Get(text, "error.message").Str, tt.param) && tt.param != ".type" && tt.param != ".id" && tt.param != ".name" && tt.param != ".tool_use_id" {
					named = "not named"
				}
			}
			if resp.StatusCode != status || named != param && status == http.StatusBadRequest {
				t.Errorf("%s: %s: %s: %s", p.at, tt.part, resp.Status, text)
			}
		}
	}
}
