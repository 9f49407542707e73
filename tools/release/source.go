package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// source is the tree that a release is made of, and its name.
type source struct {
	dir string
	// version is SemVer without v.
	version string

	// date is that of the commit, RFC 3339 in UTC; time is the same.
	commit string
	date   string
	time   time.Time

	// toolchain is such as go1.26.8.
	toolchain string
}

var (
	semver    = regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)
	toolchain = regexp.MustCompile(`(?m)^toolchain (go\S+)$`)
)

// complete checks the version, and reads what is not set from git and go.mod.
func (s *source) complete(ctx context.Context) error {
	if !semver.MatchString(s.version) {
		return fmt.Errorf("version %q: write a semantic version without v, such as 1.2.3 or 1.2.3-rc.1", s.version)
	}

	if s.commit == "" {
		var err error
		if s.commit, err = commitOf(ctx, s.dir); err != nil {
			return err
		}
	}

	if s.date == "" {
		date, err := output(ctx, s.dir, nil, "git", "log", "-1", "--format=%cI")
		if err != nil {
			return err
		}
		s.date = strings.TrimSpace(date)
	}

	var err error
	if s.time, err = time.Parse(time.RFC3339, s.date); err != nil {
		return fmt.Errorf("date of the commit: %w", err)
	}

	// git writes the committer's own zone.
	s.time = s.time.UTC()
	s.date = s.time.Format(time.RFC3339)
	return s.readToolchain()
}

// commitOf returns the commit of a folder, with -dirty if files were changed.
func commitOf(ctx context.Context, dir string) (string, error) {
	commit, err := output(ctx, dir, nil, "git", "rev-parse", "HEAD")
	if err != nil {
		return "", err
	}

	// Files that git does not know are no part of the commit, and what a build writes is such a file.
	changes, err := output(ctx, dir, nil, "git", "status", "--porcelain", "--untracked-files=no")
	if err != nil {
		return "", err
	}
	if changes != "" {
		// A commit must not be named for a program that is not made of it.
		return strings.TrimSpace(commit) + "-dirty", nil
	}
	return strings.TrimSpace(commit), nil
}

func (s *source) readToolchain() error {
	mod, err := os.ReadFile(filepath.Join(s.dir, "go.mod"))
	if err != nil {
		return err
	}

	// Not the go line: it is the oldest version that can build, and another compiler writes other bytes.
	found := toolchain.FindSubmatch(mod)
	if found == nil {
		return errors.New("go.mod has no toolchain line: it says which Go a release is built with")
	}
	s.toolchain = string(found[1])
	return nil
}
