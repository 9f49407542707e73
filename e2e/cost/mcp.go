package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"

	"github.com/sirupsen/logrus"

	"github.com/envoy-harmony/envoy-harmony/filter/tools"
)

// toolServer is an MCP server with the label a, whose list of tools is the scenario's.
type toolServer struct {
	url     string
	listing []byte
	// messages are those of the client since the scenario began. Requests come at the same time.
	messages atomic.Int64
}

// messageBytes is what a message to the server and its answer count: headers and envelope,
// which are no part of a scenario. Each hosted call of the model has such a message.
const messageBytes = 512

// begin gives the server the list of a scenario.
func (s *toolServer) begin(listing []byte) {
	s.listing = listing
	s.messages.Store(0)
}

// traffic is what the messages since begin count.
func (s *toolServer) traffic() int { return int(s.messages.Load()) * messageBytes }

// listTools starts the server.
func listTools() (s *toolServer, closeServer func()) {
	s = &toolServer{}
	server := httptest.NewServer(s)
	s.url = server.URL
	return s, server.Close
}

// client returns a client that has not asked the server yet.
func (s *toolServer) client() *tools.Client {
	log := logrus.New()
	// Hostile lists are logged, and each scenario has one.
	log.SetOutput(io.Discard)
	server := tools.Server{Label: "a", URL: s.url, Trusted: true, Transport: tools.TransportHTTP}
	return tools.New(tools.Options{Servers: []tools.Server{server}, Log: log})
}

// ServeHTTP answers a message of the client.
func (s *toolServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.messages.Add(1)
	var request struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}

	// A client also asks for a stream of messages by GET. 405 says that there is none.
	if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&request) != nil {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	if request.ID == nil { // a notification
		w.WriteHeader(http.StatusAccepted)
		return
	}

	result := []byte(`{}`)
	switch request.Method {
	case "initialize":
		result = []byte(`{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},` +
			`"serverInfo":{"name":"a","version":"1"}}`)
	case "tools/list":
		result = s.listing
	case "tools/call":
		result = []byte(`{"content":[{"type":"text","text":"done"}]}`)
	}
	w.Header().Set("content-type", "application/json")
	answer := append(append([]byte(`{"jsonrpc":"2.0","id":`), request.ID...), `,"result":`...)
	_, _ = w.Write(append(append(answer, result...), '}'))
}
