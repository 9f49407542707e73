package config

import (
	"bytes"
	"testing"
)

// FuzzConfig reads arbitrary files. No file panics. What a valid one says is printed and
// read again with the same meaning.
func FuzzConfig(f *testing.F) {
	for _, seed := range []string{
		"engines: [{kind: vllm}]",
		"engines: [{kind: vllm, address: \"a:1\"}]\nmodels: [{match: m, context_length: 4096}]\naliases: {a: b}\nstore_url: redis://u:p@h/0",
		"engines: [{kind: sglang}]\ntools: {servers: [{label: l, url: \"https://h/?key=x\", headers: {A: b}}, {label: m, command: [c], env: {K: v}}]}",
		"limits: {total_timeout: 1h, max_body_bytes: -1}\nlimits: {}",
		"a: &a [*a, *a]", "? {}", "engines: [{kind: vllm}]\nx: 1", "\t", "rollout: {percent: 101}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 16<<10 {
			return
		}
		c, err := Parse("file", text)
		if err != nil {
			if c != nil {
				_ = c.Validate() // of the other keys, for all errors at once
			}
			return
		}
		if c.Validate() != nil {
			return
		}
		c.Responses.SealKeys = nil // which are printed as hashes
		printed, err := c.YAML()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse("printed", printed)
		if err != nil {
			t.Fatalf("what is printed is not read: %v\n%s", err, printed)
		}
		if err := again.Validate(); err != nil {
			t.Fatalf("what is printed is not valid: %v\n%s", err, printed)
		}
		reprinted, err := again.YAML()
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(printed, reprinted) {
			t.Errorf("printed\n%s\nand read and printed again\n%s", printed, reprinted)
		}
	})
}
