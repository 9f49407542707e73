package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The replay is a gate: it does not pass where nothing was compared, or where this version
// cannot read what it has to.
func TestReplayGate(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../filter/testdata/records/chat.json")
	if err != nil {
		t.Fatal(err)
	}
	good := string(text)
	for _, c := range []struct {
		name string
		text string
		exit int
		want string // in stderr
	}{
		{"the same", good, 0, ""},
		{"no record at all", "", 1, "no record"},
		{"nothing but skipped records", strings.Replace(good, `"format":1,`, `"format":1,"cut":true,`, 1), 1, "no record"},
		{"a configuration that is not valid any more", good + strings.Replace(good, `"config":"`, `"config":"nope: 1\n`, 1), 1, "1 configurations cannot be read"},
		{"a damaged file", good + `{"format":1,"events":[{"kind":"call"}]}`, 1, "damaged"},
	} {
		file := filepath.Join(t.TempDir(), "a.json")
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		exit, stdout, stderr := execute(t, nil, "replay", file)
		if exit != c.exit || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: exit %d, %s%s", c.name, exit, stdout, stderr)
		}
	}
}
