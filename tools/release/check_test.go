package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// repository is a source in a git repository with a tag.
func repository(t *testing.T, changelog, tag string) *source {
	t.Helper()
	s := newSource(t, map[string]string{
		"go.mod": "module m\n\ngo 1.26.0\n\ntoolchain go1.26.8\n", "CHANGELOG.md": changelog,
	})
	s.commit, s.date = "", ""
	for _, args := range [][]string{
		{"init", "-q"},
		{"add", "."},
		{"-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false", "commit", "-q", "-m", "x"},
		{"tag", tag},
	} {
		if _, err := output(t.Context(), s.dir, nil, "git", args...); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// A release is made of a tag, of nothing that is changed, and with a section of the changelog.
func TestCheck(t *testing.T) {
	const good = "# Changelog\n\n## Unreleased\n\n## 1.2.3 - 2026-12-01\n\n- One.\n- Two.\n\n## 1.2.2 - 2026-11-01\n\n- Old.\n"
	for name, c := range map[string]struct {
		changelog, tag string
		change         func(dir string) error
		want           string
	}{
		"good":         {good, "v1.2.3", nil, ""},
		"no tag":       {good, "v1.2.2", nil, "there is no tag v1.2.3"},
		"no section":   {"# Changelog\n\n## 1.2.3\n", "v1.2.3", nil, "CHANGELOG.md has no section: ## 1.2.3 - DATE"},
		"other commit": {good, "v1.2.3", commitMore, "the tag v1.2.3 is commit "},
		"changed": {good, "v1.2.3", func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module m\n\ntoolchain go1.26.8\n"), 0o600)
		}, "files are changed that are not committed"},
	} {
		t.Run(name, func(t *testing.T) {
			s := repository(t, c.changelog, c.tag)
			if c.change != nil {
				if err := c.change(s.dir); err != nil {
					t.Fatal(err)
				}
			}
			out := t.TempDir()
			check := func(more ...string) error {
				return run(t.Context(), append([]string{"check", "-source", s.dir, "-version", "1.2.3", "-out", out}, more...))
			}
			err := check()
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if err := check("-dry"); err != nil {
				t.Errorf("a dry run fails: %v", err)
			}
			notes, err := os.ReadFile(filepath.Join(out, "notes.md"))
			if err != nil || c.want == "" && string(notes) != "- One.\n- Two.\n" {
				t.Errorf("notes %q, %v", notes, err)
			}
		})
	}
}

func commitMore(dir string) error {
	cmd := []string{"-C", dir, "-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false", "commit", "-q", "--allow-empty", "-m", "y"}
	_, err := output(context.Background(), dir, nil, "git", cmd...)
	return err
}

// ociArchive is a tar archive of files.
func ociArchive(t *testing.T, files map[string]string) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, text := range files {
		err := errors.Join(w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}))
		if _, writeErr := w.Write([]byte(text)); err != nil || writeErr != nil {
			t.Fatal(err, writeErr)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "image.tar")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// The digests are those of the archive: the list of the platforms, and each platform.
func TestLayout(t *testing.T) {
	const list = "application/vnd.oci.image.index.v1+json"
	index := func(mediaType string) string {
		return `{"manifests":[{"mediaType":"` + mediaType + `","digest":"sha256:aa"}]}`
	}
	platforms := `{"manifests":[{"digest":"sha256:bb","platform":{"architecture":"amd64"}},` +
		`{"digest":"sha256:cc","platform":{"architecture":"arm64"}}]}`
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"two platforms": {map[string]string{"index.json": index(list), "blobs/sha256/aa": platforms}, ""},
		"one image":     {map[string]string{"index.json": index("application/vnd.oci.image.manifest.v1+json")}, "not one list of images"},
		"no index":      {map[string]string{"blobs/sha256/aa": platforms}, "index.json"},
		"leads outside": {map[string]string{"../evil": "x"}, `it has a file "../evil"`},
	} {
		t.Run(name, func(t *testing.T) {
			out := t.TempDir()
			err := run(t.Context(), []string{
				"layout", "-source", filepath.Join("..", ".."), "-commit", "a", "-date", "2026-02-03T04:05:06Z",
				"-archive", ociArchive(t, c.files), "-out", out,
			})
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v, want %q", err, c.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for name, want := range map[string]string{"image": "aa", "image.amd64": "bb", "image.arm64": "cc"} {
				if got, err := os.ReadFile(filepath.Join(out, name+".digest")); err != nil || string(got) != "sha256:"+want+"\n" {
					t.Errorf("%s: %q, %v", name, got, err)
				}
			}
		})
	}
}

// BUILDER allows one builder alone.
func TestWantedBuilder(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"docker", "podman"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o700); err != nil { //nolint:gosec // it is executed
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	got := make([]string, 0, 3)
	for _, wanted := range []string{"", "podman", "buildah"} {
		t.Setenv("BUILDER", wanted)
		b, err := findBuilder(t.Context())
		got = append(got, fmt.Sprintf("%s %v", b, errors.Is(err, errNoBuilder)))
	}
	if want := []string{"docker false", "podman false", " true"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
