package responsestest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// toolStream is a stream with these events between the head's and the last one,
// which has the output. Of an event the type and, without braces, the members
// are given; "added" and "done" are those of an item.
func toolStream(t *testing.T, status, output string, events ...string) string {
	t.Helper()
	good := golden(t, "events.sse")
	blocks := strings.SplitAfter(good, "\n\n")
	head := gjson.Get(strings.SplitN(blocks[0], "data: ", 2)[1], "response").Raw
	var b strings.Builder
	n := 0
	write := func(kind, members string) {
		fmt.Fprintf(&b, "event: %s\ndata: {\"type\":%q,\"sequence_number\":%d,%s}\n\n", kind, kind, n, members)
		n++
	}
	write("response.created", `"response":`+head)
	write("response.in_progress", `"response":`+head)
	for _, e := range events {
		kind, members, _ := strings.Cut(e, " ")
		switch kind {
		case "added", "done":
			kind = "output_item." + kind
		}
		write("response."+kind, members)
	}

	usage := `{"input_tokens":1,"output_tokens":1,"total_tokens":2,"input_tokens_details":{"cached_tokens":0,"cache_write_tokens":0},"output_tokens_details":{"reasoning_tokens":0}}`
	end := strings.NewReplacer(`"status":"in_progress"`, `"status":"`+status+`"`, `"usage":null`, `"usage":`+usage, `"output":[]`, `"output":[`+output+`]`).Replace(head)
	switch status {
	case "completed":
		end = strings.Replace(end, `"completed_at":null`, `"completed_at":1`, 1)
	case "failed":
		end = strings.Replace(end, `"error":null`, `"error":{"code":"server_error","message":"x"}`, 1)
	}

	write("response."+status, `"response":`+end)

	return b.String() + "data: [DONE]\n\n"
}

// at is the beginning of an event's members.
func at(id string, index int) string { return fmt.Sprintf(`"item_id":%q,"output_index":%d`, id, index) }

const (
	listed2   = `{"type":"mcp_list_tools","id":"mcpl_1","server_label":"s","tools":[{"name":"a-b","description":"","input_schema":{},"annotations":{}}]}`
	listBegun = `{"type":"mcp_list_tools","id":"mcpl_1","server_label":"s","tools":[]}`
	called    = `{"type":"mcp_call","id":"mcp_1","status":"completed","server_label":"s","name":"a-b","arguments":"{}","output":"x"}`
	callBegun = `{"type":"mcp_call","id":"mcp_1","status":"in_progress","server_label":"s","name":"a-b","arguments":""}`
	asked     = `{"type":"mcp_approval_request","id":"mcpr_1","server_label":"s","name":"a-b","arguments":"{}"}`
	coded     = `{"type":"code_interpreter_call","id":"ci_1","status":"completed","code":"1","container_id":"c","outputs":[{"type":"logs","logs":"1"}]}`
	codeBegun = `{"type":"code_interpreter_call","id":"ci_1","status":"in_progress","code":"","container_id":"c","outputs":null}`
	searched  = `{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"q"}}`
	cited     = `{"type":"output_text","text":"äbc","annotations":[{"type":"url_citation","url":"u","title":"t","start_index":1,"end_index":3}],"logprobs":[]}`
	citing    = `{"type":"message","id":"msg_1","status":"completed","role":"assistant","phase":"final_answer","content":[` + cited + `]}`
)

