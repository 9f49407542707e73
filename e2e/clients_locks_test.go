package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
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
	Packages map[string]struct{ Dependencies, OptionalDependencies map[string]string }
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
