package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// archived are the files of the project that stand in every archive.
var archived = []string{"CHANGELOG.md", "LICENSE", "README.md"}

// writeDist writes the files of a release: for each platform an archive and its
// SBOM, the chart, and SHA256SUMS.
func writeDist(ctx context.Context, o *options) error {
	if o.sbomTool == "" {
		return errors.New("name cyclonedx-gomod with -sbom-tool")
	}

	files, err := o.distFiles(ctx)
	if err != nil {
		return err
	}
	chart, err := o.source.chart()
	if err != nil {
		return err
	}
	if chart != nil {
		files[chartName+"-"+o.source.version+".tgz"] = chart
	}

	// Last: all the others are in it.
	files["SHA256SUMS"] = sums(files)

	// The folder is replaced once all is made: no old file stays in it.
	if err := os.RemoveAll(o.out); err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}

	for name, content := range files {
		if err := os.WriteFile(filepath.Join(o.out, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// distFiles returns the archives and SBOMs by name.
func (o *options) distFiles(ctx context.Context) (map[string][]byte, error) {
	notices, err := o.source.notices(ctx)
	if err != nil {
		return nil, err
	}
	texts := []entry{{name: "THIRD_PARTY_NOTICES", text: notices}}
	for _, name := range archived {
		text, err := os.ReadFile(filepath.Join(o.source.dir, name))
		if err != nil {
			return nil, err
		}
		texts = append(texts, entry{name: name, text: text})
	}
	tmp, err := os.MkdirTemp("", "release-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	files := map[string][]byte{}
	for _, p := range releasePlatforms {
		entries := slices.Clone(texts)
		folder := filepath.Join(tmp, p.os, p.arch)
		for _, program := range programs {
			binary := filepath.Join(folder, program)
			if err := o.source.compile(ctx, p, program, binary); err != nil {
				return nil, err
			}
			content, err := os.ReadFile(binary)
			if err != nil {
				return nil, err
			}
			entries = append(entries, entry{program, content, true})
		}

		name := fmt.Sprintf("envoy-harmony_%s_%s_%s", o.source.version, p.os, p.arch)
		if files[name+".tar.gz"], err = tarball(inFolder(name, entries), o.source.time); err != nil {
			return nil, err
		}

		// The simulator has no module that the filter does not have.
		if files[name+".cdx.json"], err = o.source.sbom(ctx, o.sbomTool,
			filepath.Join(folder, filterProgram)); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// inFolder returns the entries in a folder, sorted.
func inFolder(folder string, entries []entry) []entry {
	moved := slices.Clone(entries)
	for i := range moved {
		moved[i].name = folder + "/" + moved[i].name
	}
	slices.SortFunc(moved, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return moved
}

// sums returns the SHA-256 of all files, sorted, as sha256sum -c reads it.
func sums(files map[string][]byte) []byte {
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	var b bytes.Buffer
	for _, name := range names {
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(files[name]), name)
	}
	return b.Bytes()
}
