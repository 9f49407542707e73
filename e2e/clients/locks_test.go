package clients

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

// A version of a client in the matrix is the one of its lock file.
func TestClientVersions(t *testing.T) {
	manifests, err := filepath.Glob("clients/*.json")
	if err != nil {
		t.Fatal(err)
	}
	versions := 0
	for _, manifest := range manifests {
		text, err := os.ReadFile(manifest)
		if err != nil {
			t.Fatal(err)
		}
		var client struct {
			Script   string
			Versions map[string]struct{ Set string }
		}
		if err := json.Unmarshal(text, &client); err != nil {
			t.Fatalf("%s: %v", manifest, err)
		}

		for version, v := range client.Versions {
			versions++
			lock, pin := lockOf(client.Script, v.Set, version)
			text, err := os.ReadFile(lock)
			if err != nil {
				t.Errorf("%s: version %s: %v", manifest, version, err)
			} else if !strings.Contains(string(text), pin) {
				t.Errorf("%s: version %s: %s has no %q", manifest, version, lock, pin)
			}
		}
	}
	if versions == 0 {
		t.Error("no client has versions")
	}
}

// lockOf returns the lock file of a set, and how a version stands there.
func lockOf(script, set, version string) (lock, pin string) {
	switch kind, name, _ := strings.Cut(set, "/"); kind {
	case "go":
		return filepath.Join("clients", script, name, "go.mod"), " v" + version + "\n"
	case "node":
		return filepath.Join("clients/node", name, "package-lock.json"), `"version": "` + version + `"`
	default:
		return filepath.Join("clients/python", name+".txt"), "==" + version + "\n"
	}
}
