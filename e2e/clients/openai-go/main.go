// Command openai-go is the script of openai-go in the client matrix.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"
)

// matrix are the cases of the test, as e2e/clients/README.md describes them.
type matrix struct {
	Model                          string
	Text, Stream, Reasoning, Usage struct{ Prompt string }
	Tools                          struct{ Prompt, Result string }
	Structured                     struct{ Prompt, Description string }
	Errors                         map[string]fault
	State                          struct{ First, Second string }
}

type fault struct {
	Model, Prompt string
	Stream        bool
}

// seen is what the client sees of a capability.
type seen map[string]any

// script has the capabilities by name.
type script map[string]func(context.Context) (seen, error)

func main() {
	var cases matrix
	if err := json.Unmarshal([]byte(os.Getenv("MATRIX")), &cases); err != nil {
		fmt.Fprintln(os.Stderr, "openai-go is run by TestClients:", err)
		os.Exit(2)
	}
	client := openai.NewClient(option.WithMaxRetries(0))
	run := chat{client, cases}.script()
	if os.Getenv("API") == "responses" {
		run = response{client, cases}.script()
	}
	out := json.NewEncoder(os.Stdout)
	for name, capability := range run {
		line := seen{"capability": name}
		saw, err := capability(context.Background())
		if err != nil {
			line["error"] = err.Error()
		} else {
			line["saw"] = saw
		}
		if err := out.Encode(line); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// faults calls a function for each fault.
func (m matrix) faults(request func(fault) error) seen {
	all := seen{}
	for name, f := range m.Errors {
		err := request(f)
		all[name] = map[string]string{"type": typeOf(err), "message": messageOf(err)}
	}
	return all
}

// failedEvent is a stream that ends with an event of this name. The SDK has no error
// for it.
type failedEvent struct{ name, message string }

func (e failedEvent) Error() string { return e.message }

// typeOf names the type of an error. Errors in a stream have no type of the SDK.
func typeOf(err error) string {
	var api *openai.Error
	var failed failedEvent
	switch {
	case err == nil:
		return ""
	case errors.As(err, &api):
		return "openai.Error " + strconv.Itoa(api.StatusCode)
	case errors.As(err, &failed):
		return failed.name
	}
	return "stream error"
}

// messageOf returns the message of an error. The SDK's Error method has only the
// status.
func messageOf(err error) string {
	var api *openai.Error
	if errors.As(err, &api) {
		return api.Message
	}
	return fmt.Sprint(err)
}

func object(properties map[string]any) map[string]any {
	names := make([]string, 0, len(properties))
	for name := range properties {
		names = append(names, name)
	}
	return map[string]any{"type": "object", "properties": properties, "required": names, "additionalProperties": false}
}

// place is the schema of the tool's argument.
func place() shared.FunctionParameters {
	return object(map[string]any{"city": map[string]any{"type": "string"}})
}

// weather is the schema of the structured output.
func (m matrix) weather() map[string]any {
	return object(map[string]any{
		"city":    map[string]any{"type": "string"},
		"celsius": map[string]any{"type": "integer", "description": m.Structured.Description},
	})
}

func cityOf(arguments string) (string, error) {
	var a struct{ City string }
	err := json.Unmarshal([]byte(arguments), &a)
	return a.City, err
}
