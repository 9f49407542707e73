package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const chartName = "envoy-harmony"

// chart returns the Helm chart as an archive like that of helm package, with the
// release's version; nil if the tree has no chart.
func (s *source) chart() ([]byte, error) {
	dir := filepath.Join(s.dir, "charts", chartName)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	entries, err := chartEntries(dir)
	if err != nil {
		return nil, fmt.Errorf("chart: %w", err)
	}

	i := slices.IndexFunc(entries, func(e entry) bool { return e.name == chartName+"/Chart.yaml" })
	if i < 0 {
		return nil, errors.New("chart: there is no Chart.yaml")
	}

	// Lines are replaced, not YAML written: comments and order stay as they are.
	for key, value := range map[string]string{"version": s.version, "appVersion": `"` + s.version + `"`} {
		line := regexp.MustCompile(`(?m)^` + key + `:.*$`)
		if n := len(line.FindAll(entries[i].text, -1)); n != 1 {
			return nil, fmt.Errorf("chart: Chart.yaml has %d lines with %s, not one", n, key)
		}
		entries[i].text = line.ReplaceAllLiteral(entries[i].text, []byte(key+": "+value))
	}
	return tarball(entries, s.time)
}

// chartEntries returns the files of the chart that .helmignore does not name, sorted.
func chartEntries(dir string) ([]entry, error) {
	ignored, err := readIgnored(dir)
	if err != nil {
		return nil, err
	}

	var entries []entry
	err = filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case file == dir:
			return nil
		case ignored(d) && d.IsDir():
			return filepath.SkipDir
		case ignored(d) || d.IsDir():
			return nil
		}

		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, file)
		// Helm expects all files in a folder that has the chart's name.
		entries = append(entries, entry{name: path.Join(chartName, filepath.ToSlash(name)), text: text})
		return err
	})

	return entries, err
}

// readIgnored reads .helmignore. Its patterns have to be names, such as *.swp, and
// names of folders, such as .git/.
func readIgnored(dir string) (func(fs.DirEntry) bool, error) {
	text, err := os.ReadFile(filepath.Join(dir, ".helmignore"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}

	var patterns []string
	for line := range bytes.Lines(text) {
		p := strings.TrimSpace(string(line))
		if p == "" || strings.HasPrefix(p, "#") {
			continue
		}

		// Only these forms mean the same to Helm and to path.Match.
		if strings.HasPrefix(p, "!") || strings.Contains(strings.TrimSuffix(p, "/"), "/") {
			return nil, fmt.Errorf(".helmignore: the release tool does not know the pattern %q: use a name", p)
		}
		if _, err := path.Match(p, ""); err != nil {
			return nil, fmt.Errorf(".helmignore: %q: %w", p, err)
		}
		patterns = append(patterns, p)
	}

	return func(d fs.DirEntry) bool {
		return slices.ContainsFunc(patterns, func(p string) bool {
			// A slash at the end means that the pattern is for folders only.
			name, isFolder := strings.CutSuffix(p, "/")
			matches, _ := path.Match(name, d.Name())
			return matches && (d.IsDir() || !isFolder)
		})
	}, nil
}
