package hosted

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

func newOffer(t *testing.T, api *API) Offer {
	t.Helper()
	client := tools.New(tools.Options{Servers: []tools.Server{
		{Label: "docs", URL: "http://127.0.0.1:1", Trusted: true},
		{Label: "guarded", URL: "http://127.0.0.1:2", Trusted: true, Approval: true},
	}})
	t.Cleanup(client.Close)
	config := Config{Client: client, Builtins: map[tools.Builtin]string{tools.WebSearch: "docs"}}
	return NewOffer(api, config, apitest.NewContext())
}

var testAPI = API{
	Label: "label", URL: "url", Token: "token", Headers: "headers", Approvals: true, Container: "c_",
	Shown: func(name string, _ *harmony.Tool) string { return name },
}

// TestAddServerRefuses shows which member of a definition an error names, in the words of the API.
func TestAddServerRefuses(t *testing.T) {
	t.Parallel()
	plain := testAPI
	plain.Label, plain.Approvals = "name", false
	for name, c := range map[string]struct {
		api        *API
		definition Definition
		param      string
		says       string
	}{
		"no label":       {&testAPI, Definition{}, "x.label", "has no label"},
		"no name":        {&plain, Definition{}, "x.name", "has no name"},
		"functions":      {&testAPI, Definition{Label: "functions", Off: true}, "x.label", "namespace of the request's own tools"},
		"twice":          {&testAPI, Definition{Label: "docs"}, "x.label", `Two MCP servers have the label "docs"`},
		"not configured": {&plain, Definition{Label: "other"}, "x.url", "no server of this name is configured"},
		"not allowed":    {&testAPI, Definition{Label: "other", URL: "https://evil.example"}, "x.url", "evil.example"},
		"approval":       {&plain, Definition{Label: "guarded"}, "x.name", "no approvals"},
		"token":          {&testAPI, Definition{Label: "guarded", Token: "t"}, "x.token", "request_headers"},
		"headers":        {&testAPI, Definition{Label: "guarded", Header: http.Header{"X-A": {"1"}}}, "x.headers", "request_headers"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffer(t, c.api)
			if err := o.AddServer(&Definition{At: "y", Label: "docs"}); err != nil {
				t.Fatal(err)
			}
			c.definition.At = "x"
			err := o.AddServer(&c.definition)
			if err == nil || err.Status != 400 || err.Param != c.param || !strings.Contains(err.Message, c.says) {
				t.Errorf("the error is %+v", err)
			}
			if len(o.Servers) != 1 {
				t.Errorf("there are %d servers", len(o.Servers))
			}
		})
	}
}

// TestOfferedTools shows what the model is offered at once, in the system message and after a
// search, and what the reply is told of it.
func TestOfferedTools(t *testing.T) {
	t.Parallel()
	o := newOffer(t, &testAPI)
	if _, err := o.AddBuiltin(tools.WebSearch, "web_search", "tools[0]"); err != nil {
		t.Fatal(err)
	}
	if _, err := o.AddBuiltin(tools.WebSearch, "web_search_2", "tools[1]"); err == nil || err.Param != "tools[1]" {
		t.Errorf("a built-in tool twice is %v", err)
	}
	if s, err := o.AddBuiltin(tools.FileSearch, "file_search", "tools[2]"); s != nil || err != nil {
		t.Errorf("a built-in tool without a server is %v, %v", s, err)
	}
	later := &Filter{Names: map[string]bool{"a_b": true}}
	if err := o.AddServer(&Definition{At: "x", Label: "docs", Later: later}); err != nil {
		t.Fatal(err)
	}

	var in turn.Input
	unlisted := o.Unlisted(&in, nil)
	if len(unlisted) != 1 || unlisted[0].Label != "docs" {
		t.Fatalf("the servers %v list their tools", unlisted)
	}
	in.Choice.Required = true
	unlisted[0].Failure = "It is down."
	if err := o.CheckRequired(&in); err == nil || err.Status != http.StatusFailedDependency || !strings.Contains(err.Message, "It is down.") {
		t.Errorf("a call that is required is %v", err)
	}
	unlisted[0].Take(&tools.Result{Tools: namedTools("a.b", "a_b", "c")})

	n, err := o.Tools()
	if err != nil {
		t.Fatal(err)
	}
	if len(n.Builtins) != 1 || n.Builtins[0].Name != "browser" || len(n.Tools) != 1 || len(n.Tools[0].Tools) != 2 {
		t.Errorf("the model is offered %+v", n)
	}
	// The server's name is the client's, the number the model's.
	if d := o.Deferred; len(d) != 1 || d[0].Shown != "a_b" || d[0].Name() != (turn.ToolName{Namespace: "docs", Name: "a_b_2"}) {
		t.Errorf("a search finds %+v", d)
	}
	want := []turn.ToolName{{Namespace: "docs", Name: "a_b_2"}}
	if diff := cmp.Diff(want, unlisted[0].Callable("a_b")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	called := o.Called("")
	if len(called.Hosted) != 2 || called.Container == "" || o.Called("mine").Container != "mine" {
		t.Errorf("the reply knows %+v", called)
	}
	if o.Search(nil) != nil {
		t.Error("there is a search")
	}
	o.Searches = []SearchTool{{Name: "find", ByPattern: true}}
	s := o.Search(nil)
	search := s.Tool(&turn.CalledTool{Namespace: turn.FunctionsNamespace, Name: "find"})
	for _, finds := range []int{1, 0} {
		if found, err := s.Find(search, `{"pattern":"a_b"}`); err != nil || len(found) != finds {
			t.Errorf("the search finds %v, %v", found, err)
		}
	}
}
