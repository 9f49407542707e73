package filter

import (
	"testing"

	"github.com/tidwall/gjson"
)

// TestRender shows that both APIs render a request without asking an engine,
// and leave foreign models to the upstream.
func TestRender(t *testing.T) {
	for path, question := range map[string]string{
		"/v1/chat/completions": `"messages":[{"role":"user","content":"Hi"}]`,
		"/v1/responses":        `"input":"Hi"`,
	} {
		s := newScript(t, nil)
		s.request(false, ":method=POST", ":path="+path+"/render")
		s.body(`{"model":"gpt-oss-20b",`+question+`}`, true)
		status, body := s.answered()
		rendered := gjson.Get(body, "token_count").Int()

		s = s.next()
		s.request(false, ":method=POST", ":path="+path)
		s.body(`{"model":"gpt-oss-20b",`+question+`}`, true)
		if n := int64(len(s.x.run.call.Engine().Prompt)); status != 200 || n != rendered {
			t.Errorf("%s: status %d, %d tokens rendered, %d sent", path, status, rendered, n)
		}

		s = s.next()
		s.request(false, ":method=POST", ":path="+path+"/render")
		s.body(`{"model":"llama",`+question+`}`, true)
		s.expectLike("request headers", "request body")
	}
}
