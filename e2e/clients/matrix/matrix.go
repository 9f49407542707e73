// Package matrix runs the capabilities of a Go script of the client matrix and prints what
// the client sees. The README.md of the folder above has the contract.
package matrix

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
)

// Cases are the cases of the test.
type Cases struct {
	Model                          string
	Text, Stream, Reasoning, Usage struct{ Prompt string }
	Tools                          struct{ Prompt, Result string }
	Structured                     struct {
		Prompt, Description string
		Value               json.RawMessage
	}
	Errors map[string]Fault
	State  struct{ First, Second string }
}

// Fault is a request that fails.
type Fault struct {
	Model, Prompt string
	Stream        bool
}

// Seen is what the client sees of a capability.
type Seen map[string]any

// Script has the capabilities of a client by name.
type Script map[string]func(context.Context) (Seen, error)

// Main runs the script that a function makes for an API.
func Main(script func(api string, cases Cases) Script) {
	var cases Cases
	if err := json.Unmarshal([]byte(os.Getenv("MATRIX")), &cases); err != nil {
		fmt.Fprintln(os.Stderr, "this program is run by TestClients:", err)
		os.Exit(2)
	}

	// A line for each capability when it is done, so that a crash in one leaves the others.
	out := json.NewEncoder(os.Stdout)
	for name, capability := range script(os.Getenv("API"), cases) {
		line := Seen{"capability": name}
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

// Faults makes the request of each fault. Kind names the type of an error that is not nil,
// and returns its message.
func (c Cases) Faults(request func(Fault) error, kind func(error) (name, message string)) Seen {
	all := Seen{}
	for fault, f := range c.Errors {
		var name, message string
		if err := request(f); err != nil {
			name, message = kind(err)
		}

		// A fault that the client does not notice has empty names, which the manifest does not allow.
		all[fault] = map[string]string{"type": name, "message": message}
	}
	return all
}

// Object returns the schema of an object whose properties are all required.
func Object(properties map[string]any) map[string]any {
	names := make([]string, 0, len(properties))
	for name := range properties {
		names = append(names, name)
	}
	return map[string]any{"type": "object", "properties": properties, "required": names, "additionalProperties": false}
}

// Place is the schema of the tool's argument.
func Place() map[string]any {
	return Object(map[string]any{"city": map[string]any{"type": "string"}})
}

// Weather is the schema of the structured output.
func (c Cases) Weather() map[string]any {
	return Object(map[string]any{
		"city":    map[string]any{"type": "string"},
		"celsius": map[string]any{"type": "integer", "description": c.Structured.Description},
	})
}

// CityOf returns the city of the tool's arguments.
func CityOf(arguments string) (string, error) {
	var a struct{ City string }
	err := json.Unmarshal([]byte(arguments), &a)
	return a.City, err
}
