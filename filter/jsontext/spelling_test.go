package jsontext

import "testing"

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
