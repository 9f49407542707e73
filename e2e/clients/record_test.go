package clients

import (
	"maps"
	"slices"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// clientsRecord has what "make test-clients" saw of each row, for the page and for programs.
const clientsRecord = "../docs/clients.json"

// clientRow is a client with an API, a line of the record.
type clientRow struct {
	// Client is the name of [matrixClient], Title what people read.
	Client string `json:"client"`
	Title  string `json:"title"`
	API    string `json:"api"`

	// Version is that of the lock file on the day when the row ran. Released is the month of
	// a version that is not the newest.
	Version  string `json:"version"`
	Released string `json:"released,omitempty"`
	Ran      string `json:"ran"`

	// Agent says that Errors are what a coding agent does, and no types.
	Agent bool `json:"agent,omitempty"`

	// Capabilities have an outcome each. State are the ways to continue a conversation.
	Capabilities map[string]outcome `json:"capabilities"`
	State        string             `json:"state,omitempty"`

	// Errors are the client's types by fault. Gaps are the reasons by capability, or by
	// "errors." and the fault.
	Errors map[string]string `json:"errors,omitempty"`
	Gaps   map[string]string `json:"gaps,omitempty"`
}

// outcome is what a run of a script says of a capability.
type outcome string

const (
	passed outcome = "passed"
	failed outcome = "failed"
	// absent: the client has no such thing.
	absent outcome = "absent"
)

// newClientRow returns the row of a client before it has run.
func newClientRow(c matrixClient, api string) (*clientRow, error) {
	version, err := c.version()
	if err != nil {
		return nil, err
	}
	return &clientRow{
		Client: c.name, Title: c.Title, API: api, Version: version, Released: c.Released, Agent: c.Agent,
		Capabilities: map[string]outcome{},
		Errors:       reasons(c.Errors, api, faults),
		Gaps:         reasons(c.Gaps, api, gapKeys()),
	}, nil
}

// gapKeys are the keys of gaps, in the order of the table.
func gapKeys() []string {
	keys := slices.Clone(capabilities)
	for _, fault := range faults {
		keys = append(keys, "errors."+fault)
	}
	return keys
}

// same reports whether two rows say the same, whenever they ran.
func (r clientRow) same(other *clientRow) bool {
	return r.declares(other) && maps.Equal(r.Capabilities, other.Capabilities) && r.State == other.State
}

// declares reports whether two rows have the same version, and the same text of manifests.
func (r clientRow) declares(other *clientRow) bool {
	return r.Version == other.Version && r.Title == other.Title && r.Released == other.Released && r.Agent == other.Agent &&
		maps.Equal(r.Errors, other.Errors) && maps.Equal(r.Gaps, other.Gaps)
}

// rowKey is what tells rows apart.
type rowKey struct{ client, api string }

// readRecord returns the rows of the record.
func readRecord(t *testing.T) map[rowKey]*clientRow {
	t.Helper()
	record := map[rowKey]*clientRow{}
	for _, row := range stack.ReadResults[*clientRow](t, clientsRecord) {
		record[rowKey{row.Client, row.API}] = row
	}
	return record
}

// inOrder returns the rows of a record in the order of the tables. It leaves out those whose
// manifest is gone.
func inOrder(clients []matrixClient, record map[rowKey]*clientRow) []*clientRow {
	var rows []*clientRow
	for _, c := range clients {
		for _, api := range c.APIs {
			if row, ok := record[rowKey{c.name, api}]; ok {
				rows = append(rows, row)
			}
		}
	}
	return rows
}
