package extproc

import (
	"runtime"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

// hostileBodies are requests that repeat one element as often as a body allows, each
// of which could take more than it has bytes: the path, what is before the elements,
// an element, and what follows them. N stands for the element's number.
var hostileBodies = map[string]struct{ path, before, element, after string }{
	"chat: messages":                {"/v1/chat/completions", `"messages":[`, `{"role":"user","content":""}`, `]`},
	"chat: assistant messages":      {"/v1/chat/completions", `"messages":[`, `{"role":"assistant","content":""}`, `]`},
	"chat: system messages":         {"/v1/chat/completions", `"messages":[`, `{"role":"system","content":"a"}`, `]`},
	"chat: parts":                   {"/v1/chat/completions", `"messages":[{"role":"user","content":[`, `{"type":"text","text":""}`, `]}]`},
	"chat: images":                  {"/v1/chat/completions", `"messages":[{"role":"user","content":[`, `{"type":"image"}`, `]}]`},
	"chat: calls":                   {"/v1/chat/completions", `"messages":[{"role":"assistant","tool_calls":[`, `{"id":"N","function":{"name":"f"}}`, `]}]`},
	"chat: tools":                   {"/v1/chat/completions", `"messages":[{"role":"user","content":""}],"tools":[`, `{"type":"function","function":{"name":"N"}}`, `]`},
	"chat: unknown fields":          {"/v1/chat/completions", `"messages":[{"role":"user","content":""}],`, `"N":0`, ``},
	"chat: fields of a message":     {"/v1/chat/completions", `"messages":[{"role":"user","content":"",`, `"N":0`, `}]`},
	"chat: fields of a part":        {"/v1/chat/completions", `"messages":[{"role":"user","content":[{"type":"text","text":"",`, `"N":0`, `}]}]`},
	"chat: stop":                    {"/v1/chat/completions", `"messages":[{"role":"user","content":""}],"stop":[`, `"N"`, `]`},
	"chat: logit_bias":              {"/v1/chat/completions", `"messages":[{"role":"user","content":""}],"logit_bias":{`, `"N":0`, `}`},
	"chat: allowed tools":           {"/v1/chat/completions", `"messages":[{"role":"user","content":""}],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[`, `{"type":"function","function":{"name":"N"}}`, `]}}`},
	"chat: metadata":                {"/v1/chat/completions", `"messages":[{"role":"user","content":""}],"metadata":{`, `"N":""`, `}`},
	"responses: messages":           {"/v1/responses", `"input":[`, `{"role":"user","content":""}`, `]`},
	"responses: assistant messages": {"/v1/responses", `"input":[`, `{"role":"assistant","content":""}`, `]`},
	"responses: parts":              {"/v1/responses", `"input":[{"role":"user","content":[`, `{"type":"input_text","text":""}`, `]}]`},
	"responses: images":             {"/v1/responses", `"input":[{"role":"user","content":[`, `{"type":"input_image"}`, `]}]`},
	"responses: files":              {"/v1/responses", `"input":[{"type":"function_call","call_id":"a","name":"f"},{"type":"function_call_output","call_id":"a","output":[`, `{"type":"input_file"}`, `]}]`},
	"responses: references":         {"/v1/responses", `"input":[`, `{"type":"item_reference","id":"msg_N"}`, `]`},
	"responses: reasoning":          {"/v1/responses", `"input":[`, `{"type":"reasoning","summary":[]}`, `]`},
	"responses: summaries":          {"/v1/responses", `"input":[{"type":"reasoning","summary":[`, `{"type":"summary_text","text":""}`, `]}]`},
	"responses: calls":              {"/v1/responses", `"input":[`, `{"type":"function_call","call_id":"N","name":"f","arguments":""}`, `]`},
	"responses: results":            {"/v1/responses", `"input":[`, `{"type":"function_call_output","call_id":"N","output":""}`, `]`},
	"responses: approvals":          {"/v1/responses", `"input":[`, `{"type":"mcp_approval_response","approval_request_id":"N","approve":true}`, `]`},
	"responses: tool lists":         {"/v1/responses", `"input":[`, `{"type":"mcp_list_tools","server_label":"N","tools":[]}`, `]`},
	"responses: tools of a list":    {"/v1/responses", `"input":[{"type":"mcp_list_tools","server_label":"a","tools":[`, `{"name":"N"}`, `]}]`},
	"responses: searches of tools":  {"/v1/responses", `"input":[`, `{"type":"tool_search_call","call_id":"N","arguments":{}}`, `]`},
	"responses: found tools":        {"/v1/responses", `"input":[{"type":"tool_search_output","call_id":"a","tools":[`, `{"type":"function","name":"N"}`, `]}]`},
	"responses: additional tools":   {"/v1/responses", `"input":[`, `{"type":"additional_tools","tools":[{"type":"function","name":"N"}]}`, `]`},
	"responses: tools of one item":  {"/v1/responses", `"input":[{"type":"additional_tools","tools":[`, `{"type":"function","name":"N"}`, `]}]`},
	"responses: tools":              {"/v1/responses", `"input":"Hi","tools":[`, `{"type":"function","name":"N"}`, `]`},
	"responses: tools of a space":   {"/v1/responses", `"input":"Hi","tools":[{"type":"namespace","name":"a","tools":[`, `{"type":"function","name":"N"}`, `]}]`},
	"responses: unknown items":      {"/v1/responses", `"input":[`, `{"type":"N"}`, `]`},
	"responses: unknown fields":     {"/v1/responses", `"input":"Hi",`, `"N":0`, ``},
	"responses: include":            {"/v1/responses", `"input":"Hi","include":[`, `"N"`, `]`},
	"responses: metadata":           {"/v1/responses", `"input":"Hi","metadata":{`, `"N":""`, `}`},
	"responses: allowed tools":      {"/v1/responses", `"input":"Hi","tool_choice":{"type":"allowed_tools","mode":"auto","tools":[`, `{"type":"function","name":"N"}`, `]}`},
	"conversations: items":          {"/v1/conversations", `"items":[`, `{"role":"user","content":""}`, `]`},
	"conversations: metadata":       {"/v1/conversations", `"metadata":{`, `"N":""`, `}`},
	"messages: messages":            {"/v1/messages", `"max_tokens":9,"messages":[`, `{"role":"user","content":""}`, `]`},
	"messages: blocks":              {"/v1/messages", `"max_tokens":9,"messages":[{"role":"user","content":[`, `{"type":"text","text":""}`, `]}]`},
	"messages: results":             {"/v1/messages", `"max_tokens":9,"messages":[{"role":"user","content":[`, `{"type":"tool_result","tool_use_id":"N"}`, `]}]`},
	"messages: blocks of a result":  {"/v1/messages", `"max_tokens":9,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[`, `{"type":"text","text":""}`, `]}]}]`},
	"messages: calls":               {"/v1/messages", `"max_tokens":9,"messages":[{"role":"assistant","content":[`, `{"type":"tool_use","id":"N","name":"f","input":{}}`, `]}]`},
	"messages: thinking":            {"/v1/messages", `"max_tokens":9,"messages":[{"role":"assistant","content":[`, `{"type":"thinking","thinking":""}`, `]}]`},
	"messages: found tools":         {"/v1/messages", `"max_tokens":9,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[`, `{"type":"tool_reference","tool_name":"N"}`, `]}]}]`},
	"messages: system":              {"/v1/messages", `"max_tokens":9,"messages":[{"role":"user","content":""}],"system":[`, `{"type":"text","text":""}`, `]`},
	"messages: tools":               {"/v1/messages", `"max_tokens":9,"messages":[{"role":"user","content":""}],"tools":[`, `{"name":"N","input_schema":{}}`, `]`},
	"messages: servers":             {"/v1/messages", `"max_tokens":9,"messages":[{"role":"user","content":""}],"mcp_servers":[`, `{"type":"url","name":"N","url":"https://a"}`, `]`},
	"messages: stop sequences":      {"/v1/messages", `"max_tokens":9,"messages":[{"role":"user","content":""}],"stop_sequences":[`, `"N"`, `]`},
}

// raceDetector reports whether the race detector is on.
var raceDetector bool

// repeatedBody is a body of about size bytes.
func repeatedBody(before, element, after string, size int) []byte {
	var b strings.Builder
	b.WriteString(`{"model":"gpt-oss",` + before)
	number := []byte("aaaaa")
	for n := 0; b.Len() < size; n++ {
		if n > 0 {
			b.WriteByte(',')
		}
		for i := 0; ; i++ {
			if number[i]++; number[i] <= 'z' {
				break
			}
			number[i] = 'a'
		}
		b.WriteString(strings.ReplaceAll(element, "N", string(number)))
	}
	b.WriteString(after + "}")
	return []byte(b.String())
}

// Decoding a request allocates at most a few bytes for each one that is counted for it,
// whatever its elements are. What is allocated bounds what is held at one time.
func TestDecodingIsBounded(t *testing.T) {
	if testing.Short() || raceDetector {
		t.Skip("some 400 MB of bodies; the race detector allocates itself")
	}
	const size = 8 << 20
	s := newServer(t, nil)
	for name, c := range hostileBodies {
		t.Run(name, func(t *testing.T) {
			body := repeatedBody(c.before, c.element, c.after, size)
			e, _ := api.Match(s.o.Endpoints, "POST", c.path)
			if e == nil {
				t.Fatal("no endpoint")
			}
			x := &collector{s: s.Server}
			r := &api.HTTPRequest{Path: c.path, Body: body, Context: x.requestContext()}
			counted := len(body)
			r.Context.Reserve = func(n int) *apierror.Error { counted += n; return nil }
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			o := e.Handle(t.Context(), r)
			runtime.ReadMemStats(&after)
			allocated := int(after.TotalAlloc - before.TotalAlloc)
			text := "accepted"
			if o.Err != nil {
				text = o.Err.Message
			}
			t.Logf("%.1f bytes for each of %d: %.80s", float64(allocated)/float64(counted), counted, text)
			if allocated > 4*counted {
				t.Errorf("%d bytes are allocated for %d", allocated, counted)
			}
		})
	}
}
