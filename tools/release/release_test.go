package main

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// copyTree copies the project into a new folder, without what was built or
// downloaded, and returns it as the source of a release.
func copyTree(t *testing.T) source {
	t.Helper()
	project, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	skipped := []string{".git", ".bin", ".venv", ".engines", "bin", "dist", "node_modules", "testdata"}
	err = filepath.WalkDir(project, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(project, path)
		if err != nil {
			return err
		}
		switch {
		case slices.Contains(skipped, d.Name()) && d.IsDir():
			return filepath.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(dir, name), 0o755)
		case !d.Type().IsRegular():
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, name), content, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	return source{dir: dir, version: "1.2.3", commit: "0123456789abcdef", date: "2026-02-03T04:05:06+02:00"}
}

// newSource is a source of small files, with a toolchain line.
func newSource(t *testing.T, files map[string]string) *source {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return &source{dir: dir, version: "1.2.3", commit: "abc", date: "2026-02-03T04:05:06Z", time: time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)}
}

func TestSource(t *testing.T) {
	const mod = "module m\n\ngo 1.26.0\n\ntoolchain go1.26.8\n"
	s := newSource(t, map[string]string{"go.mod": mod})
	s.date = "2026-02-03T06:05:06+02:00"
	if err := s.complete(context.Background()); err != nil {
		t.Fatal(err)
	}
	if s.date != "2026-02-03T04:05:06Z" || s.toolchain != "go1.26.8" {
		t.Errorf("date %s, toolchain %s", s.date, s.toolchain)
	}
	for name, change := range map[string]func(*source){
		"version with v":   func(s *source) { s.version = "v1.2.3" },
		"short version":    func(s *source) { s.version = "1.2" },
		"flag in version":  func(s *source) { s.version = "1.2.3 -X a=b" },
		"date":             func(s *source) { s.date = "yesterday" },
		"no toolchain":     func(s *source) { s.dir = newSource(t, map[string]string{"go.mod": "module m\n"}).dir },
		"no git":           func(s *source) { s.commit = "" },
		"no date and git":  func(s *source) { s.date = "" },
		"folder is absent": func(s *source) { s.dir = "/nowhere" },
	} {
		s := newSource(t, map[string]string{"go.mod": mod})
		change(s)
		if err := s.complete(context.Background()); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// The Dockerfile compiles with the toolchain of go.mod.
func TestDockerfileToolchain(t *testing.T) {
	s := &source{dir: filepath.Join("..", "..")}
	if err := s.readToolchain(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(s.dir, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "\nARG GO_IMAGE=golang:" + s.toolchain[len("go"):] + "-"; !contains(text, want) {
		t.Errorf("the Dockerfile does not have %q", want)
	}
}
