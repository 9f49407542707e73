package clients

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// matrixClient is the manifest of a client, clients/NAME.json. e2e/clients/README.md
// describes the contract.
type matrixClient struct {
	// name is that of the manifest, with "-VERSION" behind it for one of its Versions.
	name string

	// Title is the name in the tables, Order the place there.
	Title string `json:"title"`
	Order int    `json:"order"`

	// Package is the client's name in the lock file of its Set: go, go/VERSION, node,
	// node/SET, agents or python/SET.
	Package string `json:"package"`
	Set     string `json:"set"`
	// Released is the month in which one of the Versions of another manifest came out.
	Released string `json:"released"`

	// Script is the program, below clients/. It runs once for each of APIs, and each is a row.
	Script string   `json:"script"`
	APIs   []string `json:"apis"`
	// Agent says that it is a coding agent.
	Agent bool `json:"agent"`

	// Errors are the client's types by fault. Gaps are the reasons of the cells that are
	// not passed. Keys may begin with "API/", such as "chat/state".
	Errors map[string]string `json:"errors"`
	Gaps   map[string]string `json:"gaps"`

	// Versions are other versions of the client: what their manifests have in place of
	// these members, or beside those of Errors and Gaps.
	Versions map[string]json.RawMessage `json:"versions"`
}

// capabilities are the columns of the table. "history" is judged by the engine's log
// alone; the scripts report the others.
var capabilities = []string{"text", "stream", "tools", "history", "structured", "reasoning", "usage", "errors", "state"}

// faults are the columns of the table of errors.
var faults = []string{"bad_request", "not_found", "rate_limit", "unavailable", "context_length", "broken_stream"}

// apiNames are the APIs as the tables name them.
var apiNames = map[string]string{
	"chat": "Chat Completions", "responses": "Responses", "websocket": "Responses over WebSocket", "messages": "Messages",
}

// all returns the client and its other versions.
func (c matrixClient) all() ([]matrixClient, error) {
	clients := []matrixClient{c}
	for version, members := range c.Versions {
		v := c
		v.name, v.Versions = c.name+"-"+version, nil
		// What is decoded into them must not be written into those of the client.
		v.APIs, v.Errors, v.Gaps = slices.Clone(c.APIs), maps.Clone(c.Errors), maps.Clone(c.Gaps)
		if err := decodeManifest(members, &v); err != nil {
			return nil, fmt.Errorf("version %s: %w", version, err)
		}

		if v.Set == c.Set && v.Package == c.Package || v.Released == "" {
			return nil, fmt.Errorf("version %s: it needs a set or a package of its own, and when it was released", version)
		}
		if pinned, err := v.version(); err != nil || pinned != version {
			return nil, fmt.Errorf("version %s: its lock file has %q: %w", version, pinned, err)
		}
		clients = append(clients, v)
	}
	return clients, nil
}

func decodeManifest(text []byte, c *matrixClient) error {
	from := json.NewDecoder(bytes.NewReader(text))
	from.DisallowUnknownFields()
	return from.Decode(c)
}

// reasons returns the values of manifest keys that count for an API, without its name.
func reasons(values map[string]string, api string, keys []string) map[string]string {
	of := map[string]string{}
	for _, key := range keys {
		if v := lookup(values, api, key); v != "" {
			of[key] = v
		}
	}
	return of
}

// lookup returns the value of a key for an API.
func lookup(values map[string]string, api, key string) string {
	if v, ok := values[api+"/"+key]; ok {
		return v
	}
	return values[key]
}

// recorded returns the URL of a relay for a client in the version of its manifest, as
// [stack.Recorded] does.
func recorded(t *testing.T, base, client string) string {
	t.Helper()
	for _, c := range readMatrix(t) {
		if c.name != client {
			continue
		}
		version, err := c.version()
		if err != nil {
			t.Fatal(err)
		}
		return stack.Recorded(t, base, client, version)
	}
	t.Fatalf("no client %q has a manifest", client)
	return ""
}

// readMatrix returns the clients in the order of the table.
func readMatrix(t *testing.T) []matrixClient {
	t.Helper()
	paths, err := filepath.Glob("clients/*.json")
	if err != nil {
		t.Fatal(err)
	}

	var clients []matrixClient
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		if strings.HasPrefix(name, "package") {
			continue
		}

		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		c := matrixClient{name: name}
		if err := decodeManifest(text, &c); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all, err := c.all()
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		clients = append(clients, all...)
	}

	slices.SortFunc(clients, func(a, b matrixClient) int {
		return cmp.Or(cmp.Compare(a.Order, b.Order), strings.Compare(a.Released, b.Released), strings.Compare(a.name, b.name))
	})
	return clients
}
