package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// repository returns a repository with two commits of one file, "one" and "two", and
// their names.
func repository(t *testing.T) (root, first, second string) {
	root = t.TempDir()
	run := func(arguments ...string) string {
		output, err := git(root, append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com"}, arguments...)...)
		if err != nil {
			t.Fatal(err)
		}
		return output
	}
	if err := os.MkdirAll(filepath.Dir(baselineFile(root)), 0o700); err != nil {
		t.Fatal(err)
	}
	run("init", "--quiet")
	commits := map[string]string{}
	for _, text := range []string{"one", "two"} {
		if err := os.WriteFile(filepath.Join(root, "text"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		run("add", ".")
		run("commit", "--quiet", "-m", text)
		commits[text] = run("rev-parse", "HEAD")
	}
	return root, commits["one"], commits["two"]
}

// TestBaseline records a commit and writes its files, while the work tree stays.
func TestBaseline(t *testing.T) {
	root, first, second := repository(t)
	if err := record(root); err != nil {
		t.Fatal(err)
	}
	for against, want := range map[string]string{"": second, "HEAD~1": first, first: first} {
		if got, err := baselineCommit(root, against); got != want || err != nil {
			t.Errorf("-against %q is %s, %v, want %s", against, got, err, want)
		}
	}
	folder := t.TempDir()
	if err := checkout(root, first, folder); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{filepath.Join(folder, "text"): "one", filepath.Join(root, "text"): "two"} {
		if got, err := os.ReadFile(file); string(got) != want || err != nil {
			t.Errorf("%s has %q, %v, want %q", file, got, err, want)
		}
	}
	if files, err := os.ReadDir(folder); len(files) != 1 || err != nil {
		t.Errorf("the folder has %v, %v", files, err)
	}
}

func TestBaselineErrors(t *testing.T) {
	root, _, _ := repository(t)
	if _, err := baselineCommit(root, ""); err == nil {
		t.Error("a baseline without a record")
	}
	if _, err := baselineCommit(root, "0123456789abcdef0123456789abcdef01234567"); err == nil || !strings.Contains(err.Error(), "--unshallow") {
		t.Errorf("an unknown commit: %v", err)
	}
	if err := unchanged(root); err != nil {
		t.Errorf("the work tree of a commit: %v", err)
	}
	if err := os.WriteFile(filepath.Join(root, "text"), []byte("three"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unchanged(root); err == nil || !strings.Contains(err.Error(), "commit them first") {
		t.Errorf("a changed work tree: %v", err)
	}
}

// TestRecordedBaseline checks that the file in the repository has one commit.
func TestRecordedBaseline(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(baselineFile(root))
	if commit := strings.TrimSpace(string(text)); err != nil || len(commit) != 40 || strings.Trim(commit, "0123456789abcdef") != "" {
		t.Errorf("%q is no commit (%v)", text, err)
	}
}
