package responses

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestNestedIgnored shows which members of items and of their parts are listed as
// ignored, and that members of the API's own items are not.
func TestNestedIgnored(t *testing.T) {
	t.Parallel()
	const user = `{"role":"user","content":"Hi"}`
	for _, c := range []struct {
		name, items string
		want        []string
	}{
		{"a message", `{"type":"message","id":"msg_x","status":"completed","role":"user","content":"Hi","cache_control":{},"name":"a","null":null}`, []string{"input.cache_control", "input.name"}},
		{"a picture", `{"role":"user","content":[{"type":"input_image","image_url":"https://x","detail":"high"},{"type":"input_text","text":"Hi","prompt_cache_breakpoint":{}}]}`, []string{"input.content.detail", "input.content.prompt_cache_breakpoint"}},
		{"an answer", user + `,{"type":"message","id":"msg_y","status":"completed","role":"assistant","phase":"final_answer","content":[{"type":"output_text","text":"a","annotations":[],"logprobs":[{"token":"a"}],"x":1}]},` + user, []string{"input.content.x"}},
		{"reasoning", user + `,{"type":"reasoning","id":"rs_1","status":"completed","summary":[{"type":"summary_text","text":"a","y":1}],"content":null,"encrypted_content":null},` + user, []string{"input.summary.y"}},
		{"a call and its output", user + `,{"type":"function_call","id":"fc_1","status":"completed","call_id":"c","name":"f","arguments":"{}","caller":{"type":"program"},"w":1},{"type":"function_call_output","id":"fco_1","status":"completed","call_id":"c","output":[{"type":"input_text","text":"a","z":1}]}`, []string{"input.w", "input.output.z"}},
		{"nothing else", `{"type":"message","id":"1","status":"in_progress","role":"user","content":[{"type":"input_text","text":"Hi"}]}`, nil},
	} {
		got := mustDecode(t, askItems(c.items)).IgnoredFields
		if diff := cmp.Diff(c.want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
	var members strings.Builder
	for i := range 100 {
		fmt.Fprintf(&members, `,"x%d":1`, i)
	}
	if got := mustDecode(t, askItems(`{"role":"user","content":"Hi"`+members.String()+`}`)).IgnoredFields; len(got) != 32 {
		t.Errorf("%d members are listed", len(got))
	}
}
