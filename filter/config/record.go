package config

import (
	"slices"
	"strings"
)

// outcomes are the values of the label outcome of harmony_requests_total.
var outcomes = []string{"ok", "rejected", "failed", "drain", "canceled"}

// minRecordBytes is the least that max_record_bytes and memory_bytes can be: a short
// exchange.
const minRecordBytes = 16 << 10

func (r *Record) check() (errs faults) {
	if r.Percent < 0 || r.Percent > 100 {
		errs.add("record.percent: must be from 0 to 100, not %d", r.Percent)
	}
	// Envoy has all names in lower case.
	if r.Header != strings.ToLower(r.Header) || strings.ContainsAny(r.Header, " :") {
		errs.add("record.header: %q is not the name of a header in lower case", r.Header)
	}
	for _, o := range r.Outcomes {
		if !slices.Contains(outcomes, o) {
			errs.add("record.outcomes: must be of %s, not %q", strings.Join(outcomes, ", "), o)
		}
	}

	if r.MaxRecordBytes < minRecordBytes {
		errs.add("record.max_record_bytes: must be at least %d", minRecordBytes)
	}
	if r.MemoryBytes < minRecordBytes {
		errs.add(
			"record.memory_bytes: must be at least %d: exchanges that go on are recorded in memory", minRecordBytes)
	}
	if r.FolderBytes <= 0 || r.FolderAge.Duration < 0 {
		errs.add("record: folder_age must not be negative, and folder_bytes must be positive")
	}
	return errs
}
