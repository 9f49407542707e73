package jsontext

import (
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

// TestSnakeCase shows which spellings of a name are one name.
func TestSnakeCase(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"max_tokens": "max_tokens", "maxTokens": "max_tokens", "MaxTokens": "max_tokens", "MAX_TOKENS": "max_tokens",
		"max-tokens": "max_tokens", "topP": "top_p", "top_p": "top_p", "maxOutputTokens": "max_output_tokens",
		"userID": "user_id", "topNSigma": "top_n_sigma", "Max-Tokens": "max_tokens", "Max_Tokens": "max_tokens", "n": "n", "": "", "Ä": "Ä",
	} {
		if got := snakeCase(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// TestBothSpellings shows that another spelling of a field is ignored beside the field itself if both
// say the same, wherever they stand.
func TestBothSpellings(t *testing.T) {
	t.Parallel()
	table := Table[*string]{
		"max_tokens": {Read: func(d *string, v Field) *apierror.Error {
			*d = v.Raw
			return nil
		}},
	}

	for body, refused := range map[string]bool{
		`{"maxTokens":7,"max_tokens":7}`:              false,
		`{"max_tokens":7,"maxTokens":7}`:              false,
		`{"max_tokens":7,"maxTokens":8}`:              true,
		`{"max_tokens":null,"maxTokens":7}`:           true,
		`{"other":{"max_tokens":7},"maxTokens":7}`:    true,
		`{"maxTokens":7,"MAX_TOKENS":7}`:              true,
		`{"maxTokens":null,"max_tokens":7,"other":1}`: false,
	} {
		got, ignored := "", Ignored{}
		err := table.DecodeRequest(&got, Field{Result: gjson.Parse(body)}, &ignored)
		if refused != (err != nil) || err == nil && got != "7" {
			t.Errorf("%s: %q, %v", body, got, err)
		}
	}
}
