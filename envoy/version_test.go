package envoy_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/envoy"
)

// script writes a program that answers to --version.
func script(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "envoy")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o700); err != nil { //nolint:gosec // it is executed
		t.Fatal(err)
	}
	return path
}

func TestReadVersion(t *testing.T) {
	if v, err := envoy.ReadVersion(t.Context(), find(t)); err != nil || v.Major != 1 || v.Minor < 38 {
		t.Errorf("the Envoy of the tests: %v, %v", v, err)
	}
	dev := script(t, `echo "envoy  version: 9e55/1.41.0-dev/Modified/DEBUG/BoringSSL"`)
	if v, err := envoy.ReadVersion(t.Context(), dev); err != nil || v.String() != "1.41.0" {
		t.Errorf("a build of one's own: %v, %v", v, err)
	}

	for body, want := range map[string]string{
		"echo 1.40.0": "has no version of an Envoy",
		"exit 3":      "exit status 3",
		"echo version: a/1.40.99999999999999999999": "out of range",
	} {
		if v, err := envoy.ReadVersion(t.Context(), script(t, body)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: version %v, error %v, want %q", body, v, err, want)
		}
	}
}

// The versions are those of the table in docs/operations.md.
func TestVersionCheck(t *testing.T) {
	for version, want := range map[envoy.Version]string{
		{1, 36, 2}: "refused", {1, 37, 9}: "refused",
		{1, 38, 0}: "unsafe", {1, 38, 3}: "unsafe", {1, 39, 0}: "unsafe",
		{1, 38, 4}: "", {1, 39, 1}: "", {1, 39, 3}: "", {1, 40, 0}: "", {1, 41, 0}: "", {2, 0, 0}: "",
	} {
		unsafe, err := version.Check(envoy.Options{})
		got := ""
		if unsafe != "" {
			got = "unsafe"
		}
		if err != nil {
			got = "refused"
		}
		if got != want {
			t.Errorf("%v is %q (%s, %v), want %q", version, got, unsafe, err, want)
		}
	}

	if _, err := (envoy.Version{1, 39, 3}).Check(envoy.Options{ModeOverride: true}); err == nil {
		t.Error("1.39.3 has no mode override")
	}
	if unsafe, err := (envoy.Version{1, 40, 0}).Check(envoy.Options{ModeOverride: true}); err != nil || unsafe != "" {
		t.Errorf("1.40.0 with the mode override: %s, %v", unsafe, err)
	}
}

// What "make envoy" has fetched comes before another Envoy of the machine.
func TestFindOrder(t *testing.T) {
	none := func(string) string { return "" }
	installed, source := filepath.Dir(script(t, "")), t.TempDir()
	t.Setenv("PATH", installed)
	t.Chdir(source)
	if got, err := envoy.Find(none); err != nil || got != filepath.Join(installed, "envoy") {
		t.Errorf("without .bin/envoy: %s, %v", got, err)
	}

	fetched := filepath.Join(source, ".bin")
	if err := os.Rename(filepath.Dir(script(t, "")), fetched); err != nil {
		t.Fatal(err)
	}
	below := filepath.Join(source, "below")
	if err := os.Mkdir(below, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{source, below} {
		t.Chdir(dir)
		if got, err := envoy.Find(none); err != nil || got != filepath.Join(fetched, "envoy") {
			t.Errorf("in %s: %s, %v", dir, got, err)
		}
	}
}
