package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	"github.com/xeipuuv/gojsonschema"
)

func contains(text []byte, part string) bool { return bytes.Contains(text, []byte(part)) }

// dist makes a release from a copy of the project and returns its files.
func dist(t *testing.T, s source) map[string][]byte {
	t.Helper()
	tool, err := filepath.Abs(filepath.Join("..", "..", ".bin", "cyclonedx-gomod"))
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "dist")
	args := []string{"dist", "-source", s.dir, "-version", s.version, "-commit", s.commit, "-date", s.date, "-sbom-tool", tool, "-out", out}
	if err := run(t.Context(), args); err != nil {
		t.Fatal(err)
	}
	return readFolder(t, out)
}

func readFolder(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, e := range entries {
		if files[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// Two releases of one source in two folders are equal, and have what
// docs/release.md says.
func TestDist(t *testing.T) {
	first, second := copyTree(t), copyTree(t)
	files, again := dist(t, first), dist(t, second)
	names := make([]string, 0, len(files))
	for name, content := range files {
		names = append(names, name)
		if !bytes.Equal(content, again[name]) {
			t.Errorf("%s differs between two folders: %x, %x", name, sha256.Sum256(content), sha256.Sum256(again[name]))
		}
	}
	want := []string{"SHA256SUMS"}
	for _, p := range releasePlatforms {
		name := "envoy-harmony_1.2.3_" + p.os + "_" + p.arch
		want = append(want, name+".tar.gz", name+".cdx.json")
		checkArchive(t, files[name+".tar.gz"], name, p)
		checkSBOM(t, files[name+".cdx.json"])
	}
	if _, err := os.Stat(filepath.Join(first.dir, "charts")); err == nil {
		want = append(want, "envoy-harmony-1.2.3.tgz")
	}
	slices.Sort(names)
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("files %q, want %q", names, want)
	}
	checkSums(t, files)
}

// untar returns the files of a tar.gz archive.
func untar(t *testing.T, archive []byte) (headers map[string]*tar.Header, contents map[string][]byte) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	headers, contents = map[string]*tar.Header{}, map[string][]byte{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return headers, contents
		}
		if err != nil {
			t.Fatal(err)
		}
		headers[h.Name] = h
		if contents[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

func checkArchive(t *testing.T, archive []byte, folder string, p platform) {
	t.Helper()
	headers, contents := untar(t, archive)
	want := map[string]int64{"CHANGELOG.md": 0o644, "LICENSE": 0o644, "README.md": 0o644, "THIRD_PARTY_NOTICES": 0o644, "envoy-harmony": 0o755, "engine-sim": 0o755}
	if len(headers) != len(want) {
		t.Errorf("%s: %d files, want %d", folder, len(headers), len(want))
	}
	for name, mode := range want {
		h := headers[folder+"/"+name]
		if h == nil || h.Mode != mode || h.Uid != 0 || h.Gid != 0 || h.Uname != "" || !h.ModTime.Equal(time.Date(2026, 2, 3, 2, 5, 6, 0, time.UTC)) {
			t.Errorf("%s: %s: %+v", folder, name, h)
		}
	}
	notices := contents[folder+"/THIRD_PARTY_NOTICES"]
	for _, part := range []string{"\nmodernc.org/sqlite v", "\nstd go", "\ngithub.com/pkoukk/tiktoken-go-loader v", "Apache License"} {
		if !contains(notices, part) {
			t.Errorf("%s: the notices do not have %q", folder, part)
		}
	}
	program := contents[folder+"/envoy-harmony"]
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range info.Deps {
		if !contains(notices, "\n"+m.Path+" "+m.Version+"\n") {
			t.Errorf("%s: the notices do not have %s %s", folder, m.Path, m.Version)
		}
	}
	checkProgram(t, program, p)
	checkSimulator(t, contents[folder+"/engine-sim"], info.Deps)
}

// checkSimulator checks that the simulator has no module beside those of the filter: the
// SBOM and the notices are made of the filter's.
func checkSimulator(t *testing.T, program []byte, filter []*debug.Module) {
	t.Helper()
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range info.Deps {
		if !slices.ContainsFunc(filter, func(f *debug.Module) bool { return *f == *m }) {
			t.Errorf("engine-sim has %s %s, and envoy-harmony has not", m.Path, m.Version)
		}
	}
}

// checkProgram checks the settings of a compiled program, and its version if it can
// be run here.
func checkProgram(t *testing.T, program []byte, p platform) {
	t.Helper()
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		t.Fatal(err)
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if settings["CGO_ENABLED"] != "0" || settings["GOOS"] != p.os || settings["GOARCH"] != p.arch || settings["-trimpath"] != "true" {
		t.Errorf("%v: settings %v", p, settings)
	}
	if p.os != runtime.GOOS || p.arch != runtime.GOARCH {
		return
	}
	file := filepath.Join(t.TempDir(), "envoy-harmony")
	if err := os.WriteFile(file, program, 0o700); err != nil { //nolint:gosec // it is executed
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), file, "version").Output()
	want := fmt.Sprintf("envoy-harmony 1.2.3\ncommit:   0123456789abcdef\ndate:     2026-02-03T02:05:06Z\ngo:       %s\nplatform: %s/%s\n", info.GoVersion, p.os, p.arch)
	if err != nil || string(out) != want {
		t.Errorf("version: %v, %q, want %q", err, out, want)
	}
}

// cycloneDXSchema compiles the schema of CycloneDX, from the files in the Go module
// that Go programs read SBOMs with.
func cycloneDXSchema(t *testing.T) *gojsonschema.Schema {
	t.Helper()
	module, err := output(t.Context(), ".", nil, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/CycloneDX/cyclonedx-go")
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) gojsonschema.JSONLoader {
		text, err := os.ReadFile(filepath.Join(strings.TrimSpace(module), "schema", name))
		if err != nil {
			t.Fatal(err)
		}
		return gojsonschema.NewBytesLoader(text)
	}
	loader := gojsonschema.NewSchemaLoader()
	if err := loader.AddSchemas(read("spdx.schema.json"), read("jsf-0.82.schemax.json")); err != nil {
		t.Fatal(err)
	}
	schema, err := loader.Compile(read("bom-" + specVersion + ".schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// checkSBOM validates an SBOM with the schema of its CycloneDX version.
func checkSBOM(t *testing.T, text []byte) {
	t.Helper()
	result, err := cycloneDXSchema(t).Validate(gojsonschema.NewBytesLoader(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range result.Errors() {
		t.Errorf("SBOM: %s", e)
	}
	var bom cyclonedx.BOM
	if err := json.Unmarshal(text, &bom); err != nil {
		t.Fatal(err)
	}
	if bom.Metadata.Timestamp != "2026-02-03T02:05:06Z" || bom.Metadata.Component.Version != "v1.2.3" || len(*bom.Components) < 40 {
		t.Errorf("SBOM: %+v with %d components", bom.Metadata, len(*bom.Components))
	}
}

func checkSums(t *testing.T, files map[string][]byte) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(string(files["SHA256SUMS"])), "\n")
	if len(lines) != len(files)-1 {
		t.Errorf("SHA256SUMS has %d lines", len(lines))
	}
	for _, line := range lines {
		sum, name, _ := strings.Cut(line, "  ")
		if want := fmt.Sprintf("%x", sha256.Sum256(files[name])); files[name] == nil || sum != want {
			t.Errorf("SHA256SUMS: %s, want %s", line, want)
		}
	}
}

// The schema that checks the SBOMs rejects what is none.
func TestCycloneDXSchema(t *testing.T) {
	schema := cycloneDXSchema(t)
	for text, want := range map[string]bool{
		`{"bomFormat": "CycloneDX", "specVersion": "1.6", "components": [{"type": "library", "name": "m", "licenses": [{"license": {"id": "MIT"}}]}]}`:  true,
		`{"bomFormat": "CycloneDX", "specVersion": "1.6", "components": [{"type": "library", "name": "m", "licenses": [{"license": {"id": "Mine"}}]}]}`: false,
		`{"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": "1"}`:                                                                         false,
	} {
		result, err := schema.Validate(gojsonschema.NewStringLoader(text))
		if err != nil || result.Valid() != want {
			t.Errorf("%s: %v, valid %v, want %v", text, err, result.Valid(), want)
		}
	}
}

func TestUnusableSBOM(t *testing.T) {
	s := &source{date: "2026-02-03T04:05:06Z"}
	for name, text := range map[string]string{
		"not JSON":      `{`,
		"no program":    `{"metadata": {}}`,
		"no components": `{"metadata": {"component": {}}}`,
		"no licence":    `{"metadata": {"component": {}}, "components": [{"name": "m"}]}`,
	} {
		if _, err := s.fix([]byte(text), [sha256.Size]byte{}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestLicenses(t *testing.T) {
	s := newSource(t, map[string]string{
		"ok/LICENSE": "x", "ok/license.go": "x", "ok/sub/NOTICE.txt": "x", "ok/other/LICENSE": "x", "ok/LICENSES/MIT": "x",
		"notice/NOTICE": "x", "none/README": "x",
	})
	m := func(name string, folders ...string) *module {
		all := map[string]bool{".": true}
		for _, f := range folders {
			all[f] = true
		}
		return &module{path: name, version: "v1", dir: filepath.Join(s.dir, name), folders: all}
	}
	got, err := m("ok", "sub").licenses()
	if want := []string{"LICENSE", filepath.Join("sub", "NOTICE.txt")}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	for _, name := range []string{"notice", "none"} {
		if _, err := m(name).licenses(); err == nil || !strings.Contains(err.Error(), "module "+name+" v1 has no licence file") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A release is not made if a linked module has no licence file.
func TestDistWithoutLicense(t *testing.T) {
	var more strings.Builder
	for path := range dataModules {
		fmt.Fprintf(&more, "\nrequire %s v0.0.0\n\nreplace %[1]s => ./bad\n", path)
	}
	s := newSource(t, map[string]string{
		"go.mod":                    "module m\n\ngo 1.26.0\n\ntoolchain " + runtime.Version() + "\n\nrequire example.com/bad v0.0.0\n\nreplace example.com/bad => ./bad\n" + more.String(),
		"cmd/envoy-harmony/main.go": "package main\n\nimport _ \"example.com/bad\"\n\nfunc main() {}\n",
		"bad/go.mod":                "module example.com/bad\n",
		"bad/bad.go":                "package bad\n",
	})
	err := run(t.Context(), []string{"dist", "-source", s.dir, "-commit", "a", "-date", s.date, "-sbom-tool", "none", "-out", t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "example.com/bad") {
		t.Errorf("error %v", err)
	}
}

func TestChart(t *testing.T) {
	s := newSource(t, map[string]string{
		"charts/envoy-harmony/Chart.yaml":          "name: envoy-harmony\nversion: 0.1.0\nappVersion: \"0.1.0\"\nkubeVersion: \">=1\"\n",
		"charts/envoy-harmony/.helmignore":         "# comment\n*.swp\n.git/\n",
		"charts/envoy-harmony/templates/x.yaml":    "x",
		"charts/envoy-harmony/templates/.x.swp":    "x",
		"charts/envoy-harmony/.git/config":         "x",
		"charts/envoy-harmony/values.yaml":         "x",
		"charts/envoy-harmony/templates/_a/b.yaml": "x",
	})
	archive, err := s.chart()
	if err != nil {
		t.Fatal(err)
	}
	_, contents := untar(t, archive)
	names := make([]string, 0, len(contents))
	for name := range contents {
		names = append(names, strings.TrimPrefix(name, "envoy-harmony/"))
	}
	slices.Sort(names)
	if want := []string{".helmignore", "Chart.yaml", "templates/_a/b.yaml", "templates/x.yaml", "values.yaml"}; !slices.Equal(names, want) {
		t.Errorf("files %q, want %q", names, want)
	}
	if got, want := string(contents["envoy-harmony/Chart.yaml"]), "name: envoy-harmony\nversion: 1.2.3\nappVersion: \"1.2.3\"\nkubeVersion: \">=1\"\n"; got != want {
		t.Errorf("Chart.yaml %q, want %q", got, want)
	}
	for name, files := range map[string]map[string]string{
		"no Chart.yaml": {"charts/envoy-harmony/values.yaml": "x"},
		"no version":    {"charts/envoy-harmony/Chart.yaml": "appVersion: 1\n"},
		"pattern":       {"charts/envoy-harmony/Chart.yaml": "version: 1\nappVersion: 1\n", "charts/envoy-harmony/.helmignore": "a/b"},
	} {
		if _, err := newSource(t, files).chart(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if archive, err := newSource(t, nil).chart(); archive != nil || err != nil {
		t.Errorf("without a chart: %d bytes, %v", len(archive), err)
	}
}

func TestOptions(t *testing.T) {
	for _, args := range [][]string{
		{},
		{"nope"},
		{"root"},
		{"root", "-out", "x", "y"},
		{"root", "-out", "x", "-nope"},
		{"root", "-out", "x", "-platforms", "amd64"},
		{"root", "-out", "x", "-platforms", "darwin/arm64"},
		{"root", "-out", "x", "-platforms", "linux/"},
		{"root", "-out", "x", "-version", "v1"},
		{"dist", "-out", "x"},
	} {
		if err := run(context.Background(), args); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}
