package responses

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/filter/work"
)

// TestGrammarsAreCountedFirst has grammars of many tools. Those beyond the bound, or for an
// engine without grammars, are not read and count as ignored, and all take their steps of
// one account.
func TestGrammarsAreCountedFirst(t *testing.T) {
	t.Parallel()
	body := func(tools int, definition string) []byte {
		text, _ := json.Marshal(definition)
		list := make([]string, tools)
		for i := range list {
			list[i] = fmt.Sprintf(`{"type":"custom","name":"t%d","format":{"type":"grammar","syntax":"lark","definition":%s}}`, i, text)
		}

		return fmt.Appendf(nil, `{"model":"m","input":"x","tools":[%s]}`, strings.Join(list, ","))
	}
	comments := "start: \"a\"\n" + strings.Repeat("#\n", 800) + "| \"b\""
	for name, c := range map[string]struct {
		body    []byte
		checked bool
		most    int
		code    string
	}{
		"8 are read":              {body(30, comments), false, work.PerRequest / 100, ""},
		"none without grammars":   {body(30, comments), true, 0, ""},
		"one that takes too much": {body(1, "start: "+strings.Repeat("/[B-\U0001e942]/i ", 400)), false, work.PerRequest, turn.CodeTooCostly},
	} {
		rc := apitest.NewContext()
		rc.Work = work.New(context.Background(), work.PerRequest)
		rc.Checked = c.checked
		_, err := testAPI.Decode(c.body, rc)
		if (err == nil) != (c.code == "") || err != nil && (err.Code != c.code || !strings.HasSuffix(err.Param, "definition")) {
			t.Errorf("%s: %v", name, err)
		}
		if c.code == "" && !rc.Work.Affords(work.PerRequest-c.most) {
			t.Errorf("%s: more than %d steps were spent", name, c.most)
		}
	}
}
