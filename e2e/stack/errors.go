package stack

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
)

// Secret is part of prompts. No error may contain it.
const Secret = "SECRET-4711"

// APIError is OpenAI's error object.
type APIError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

// ReadError checks the form of an error, and that it does not contain the prompt.
func ReadError(t *testing.T, text string) APIError {
	t.Helper()
	var body struct {
		Error *APIError `json:"error"`
	}
	if err := json.Unmarshal([]byte(text), &body); err != nil || body.Error == nil || body.Error.Message == "" ||
		body.Error.Type == "" {
		t.Fatalf("not an OpenAI error: %q", text)
	}
	if strings.Contains(text, Secret) {
		t.Errorf("the error contains the prompt: %s", text)
	}
	return *body.Error
}

// WantErrorWith checks for an API error with a status and a word in its JSON.
func WantErrorWith(t *testing.T, err error, status int, word string) {
	t.Helper()
	var apiError *openai.Error
	if !errors.As(err, &apiError) || apiError.StatusCode != status || !strings.Contains(apiError.RawJSON(), word) {
		t.Errorf("got %v, want %d with %q", err, status, word)
	}
}
