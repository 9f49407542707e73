package clients

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every package-lock.json has all packages, also those of other platforms: without
// one, "npm ci" installs nothing. "npm install" leaves out those that its registry
// does not have.
func TestPackageLocks(t *testing.T) {
	var locks []string
	for _, pattern := range []string{"*/package-lock.json", "clients/node/package-lock.json", "clients/node/*/package-lock.json"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		locks = append(locks, found...)
	}

	if len(locks) < 4 {
		t.Fatalf("lock files: %q", locks)
	}

	for _, lock := range locks {
		text, err := os.ReadFile(lock)
		if err != nil {
			t.Fatal(err)
		}

		var tree lockFile
		if err := json.Unmarshal(text, &tree); err != nil {
			t.Fatal(err)
		}

		for folder, p := range tree.Packages {
			for _, needed := range []map[string]string{p.Dependencies, p.OptionalDependencies} {
				for name := range needed {
					if !tree.has(folder, name) {
						t.Errorf("%s: %s needs %s, which has no entry", lock, folder, name)
					}
				}
			}
		}
	}
}

// lockFile is the part of a package-lock.json that lists packages by folder.
type lockFile struct {
	Packages map[string]struct {
		Version string

		Dependencies         map[string]string
		OptionalDependencies map[string]string
	}
}

// has reports whether a package has an entry where a package in the folder finds it.
func (l lockFile) has(folder, name string) bool {
	for {
		if _, ok := l.Packages[strings.TrimPrefix(folder+"/node_modules/"+name, "/")]; ok {
			return true
		}
		if folder == "" {
			return false
		}
		folder = strings.TrimSuffix(folder[:max(0, strings.LastIndex(folder, "node_modules/"))], "/")
	}
}

// version returns the version of the client's package in the lock file of its set.
func (c matrixClient) version() (string, error) {
	kind, set, _ := strings.Cut(c.Set, "/")
	switch kind {
	case "go":
		if set == "" {
			return matched("../go.mod", goRequirement, c.Package)
		}
		return matched(filepath.Join("clients", c.Script, set, "go.mod"), goRequirement, c.Package)
	case "node":
		return npmVersion(filepath.Join("clients/node", set, "package-lock.json"), c.Package)
	case "agents":
		return npmVersion("clients/package-lock.json", c.Package)
	default:
		return matched(filepath.Join("clients/python", set+".txt"), pythonPin, c.Package)
	}
}

// How the version of a package, for %s, stands in a go.mod, whose path may end with a major
// version, and in a list of pip.
const (
	goRequirement = `(?m)^(?:require)?\s*%s(?:/v\d+)? v(\S+)`
	pythonPin     = `(?m)^%s==(\S+)$`
)

// matched returns what a pattern finds for a package in a lock file.
func matched(lock, pattern, name string) (string, error) {
	text, err := os.ReadFile(lock)
	if err != nil {
		return "", err
	}
	found := regexp.MustCompile(fmt.Sprintf(pattern, regexp.QuoteMeta(name))).FindSubmatch(text)
	if found == nil {
		return "", fmt.Errorf("%s has no %q", lock, name)
	}
	return string(found[1]), nil
}

// npmVersion returns the version of a package in a package-lock.json.
func npmVersion(lock, name string) (string, error) {
	text, err := os.ReadFile(lock)
	if err != nil {
		return "", err
	}

	var tree lockFile
	if err := json.Unmarshal(text, &tree); err != nil {
		return "", fmt.Errorf("read %s: %w", lock, err)
	}
	entry, ok := tree.Packages["node_modules/"+name]
	if !ok {
		return "", fmt.Errorf("%s has no %q", lock, name)
	}
	return entry.Version, nil
}
