package envoy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An Envoy is found beside the program and in .bin beside its folder, wherever the process was
// started; what is in .bin of the working directory comes first.
func TestFindBesideProgram(t *testing.T) {
	t.Setenv("PATH", "")
	root, elsewhere := t.TempDir(), t.TempDir()
	bin := filepath.Join(root, "bin")

	_, err := find(elsewhere, bin)
	if err == nil {
		t.Fatal("an Envoy is found where there is none")
	}
	for _, want := range []string{"PATH", elsewhere, bin, "../.bin", "make envoy", "ENVOY_BIN"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %s: %v", want, err)
		}
	}

	for _, path := range []string{
		filepath.Join(root, ".bin", "envoy"), filepath.Join(bin, "envoy"), filepath.Join(elsewhere, ".bin", "envoy"),
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o700); err != nil { //nolint:gosec // it is executed
			t.Fatal(err)
		}
		if got, err := find(elsewhere, bin); err != nil || got != path {
			t.Errorf("found %s, %v; want %s", got, err, path)
		}
	}
}
