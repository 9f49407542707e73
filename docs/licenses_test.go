package docs

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the table of licences to dependencies.md, and that of the parser cases to harmony.md")

// licences are the permissive licences of linked modules, by sentences of their texts.
var licences = []struct{ name, says string }{
	{"Apache-2.0", "Apache License Version 2.0"},
	{"MIT", "Permission is hereby granted, free of charge, to any person obtaining a copy"},
	{"BSD-3-Clause", "Redistributions in binary form must reproduce"},
	{"ISC", "Permission to use, copy, modify, and/or distribute this software for any purpose"},
	{"ISC", "Permission to use, copy, modify, and distribute this software for any purpose"},
}

// licensesOf returns the names of the licences in a text, "" if it has none of them or
// has words of a copyleft licence.
func licensesOf(text string) string {
	text = strings.Join(strings.Fields(strings.ReplaceAll(text, "//", " ")), " ")
	if regexp.MustCompile(`GNU (Affero |Lesser |Library )?General Public License|GNU LESSER|Mozilla Public License`).MatchString(text) {
		return ""
	}
	var names []string
	for _, l := range licences {
		if !strings.Contains(strings.ToLower(text), strings.ToLower(l.says)) && (l.name != "Apache-2.0" || !strings.Contains(text, "http://www.apache.org/licenses/LICENSE-2.0")) {
			continue
		}
		name := l.name
		if name == "BSD-3-Clause" && !regexp.MustCompile(`(?i)neither the names? of|the names? of .{1,80} may not be used`).MatchString(text) {
			name = "BSD-2-Clause"
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// linkedModules returns the folders of the modules that are linked into the program, by
// their paths.
func linkedModules(t *testing.T) map[string]string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Dir}}{{end}}{{end}}", "../cmd/envoy-harmony").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	found := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if path, dir, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok {
			found[path] = dir
		}
	}
	return found
}

// TestLicenses checks that every module that is linked into the program has a known
// permissive licence, and compares them with the table of dependencies.md. -update
// writes the table.
func TestLicenses(t *testing.T) {
	modules := linkedModules(t)
	if len(modules) < 40 {
		t.Errorf("only %d linked modules were found", len(modules))
	}
	byLicense := map[string][]string{}
	for _, path := range slices.Sorted(maps.Keys(modules)) {
		files, _ := filepath.Glob(filepath.Join(modules[path], "LICENSE*"))
		var text strings.Builder
		for _, file := range files {
			if base := filepath.Base(file); base != "LICENSE" && base != "LICENSE.txt" && base != "LICENSE.md" {
				continue
			}
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text.Write(content)
		}
		names := licensesOf(text.String())
		if names == "" {
			t.Errorf("%s: its licence is missing, or none of the permissive ones that this test knows: see %s", path, modules[path])
		}
		byLicense[names] = append(byLicense[names], path)
	}
	var table strings.Builder
	for _, names := range slices.Sorted(maps.Keys(byLicense)) {
		fmt.Fprintf(&table, "| %s | %s |\n", names, strings.Join(byLicense[names], ", "))
	}
	const begin, end = "| licence | linked modules |\n|---|---|\n", "\n<!-- end of the linked modules -->"
	text, err := os.ReadFile("dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	had, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatal("dependencies.md has no table of linked modules")
	}
	if diff := cmp.Diff(had, table.String()); diff != "" {
		if *update {
			if err := os.WriteFile("dependencies.md", []byte(before+begin+table.String()+end+after), 0o600); err != nil {
				t.Fatal(err)
			}
			return
		}
		t.Errorf("the table of linked modules in dependencies.md is old, run go test ./docs -run Licenses -update (-had +linked):\n%s", diff)
	}
}

func TestUnknownLicensesAreFound(t *testing.T) {
	const bsd = "Redistribution and use in source and binary forms … * Redistributions in binary form must reproduce the above"
	for text, want := range map[string]string{
		"Apache License\n   Version 2.0, January 2004":                                  "Apache-2.0",
		"Permission is hereby granted, free of charge,\nto any person obtaining a copy": "MIT",
		bsd: "BSD-2-Clause",
		bsd + "\n * Neither the name of Google Inc. nor the names": "BSD-3-Clause",
		"GNU GENERAL PUBLIC LICENSE Version 3":                     "",
		"Permission is hereby granted, free of charge, to any person obtaining a copy, or the GNU Lesser General Public License": "",
		"All rights reserved.": "",
		"":                     "",
	} {
		if got := licensesOf(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
