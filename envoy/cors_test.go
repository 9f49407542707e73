package envoy_test

import (
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/envoy-harmony/envoy-harmony/envoy"
)

// bootstrapOfOrigins is a bootstrap that lets browsers of these origins in.
func bootstrapOfOrigins(origins ...string) ([]byte, error) {
	return envoy.Bootstrap(envoy.Options{
		Listen: "127.0.0.1:0", ExtProc: "unix:///filter", CORSOrigins: origins,
		Engines: []envoy.Engine{{Name: "vllm", URLs: []string{"http://vllm:8000"}, EndpointPicker: "http://picker:9002"}},
	})
}

func TestOrigins(t *testing.T) {
	text, err := bootstrapOfOrigins("https://app.example.com", "*", "http://localhost:*", "https://*.example.com")
	if err != nil {
		t.Fatal(err)
	}
	checkTypes(t, text)
	for _, want := range []string{`- {exact: "https://app.example.com"}`, `- {exact: "*"}`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s", want)
		}
	}
	found := regexp.MustCompile(`- (\{safe_regex: .*\})`).FindAllSubmatch(text, -1)
	patterns := make([]*regexp.Regexp, 0, len(found))
	for _, m := range found {
		var matcher struct {
			Regex struct{ Regex string } `json:"safe_regex"`
		}
		if err := yaml.UnmarshalStrict(m[1], &matcher); err != nil {
			t.Fatal(err)
		}
		patterns = append(patterns, regexp.MustCompile("^(?:"+matcher.Regex.Regex+")$")) // Envoy matches whole strings
	}
	if len(patterns) != 2 {
		t.Fatalf("%d patterns", len(patterns))
	}
	for origin, want := range map[string]bool{
		"http://localhost:3000": true, "https://a.b.example.com": true,
		"http://localhost": false, "http://localhost:3000.evil.com/": false, "https://example.com": false, "https://evil.com/.example.com": false, "https://xexample.com": false, "https://a.examplexcom": false,
	} {
		if got := patterns[0].MatchString(origin) || patterns[1].MatchString(origin); got != want {
			t.Errorf("%s is let in: %t", origin, got)
		}
	}
	for _, origin := range []string{"", "app.example.com", "https://app.example.com/", "ftp://x", "https://a b", "null", "https://x:y"} {
		if _, err := bootstrapOfOrigins(origin); err == nil || !strings.Contains(err.Error(), "is no origin") {
			t.Errorf("%q: %v", origin, err)
		}
	}
}