var (
	listEvents = []string{`added "output_index":0,"item":` + listBegun, `mcp_list_tools.in_progress ` + at("mcpl_1", 0), `mcp_list_tools.completed ` + at("mcpl_1", 0), `done "output_index":0,"item":` + listed2}
	callEvents = []string{
		`added "output_index":0,"item":` + callBegun, `mcp_call.in_progress ` + at("mcp_1", 0), `mcp_call_arguments.delta "delta":"{}",` + at("mcp_1", 0), `mcp_call_arguments.done "arguments":"{}",` + at("mcp_1", 0),
		`mcp_call.completed ` + at("mcp_1", 0), `done "output_index":0,"item":` + called,
	}
	askEvents  = []string{`added "output_index":0,"item":` + asked, `done "output_index":0,"item":` + asked}
	codeEvents = []string{
		`added "output_index":0,"item":` + codeBegun, `code_interpreter_call.in_progress ` + at("ci_1", 0), `code_interpreter_call_code.delta "delta":"1",` + at("ci_1", 0), `code_interpreter_call_code.done "code":"1",` + at("ci_1", 0),
		`code_interpreter_call.interpreting ` + at("ci_1", 0), `code_interpreter_call.completed ` + at("ci_1", 0), `done "output_index":0,"item":` + coded,
	}
	searchEvents = []string{
		`added "output_index":0,"item":` + strings.Replace(searched, `"completed"`, `"in_progress"`, 1), `web_search_call.in_progress ` + at("ws_1", 0), `web_search_call.searching ` + at("ws_1", 0),
		`web_search_call.completed ` + at("ws_1", 0), `done "output_index":0,"item":` + searched,
	}
	citeEvents = []string{
		`added "output_index":0,"item":` + strings.NewReplacer(`"completed"`, `"in_progress"`, cited, ``).Replace(citing),
		`content_part.added "content_index":0,"part":{"type":"output_text","text":"","annotations":[],"logprobs":[]},` + at("msg_1", 0),
		`output_text.delta "content_index":0,"delta":"äbc","logprobs":[],` + at("msg_1", 0),
		`output_text.annotation.added "content_index":0,"annotation_index":0,"annotation":` + gjson.Get(cited, "annotations.0").Raw + `,` + at("msg_1", 0),
		`output_text.done "content_index":0,"text":"äbc","logprobs":[],` + at("msg_1", 0), `content_part.done "content_index":0,"part":` + cited + `,` + at("msg_1", 0),
		`done "output_index":0,"item":` + citing,
	}
)

// TestToolStream shows that no event of a tool's item can be left out, or come
// twice or out of its order; only deltas of no text can be missing.
func TestToolStream(t *testing.T) {
	t.Parallel()
	for output, events := range map[string][]string{listed2: listEvents, called: callEvents, asked: askEvents, coded: codeEvents, searched: searchEvents, citing: citeEvents} {
		good := func(events ...string) error {
			_, err := Stream([]byte(toolStream(t, "completed", output, events...)))
			return err
		}
		if err := good(events...); err != nil {
			t.Error(err)
			continue
		}

		for i := range events {
			if good(slices.Delete(slices.Clone(events), i, i+1)...) == nil {
				t.Errorf("%s can be left out", events[i])
			}

			if good(slices.Insert(slices.Clone(events), i, events[i])...) == nil {
				t.Errorf("%s can come twice", events[i])
			}

			if i > 0 {
				swapped := slices.Clone(events)
				swapped[i-1], swapped[i] = swapped[i], swapped[i-1]
				// It may come before the text it is about.
				if good(swapped...) == nil && !strings.Contains(events[i], "annotation.added") {
					t.Errorf("%s can come before %s", events[i], events[i-1])
				}
			}
		}
	}
}

