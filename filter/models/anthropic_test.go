package models

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

const version = "anthropic-version=2023-06-01"

func TestAnthropicModel(t *testing.T) {
	t.Parallel()
	const theirs = `{"type":"model","id":"claude-x","display_name":"Claude X","created_at":"2026-01-02T00:00:00Z"}`
	d := newTestDirectory(t, &fakeGateway{answers: map[string]string{
		"":  `{"data":[` + theirs + `,{"id":"gpt-4","created":1000000000}]}`,
		"a": `{"data":[{"id":"gpt-oss-20b","created":1700000000,"max_model_len":4096}]}`,
	}}, func(c *config.Config) {
		c.Tools.Servers = []config.ToolServer{{Label: "s", URL: "http://s"}}
		c.Tools.WebSearch = "s"
		c.Aliases = []config.Alias{{Name: "claude-sonnet-*", Model: "gpt-oss-20b"}}
	})
	const more = `,"lifecycle":"active","deprecated_at":null,"retires_at":null,"line":null`
	const able = `"capabilities":{"batch":{"supported":false},"citations":{"supported":false},"code_execution":{"supported":false},` +
		`"context_management":{"supported":false},` +
		`"effort":{"supported":true,"low":{"supported":true},"medium":{"supported":true},"high":{"supported":true},"xhigh":{"supported":true},"max":{"supported":true}},` +
		`"image_input":{"supported":false},"pdf_input":{"supported":false},` +
		`"server_tools":{"supported":true,"web_search":{"supported":true},"code_execution":{"supported":false}},` +
		`"structured_outputs":{"supported":true},` +
		`"thinking":{"supported":true,"types":{"adaptive":{"supported":true},"between_tools":{"supported":true},"disabled":{"supported":true},"enabled":{"supported":true}}}}`
	for _, c := range []struct{ name, id, want string }{
		{"a Harmony model", "gpt-oss-20b", `{"type":"model","id":"gpt-oss-20b","display_name":"gpt-oss-20b","created_at":"2023-11-14T22:13:20Z"` + more + `,"max_input_tokens":4096,"max_tokens":4096,` + able + `}`},
		{"an alias", "claude-sonnet-4-5", `{"type":"model","id":"claude-sonnet-4-5","display_name":"claude-sonnet-4-5","created_at":"2025-08-05T00:00:00Z"` + more + `,"max_input_tokens":4096,"max_tokens":4096,` + able + `}`},
		{"a model that the upstream reports in this form", "claude-x", theirs},
		{"a model that the upstream reports in OpenAI's form", "gpt-4", `{"type":"model","id":"gpt-4","display_name":"gpt-4","created_at":"2001-09-09T01:46:40Z"` + more + `,"max_input_tokens":null,"max_tokens":null,"capabilities":null}`},
	} {
		o := d.get("/v1/models/"+c.id, version)
		if diff := cmp.Diff(c.want, string(o.Answer)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
	if o := d.get("/v1/models/none", version); o.Elsewhere == nil {
		t.Errorf("a model that is in no list: %+v", o)
	}
}

// Times that an upstream reports cannot break the list.
func TestCreatedAt(t *testing.T) {
	t.Parallel()
	for seconds, want := range map[int64]string{-5: "1970-01-01T00:00:00Z", 0: "1970-01-01T00:00:00Z", 1 << 60: "9999-12-31T23:59:59Z"} {
		if got := createdAt(seconds); got != want {
			t.Errorf("%d is %s", seconds, got)
		}
	}
}

func TestAnthropicPages(t *testing.T) {
	t.Parallel()
	var many strings.Builder
	for i := range 25 {
		fmt.Fprintf(&many, `,{"id":"m%d"}`, i)
	}
	g := &fakeGateway{answers: map[string]string{"": `{"object":"list","data":[` + many.String()[1:] + `],"x":1}`}}
	d := newTestDirectory(t, g, nil)
	for _, c := range []struct {
		query, first, last string
		number             int
		more               bool
	}{
		{"", "m0", "m19", 20, true},
		{"?limit=1000", "m0", "m24", 25, false},
		{"?limit=2", "m0", "m1", 2, true},
		{"?limit=2&after_id=m1", "m2", "m3", 2, true},
		{"?limit=3&after_id=m21", "m22", "m24", 3, false},
		{"?after_id=m24", "", "", 0, false},
		{"?limit=2&before_id=m5", "m3", "m4", 2, true},
		{"?limit=5&before_id=m2", "m0", "m1", 2, false},
		{"?before_id=m0", "", "", 0, false},
	} {
		o := d.get("/v1/models"+c.query, version)
		got := gjson.ParseBytes(o.Answer)
		n := len(got.Get("data").Array())
		if n != c.number || got.Get("first_id").String() != c.first || got.Get("last_id").String() != c.last || got.Get("has_more").Raw != strconv.FormatBool(c.more) ||
			n > 0 && (got.Get("data.0.id").Str != c.first || got.Get(fmt.Sprintf("data.%d.id", n-1)).Str != c.last) || got.Get("x").Exists() || !gjson.ValidBytes(o.Answer) {
			t.Errorf("%q: %s", c.query, o.Answer)
		}
		if q := g.upstream.URL.Query(); q.Get("limit") != "1000" || q.Has("after_id") || q.Has("before_id") {
			t.Errorf("%q: the upstream is asked %s", c.query, g.upstream.URL)
		}
	}
	for query, param := range map[string]string{
		"?limit=0": "limit", "?limit=1001": "limit", "?limit=x": "limit", "?after_id=none": "after_id", "?before_id=none": "before_id", "?after_id=m1&before_id=m2": "before_id",
	} {
		if err := d.get("/v1/models"+query, version).Err; err == nil || err.Status != 400 || err.Param != param {
			t.Errorf("%s: error %v", query, err)
		}
	}
}

// Errors have the form of the API whose header the request has.
func TestFormOfErrors(t *testing.T) {
	t.Parallel()
	d := newTestDirectory(t, &fakeGateway{}, nil)
	for _, e := range d.Endpoints() {
		_, object := e.Error(elsewhere().Elsewhere, "r")
		if want := e.Header == anthropicVersion; (gjson.GetBytes(object, "type").Str == "error") != want {
			t.Errorf("%s with %q: %s", e.Pattern, e.Header, object)
		}
	}
}
