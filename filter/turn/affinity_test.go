package turn

import (
	"context"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// TestPrefixKey shows which changes of a request change its prefix key.
func TestPrefixKey(t *testing.T) {
	t.Parallel()
	begin := func() (*RequestContext, *Input) {
		rc, _ := newContext()
		rc.Tenant = "a"
		tools := functions("f", "g")
		return rc, &Input{Instructions: "Be short.", Items: []Item{{Kind: Instructions, Text: "Be kind."}, userHi}, Tools: tools}
	}

	rc, in := begin()
	want := prepare(t, rc, in).Affinity().Prefix
	if len(want) != 2*keyBytes {
		t.Fatalf("key %q", want)
	}

	more := append(toolTurn("x")[1:], Item{Kind: Answer, Text: "Hello."}, Item{Kind: User, Text: "And?"}, Item{Kind: Instructions, Text: "Be quick."})
	for _, tt := range []struct {
		name   string
		change func(rc *RequestContext, in *Input)
		same   bool
	}{
		{"once more", func(*RequestContext, *Input) {}, true},
		{"it grows", func(_ *RequestContext, in *Input) { in.Items = append(in.Items, more...) }, true},
		{"it grows on a stored prefix", func(rc *RequestContext, in *Input) {
			before, err := Extend(context.Background(), rc, nil, in.Items)
			if err != nil {
				t.Fatal(err)
			}
			in.Before, in.Items = before, more
		}, true},
		{"another day", func(rc *RequestContext, _ *Input) { rc.Model.Date = "2026-11-22" }, true},
		{"another effort", func(_ *RequestContext, in *Input) { in.Effort = harmony.EffortHigh }, true},
		{"a named session", func(_ *RequestContext, in *Input) { in.Session = "s" }, true},
		{"no calls", func(_ *RequestContext, in *Input) { in.NoCalls = true }, true},
		{"another tenant", func(rc *RequestContext, _ *Input) { rc.Tenant = "b" }, false},
		{"another model", func(_ *RequestContext, in *Input) { in.Engine.Model = "m" }, false},
		{"other instructions", func(_ *RequestContext, in *Input) { in.Instructions = "Be long." }, false},
		{"other instructions in the conversation", func(_ *RequestContext, in *Input) { in.Items[0].Text = "Be harsh." }, false},
		{"another first text", func(_ *RequestContext, in *Input) { in.Items[1].Text = "Bye" }, false},
		{"another tool", func(_ *RequestContext, in *Input) {
			in.Tools[0].Tools = append(in.Tools[0].Tools, harmony.Tool{Name: "h"})
		}, false},
		{"another description", func(_ *RequestContext, in *Input) { in.Tools[0].Tools[0].Description = "d" }, false},
		{"another schema", func(_ *RequestContext, in *Input) {
			in.Tools[0].Tools[0].Parameters = []byte(`{"type":"object","properties":{"x":{"type":"string"}}}`)
		}, false},
		{"another namespace", func(_ *RequestContext, in *Input) { in.Tools[0].Name = "n" }, false},
	} {
		rc, in := begin()
		tt.change(rc, in)
		if got := prepare(t, rc, in).Affinity().Prefix; (got == want) != tt.same {
			t.Errorf("%s: the key is the same: %t", tt.name, got == want)
		}
	}
}

// TestSessionKey shows which name of a session takes precedence, and that the key
// depends on the tenant.
func TestSessionKey(t *testing.T) {
	t.Parallel()
	key := func(tenant, named, header, text string) string {
		rc, _ := newContext()
		rc.Tenant, rc.Session = tenant, header
		return prepare(t, rc, &Input{Items: []Item{{Kind: User, Text: text}}, Session: named}).Affinity().Session
	}

	want := key("a", "x", "", "Hi")
	for name, got := range map[string]string{"another text": key("a", "x", "", "Bye"), "a header": key("a", "", "x", "Hi"), "the request's own name first": key("a", "x", "y", "Hi")} {
		if got != want {
			t.Errorf("%s: another key", name)
		}
	}

	for name, got := range map[string]string{"another session": key("a", "y", "", "Hi"), "another tenant": key("b", "x", "", "Hi"), "no session": key("a", "", "", "Hi")} {
		if got == want {
			t.Errorf("%s: the same key", name)
		}
	}

	rc, _ := newContext()
	if a := prepare(t, rc, &Input{Items: []Item{userHi}}).Affinity(); a.Session != a.Prefix {
		t.Errorf("%+v: no session is named", a)
	}
}