// TestSideBySide shows that calls may wait for their tools side by side, and
// text may not.
func TestSideBySide(t *testing.T) {
	t.Parallel()
	second := func(list []string) []string {
		moved := make([]string, len(list))
		for i, e := range list {
			moved[i] = strings.NewReplacer("mcp_1", "mcp_2", `"output_index":0`, `"output_index":1`).Replace(e)
		}
		return moved
	}
	called2 := strings.Replace(called, "mcp_1", "mcp_2", 1)
	other := second(callEvents)
	both := slices.Concat(callEvents[:4], other[:4], other[4:], callEvents[4:])
	if _, err := Stream([]byte(toolStream(t, "completed", called+","+called2, both...))); err != nil {
		t.Error(err)
	}

	if _, err := Stream([]byte(toolStream(t, "completed", called2+","+called, both...))); err == nil {
		t.Error("the output may have another order")
	}

	if _, err := Stream([]byte(toolStream(t, "completed", called+","+called2, slices.Concat(callEvents[:3], other[:4], callEvents[3:], other[4:])...))); err == nil || !strings.Contains(err.Error(), "another item is open") {
		t.Errorf("two items may have text at a time: %v", err)
	}

	lost := strings.NewReplacer(`"completed"`, `"incomplete"`, `,"output":"x"`, ``).Replace
	begun := slices.Concat(callEvents[:4], other[:4])
	if _, err := Stream([]byte(toolStream(t, "failed", lost(called)+","+lost(called2), begun...))); err != nil {
		t.Error(err)
	}

	for _, output := range []string{lost(called), lost(called2), called + "," + lost(called2), ""} {
		if _, err := Stream([]byte(toolStream(t, "failed", output, begun...))); err == nil {
			t.Errorf("calls that were under way may be lost: %s", output)
		}
	}

	if _, err := Stream([]byte(toolStream(t, "incomplete", lost(called)+","+lost(called2), begun...))); err == nil {
		t.Error("a response that did not fail may leave items open")
	}
}

// TestToolItems breaks one rule of an item at a time.
func TestToolItems(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ item, old, replacement string }{
		{called, `,"output":"x"`, ``},
		{called, `,"output":"x"`, `,"output":"x","error":{"type":"http_error","code":500,"message":"x"}`},
		{called, `"output":"x"`, `"error":{"type":"http_error","code":500,"message":"x"}`},
		{called, `"status":"completed",`, ``},
		{called, `mcp_1`, `fc_1`},
		{called, `"arguments":"{}"`, `"arguments":{}`},
		{called, `"output":"x"`, `"output":"x","error":null`},
		{called, `"completed","server_label":"s","name":"a-b","arguments":"{}","output":"x"`, `"failed","server_label":"s","name":"a-b","arguments":"{}","error":"x"`},
		{listed2, `,"input_schema":{}`, ``},
		{listed2, `"annotations":{}`, `"annotations":null`},
		{listed2, `"tools":[`, `"error":"x","tools":[`},
		{listed2, `"server_label":"s",`, ``},
		{asked, `"id"`, `"status":"completed","id"`},
		{asked, `"name":"a-b",`, ``},
		{searched, `"search"`, `"find"`},
		{searched, `,"query":"q"`, `,"query":null`},
		{coded, `"container_id":"c",`, ``},
		{coded, `"logs":"1"`, `"text":"1"`},
		{citing, `"end_index":3`, `"end_index":4`},
		{citing, `"start_index":1`, `"start_index":3`},
		{citing, `"title":"t",`, ``},
	} {
		check := func(item string) error {
			v := gjson.Parse(item)
			if err := outputItem(v); err != nil {
				return err
			}
			return checkOutput("completed", []gjson.Result{v})
		}
		if err := check(c.item); err != nil {
			t.Fatal(err)
		}

		bad := strings.Replace(c.item, c.old, c.replacement, 1)
		if bad == c.item {
			t.Errorf("%s is not in %s", c.old, c.item)
		} else if check(bad) == nil {
			t.Errorf("good: %s", bad)
		}
	}

	secret := `{"type":"mcp","server_label":"s","allowed_tools":{"read_only":true},"require_approval":{"never":{"tool_names":["a"]}},"server_url":"https://x/<redacted>"}`
	if err := anyTool(gjson.Parse(secret)); err != nil {
		t.Error(err)
	}

	for _, more := range []string{`"authorization":"x"`, `"headers":{"a":"b"}`, `"headers":null`, `"server_url":"https://x/y"`} {
		if anyTool(gjson.Parse(strings.Replace(secret, `"server_url":"https://x/<redacted>"`, more, 1))) == nil {
			t.Errorf("a tool may have %s", more)
		}
	}
}
