package config

import (
	"strings"
	"testing"
)

func TestOpenPaths(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		entry, path string
		open        bool
	}{
		{"/v1/batches", "/v1/batches", true},
		{"/v1/batches", "/v1/batches/1", false},
		{"/v1/files/*", "/v1/files", true},
		{"/v1/files/*", "/v1/files/1/content", true},
		{"/v1/files/*", "/v1/files2", false},
		{"/*", "/anything", true},
	} {
		r := Routing{OpenPaths: []string{"/other", c.entry}}
		if got := r.Opens(c.path); got != c.open {
			t.Errorf("%s opens %s: %v", c.entry, c.path, got)
		}
	}
}

func TestOpenPathsAreChecked(t *testing.T) {
	t.Parallel()
	for entry, good := range map[string]bool{
		"/v1/batches": true, "/v1/files/*": true, "/*": true,
		"": false, "v1/files": false, "/v1/fi*": false, "/v1/*/content": false, "/v1/../x": false, "/v1/%66iles": false, "/v1/a?b": false, "/v1/files/": false, "/v1//x": false,
		"/a/.": false, "/a/..": false, "/a/./*": false, "/./a": false, "/...": true,
		"/v1/completions": true, "/v1/*": true, "/v1/chat/*": true, "/v1/responsesx": true,
		"/v1/responses": false, "/v1/responses/*": false, "/v1/responses/x": false, "/v1/chat/completions/x/*": false, "/v1/messages/batches": false, "/v1/models/*": false,
	} {
		c := Defaults()
		c.Engines = []Engine{{Kind: "vllm", URLs: []string{"http://127.0.0.1:1"}}}
		c.Routing.OpenPaths = []string{entry}
		err := c.Validate()
		if good && err != nil || !good && (err == nil || !strings.Contains(err.Error(), "routing.open_paths[0]")) {
			t.Errorf("%q: %v", entry, err)
		}
	}
}
