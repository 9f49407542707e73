// Command openai-go is the script of openai-go in the client matrix.
package main

import (
	"errors"
	"strconv"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/envoy-harmony/envoy-harmony/e2e/clients/matrix"
)

func main() {
	// The rest comes from the environment, as in a user's program. Without retries each fault is one
	// request.
	client := openai.NewClient(option.WithMaxRetries(0))
	matrix.Main(func(api string, cases matrix.Cases) matrix.Script {
		if api == "responses" {
			return response{client, cases}.script()
		}
		return chat{client, cases}.script()
	})
}

// failedEvent is a stream that ends with an event of this name. The SDK has no error
// for it.
type failedEvent struct{ name, message string }

func (e failedEvent) Error() string { return e.message }

// kind names the type of an error and returns its message, of which the SDK's Error
// method has only the status. Errors in a stream have no type of the SDK.
func kind(err error) (name, message string) {
	var api *openai.Error
	var failed failedEvent
	switch {
	case errors.As(err, &api):
		return "openai.Error " + strconv.Itoa(api.StatusCode), api.Message
	case errors.As(err, &failed):
		return failed.name, failed.message
	}
	return "stream error", err.Error()
}
