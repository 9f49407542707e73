package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os/exec"
	"strings"
)

// Code says what a run was made with, or what a matrix is about.
type Code struct {
	Commit string `json:"commit"`
	// Code is a hash of the files of the commit, except pages. Two commits that differ in pages alone have the same.
	Code string `json:"code"`
	// Dirty: files were changed that belong to the code, so that the commit does not say what ran.
	Dirty bool `json:"dirty"`
}

// isPage reports whether a file is left out of the hash of the code: what is written about it.
func isPage(path string) bool {
	switch path {
	case "docs/support.json", "docs/clients.json", "docs/conformance.json":
		return true
	default:
		return strings.HasSuffix(path, ".md")
	}
}

// codeOf reads the code of a folder from git.
func codeOf(ctx context.Context, root string) (Code, error) {
	commit, err := git(ctx, root, "rev-parse", "HEAD")
	if err != nil {
		return Code{}, err
	}
	files, err := git(ctx, root, "ls-tree", "-r", "-z", "HEAD")
	if err != nil {
		return Code{}, err
	}

	hash := sha256.New()
	for file := range strings.SplitSeq(files, "\x00") {
		// "MODE blob HASH\tPATH"
		if _, path, _ := strings.Cut(file, "\t"); !isPage(path) {
			hash.Write([]byte(file + "\x00"))
		}
	}
	code := Code{Commit: strings.TrimSpace(commit), Code: hex.EncodeToString(hash.Sum(nil))[:16]}

	// A new file that git does not know yet is compiled like any other, so it counts as a change.
	changes, err := git(ctx, root, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all")
	if err != nil {
		return Code{}, err
	}
	for change := range strings.SplitSeq(changes, "\x00") {
		// "XY PATH"
		if len(change) > 3 && !isPage(change[3:]) {
			code.Dirty = true
		}
	}
	return code, nil
}

// git runs git in a folder and returns its standard output.
func git(ctx context.Context, root string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return string(out), nil
}
