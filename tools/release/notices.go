package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// module is a Go module whose code is in the program.
type module struct {
	path, version, dir string
	// folders are those of its packages that are linked, and the folders above them.
	folders map[string]bool
}

// dataModules are modules that no package imports, but whose data is in the program.
// The value says which.
var dataModules = map[string]string{"github.com/pkoukk/tiktoken-go-loader": "the o200k_base vocabulary"}

// notices returns the licences of all that is linked into the program on any of the
// platforms of a release.
func (s *source) notices(ctx context.Context) ([]byte, error) {
	modules, err := s.linked(ctx)
	if err != nil {
		return nil, err
	}

	var b bytes.Buffer
	fmt.Fprintf(&b, "envoy-harmony %s contains the following software.\n", s.version)
	for _, m := range modules {
		files, err := m.licenses()
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "\n%s\n%s %s\n", strings.Repeat("=", 100), m.path, m.version)
		if data := dataModules[m.path]; data != "" {
			fmt.Fprintf(&b, "Contained is its data only: %s.\n", data)
		}

		for _, file := range files {
			text, err := os.ReadFile(filepath.Join(m.dir, file))
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(&b, "\n%s %s\n\n%s\n", strings.Repeat("-", 20), filepath.ToSlash(file),
				bytes.TrimSpace(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))))
		}
	}

	return b.Bytes(), nil
}

// goPackage is what go list reports about a package.
type goPackage struct {
	Dir      string
	Standard bool
	Module   *struct {
		Path, Version, Dir string
		Main               bool
		Replace            *struct{ Path string }
	}
}

// linked returns the modules that are linked into the program, sorted by path. The
// standard library is the module std.
func (s *source) linked(ctx context.Context) ([]*module, error) {
	modules := map[string]*module{}
	// Some packages are linked on one system only.
	for _, p := range releasePlatforms {
		if err := s.addLinked(ctx, p, modules); err != nil {
			return nil, err
		}
	}

	// The toolchain that go.mod names may be another one than that of this program.
	goroot, err := output(ctx, s.dir, s.environment(releasePlatforms[0]), "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	modules["std"] = &module{
		path: "std", version: s.toolchain, dir: strings.TrimSpace(goroot),
		folders: map[string]bool{".": true},
	}

	for path := range dataModules {
		list, err := output(ctx, s.dir, s.environment(releasePlatforms[0]), "go", "list", "-m", "-f",
			"{{.Version}} {{.Dir}}", path)
		if err != nil {
			return nil, err
		}
		version, dir, _ := strings.Cut(strings.TrimSpace(list), " ")
		modules[path] = &module{path: path, version: version, dir: dir, folders: map[string]bool{".": true}}
	}

	all := make([]*module, 0, len(modules))
	for _, m := range modules {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *module) int { return cmp.Compare(a.path, b.path) })
	return all, nil
}

// addLinked adds the modules that are linked on one platform.
func (s *source) addLinked(ctx context.Context, p platform, modules map[string]*module) error {
	list, err := output(ctx, s.dir, s.environment(p), "go", "list", "-deps", "-json=Dir,Standard,Module",
		"./cmd/envoy-harmony")
	if err != nil {
		return err
	}

	for d := json.NewDecoder(strings.NewReader(list)); ; {
		var pkg goPackage
		err := d.Decode(&pkg)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("output of go list: %w", err)
		}

		// The standard library has one licence, which is added as std; the program's own is elsewhere.
		if pkg.Standard || pkg.Module.Main {
			continue
		}

		m := modules[pkg.Module.Path]
		if m == nil {
			m = &module{pkg.Module.Path, pkg.Module.Version, pkg.Module.Dir, map[string]bool{}}
			modules[m.path] = m
		}

		// A licence can stand in any folder above the code that it is for.
		folder, err := filepath.Rel(m.dir, pkg.Dir)
		if err != nil {
			return err
		}
		for ; folder != "."; folder = filepath.Dir(folder) {
			m.folders[folder] = true
		}
		m.folders["."] = true
	}
}

var (
	// noticeFile matches the names of files that have to go with the code.
	noticeFile = regexp.MustCompile(`(?i)^(un)?(licen[cs]e|copying|copyright|notice|patents)([-_.].*)?$`)
	// licenseFile matches those of them that grant a licence.
	licenseFile = regexp.MustCompile(`(?i)^(un)?(licen[cs]e|copying)`)
)

// licenses returns the module's licence files and notices, sorted. It fails if no
// file grants a licence.
func (m *module) licenses() ([]string, error) {
	var files []string
	granted := false

	for folder := range m.folders {
		entries, err := os.ReadDir(filepath.Join(m.dir, folder))
		if err != nil {
			return nil, fmt.Errorf("module %s: %w", m.path, err)
		}
		for _, e := range entries {
			// license.go is code that is about licences.
			if e.IsDir() || !noticeFile.MatchString(e.Name()) || strings.HasSuffix(e.Name(), ".go") {
				continue
			}
			files = append(files, filepath.Join(folder, e.Name()))
			granted = granted || licenseFile.MatchString(e.Name())
		}
	}

	if !granted {
		return nil, fmt.Errorf(
			"module %s %s has no licence file: look at its licence before you use it", m.path, m.version)
	}

	// The folders are a map: the archive must be the same each time.
	slices.Sort(files)
	return files, nil
}
