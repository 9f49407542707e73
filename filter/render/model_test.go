package render

import (
	"testing"

	"github.com/tidwall/gjson"
)

// TestWithModel shows that a body gets a model where it names none, and is else as it was.
func TestWithModel(t *testing.T) {
	for body, want := range map[string]string{
		`{"input":"a"}`:                `{"model":"gpt-oss","input":"a"}`,
		` { "a":1 } `:                  `{"model":"gpt-oss", "a":1 }`,
		`{}`:                           `{"model":"gpt-oss"}`,
		`{ }`:                          `{"model":"gpt-oss" }`,
		`{"a":1, "model": null,"b":2}`: `{"a":1, "model": "gpt-oss","b":2}`,
		`{"model":""}`:                 `{"model":"gpt-oss"}`,
		`{"model":7}`:                  `{"model":7}`,
		`[1]`:                          `[1]`,
		``:                             ``,
	} {
		if got := string(withModel([]byte(body))); got != want || gjson.Valid(got) != gjson.Valid(body) {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
}
