package filter

import (
	"fmt"
	"math/rand/v2"

	"github.com/envoy-harmony/envoy-harmony/filter/chat"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/messages"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
	"github.com/envoy-harmony/envoy-harmony/filter/render"
	"github.com/envoy-harmony/envoy-harmony/filter/responses"
)

// records is where the records of exchanges are kept, as long as the process lives.
type records struct {
	ring   *record.Ring
	folder *record.Folder // nil: there is none
	count  func(outcome string)
}

// openRecords opens what the configuration names.
func openRecords(cfg *config.Config, o Options, count func(outcome string)) (*records, error) {
	r := &records{ring: record.NewRing(cfg.Record.MemoryBytes), count: count}
	if cfg.Record.Folder == "" {
		return r, nil
	}
	var err error
	r.folder, err = record.OpenFolder(record.FolderOptions{
		Path:  cfg.Record.Folder,
		Bytes: cfg.Record.FolderBytes,
		Age:   cfg.Record.FolderAge.Duration,
		Log:   o.Log,
		Now:   o.Now,
		Lost:  func() { count(record.Dropped) },
	})
	if err != nil {
		return nil, fmt.Errorf("record.folder: %w", err)
	}
	return r, nil
}

// keeper says what records keep of the fields of all APIs.
func keeper() *record.Keeper {
	return record.NewKeeper(chat.Fields(), messages.Fields(), responses.Fields(), render.Fields())
}

// recorder is the recorder of a configuration, after that of the one before.
func (r *records) recorder(cfg *config.Config, before *record.Recorder, o Options) *record.Recorder {
	c := &cfg.Record
	if !c.On() {
		return nil
	}

	// A nil folder in an interface would not be nil.
	sinks := []record.Sink{r.ring}
	if r.folder != nil {
		sinks = append(sinks, r.folder)
	}

	return before.With(record.Options{
		Percent:     c.Percent,
		Tenants:     c.Tenants,
		Models:      c.Models,
		Outcomes:    c.Outcomes,
		Header:      c.Header,
		Content:     c.Content,
		Keeper:      keeper(),
		RecordBytes: c.MaxRecordBytes,
		LiveBytes:   cfg.Record.MemoryBytes,
		Sinks:       sinks,
		Draw:        rand.IntN,
		Now:         o.Now,
		Count:       r.count,
	})
}

// close writes what waits for the disk.
func (r *records) close() {
	if r.folder != nil {
		r.folder.Close()
	}
}

// recordedConfig adds to records what they have of the configuration.
func recordedConfig(cfg *config.Config, version string) func(r *record.Record) {
	// Cannot fail for a configuration that was read.
	shown, err := cfg.YAML()
	text := string(shown)
	if err != nil {
		text = ""
	}
	return func(r *record.Record) { r.Version, r.Config = version, text }
}

// Records returns the records in memory, the oldest first. They must not be changed.
func (s *Server) Records() []*record.Record { return s.records.ring.Records() }

// Live returns what there is of the records of exchanges that go on, in the order of their
// beginning: the last limit ones; 0: all.
func (s *Server) Live(limit int) []record.Record { return s.current.Load().recorder.Live(limit) }
