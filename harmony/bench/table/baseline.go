package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The baseline is a commit of this repository. Its benchmarks are built and run beside
// those of the work tree, in turns, so a ratio of the two holds on every machine.

// baselineFile returns the path of the file with the commit of the baseline.
func baselineFile(root string) string {
	return filepath.Join(root, "harmony", "bench", "table", "baseline")
}

// baselineCommit returns the commit to compare with: against, or the recorded one.
func baselineCommit(root, against string) (string, error) {
	if against == "" {
		text, err := os.ReadFile(baselineFile(root))
		if err != nil {
			return "", fmt.Errorf("read the commit of the baseline: %w", err)
		}
		against = strings.TrimSpace(string(text))
	}

	commit, err := git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", against+"^{commit}")
	if err != nil {
		return "", fmt.Errorf("the commit of the baseline, %s, is not in this clone: "+
			"fetch it with \"git fetch --unshallow\", or name another one with -against, "+
			"or none with -against none", against)
	}
	return commit, nil
}

// checkout writes the files of a commit to a folder.
func checkout(root, commit, folder string) error {
	archive := filepath.Join(folder, "baseline.tar")
	if _, err := git(root, "archive", "--format=tar", "--output="+archive, commit); err != nil {
		return fmt.Errorf("read the baseline: %w", err)
	}

	unpack := exec.Command("tar", "-xf", archive, "-C", folder) //nolint:gosec // our own files
	if output, err := unpack.CombinedOutput(); err != nil {
		return fmt.Errorf("unpack the baseline: %w: %s", err, output)
	}
	return os.Remove(archive)
}

// unchanged returns an error if files have changed since the last commit: what is measured
// could not be recorded.
func unchanged(root string) error {
	changed, err := git(root, "status", "--porcelain")
	if err != nil {
		return err
	}
	if changed != "" {
		return fmt.Errorf("the baseline is a commit, but files have changed since the last one: commit them "+
			"first\n%s", changed)
	}
	return nil
}

// record makes the commit of the work tree the baseline of later runs.
func record(root string) error {
	commit, err := git(root, "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	return os.WriteFile(baselineFile(root), []byte(commit+"\n"), 0o644) //nolint:gosec // no secret
}

// git runs git in the repository and returns what it prints.
func git(root string, arguments ...string) (string, error) {
	cmd := exec.Command("git", arguments...)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stderr = root, &stderr
	output, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", arguments[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSpace(string(output)), nil
}
