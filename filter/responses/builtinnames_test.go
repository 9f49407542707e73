package responses

import "testing"

// TestToolsOfItemsAreNotBuiltIn sends a tool in the namespace of a built-in one. It is
// not called on the server: the request and the operator may leave it out.
func TestToolsOfItemsAreNotBuiltIn(t *testing.T) {
	t.Parallel()
	l := newBuiltinLoop(t)
	object := l.play(t, `{"model":"m","tools":[{"type":"file_search","vector_store_ids":["vs_1"]}],"input":[{"role":"user","content":"hi"},
		{"type":"additional_tools","tools":[{"type":"namespace","name":"file_search","description":"","tools":[{"type":"function","name":"delete-all"}]}]}]}`,
		` to=file_search.delete-all<|channel|>commentary json<|message|>{}<|call|>`, doneText)
	if got := kinds(object); got != "message completed" || len(l.jobs) != 1 || l.jobs[0].Tool != "" {
		t.Errorf("the response has %s, the server has got %v", got, l.jobs)
	}
}
