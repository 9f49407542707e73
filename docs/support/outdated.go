package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// client runs the client of a registry and returns what it prints. The settings of the machine say which server that
// asks, so that a mirror serves as well.
type client func(ctx context.Context, args ...string) (string, error)

// outdated is "support outdated".
func outdated(ctx context.Context, root string, run client, stdout io.Writer) error {
	all, err := components(root)
	if err != nil {
		return err
	}
	compareWithRegistries(ctx, all, run, stdout)
	return nil
}

// answer is what a registry has said of a package.
type answer struct {
	versions []string
	err      error
}

// compareWithRegistries prints the components of which a registry has a newer version, and what it could not find out.
func compareWithRegistries(ctx context.Context, all []Component, run client, w io.Writer) {
	const columns = "%-30s %-14s %-14s %-46s %s\n"
	fmt.Fprintf(w, columns, "newer", "here", "there", "package", "from")

	answers := map[string]answer{}
	var refused, elsewhere []string
	newer := 0
	for _, c := range all {
		switch {
		case c.Package == "" && len(c.Checks) > 0 && c.Kind != engineKind:
			elsewhere = append(elsewhere, strings.TrimSpace(c.Name+" "+c.Version))
			continue
		case c.Package == "" || c.Line == c.Version:
			continue
		}

		of, asked := answers[c.Package]
		if !asked {
			of.versions, of.err = ask(ctx, run, c.Package)
			answers[c.Package] = of
			if of.err != nil {
				refused = append(refused, fmt.Sprintf("%s: %v", c.Package, of.err))
			}
		}
		if there := newest(of.versions, &c); there != "" {
			newer++
			fmt.Fprintf(w, columns, c.Name, c.Version, there, c.Package, c.Source)
		}
	}

	fmt.Fprintf(w, "\n%d of the versions here have newer ones, of %d packages.\n", newer, len(answers))
	writeList(w, "The registries did not say which versions there are of these:", refused)
	writeList(w, "No registry was asked for what the machine has, or another program:", elsewhere)
}

func writeList(w io.Writer, heading string, lines []string) {
	if len(lines) > 0 {
		fmt.Fprintf(w, "\n%s\n  %s\n", heading, strings.Join(lines, "\n  "))
	}
}

// stable is the form of a version that is no preview and no commit.
var stable = regexp.MustCompile(`^\d+(\.\d+)*(\.post\d+|\+incompatible)?$`)

// newest returns the newest of the versions that could take the place of a component's, "" if that is the newest.
func newest(versions []string, c *Component) string {
	best := c.Version
	for _, version := range versions {
		// Who has a preview or a commit, because there was nothing else, waits for all of them.
		allowed := stable.MatchString(version) || !stable.MatchString(c.Version)
		inLine := c.Line == "" || strings.HasPrefix(version, c.Line+".")
		if allowed && inLine && compareVersions(version, best) > 0 {
			best = version
		}
	}

	if best == c.Version {
		return ""
	}
	return best
}

// ask returns the versions that a registry has of a package.
func ask(ctx context.Context, run client, inRegistry string) ([]string, error) {
	registry, name, _ := strings.Cut(inRegistry, ":")
	switch registry {
	case goRegistry:
		return askGo(ctx, run, name)
	case pypiRegistry:
		return askPyPI(ctx, run, name)
	case npmRegistry:
		// The version that "npm install" takes: later ones with a tag of their own are previews.
		out, err := run(ctx, "npm", "view", name, "version")
		return strings.Fields(out), err
	default:
		return nil, fmt.Errorf("the registry %q is new here", registry)
	}
}

// askGo asks for the versions of a module. A later major version is another module, and is not asked for.
func askGo(ctx context.Context, run client, module string) ([]string, error) {
	out, err := run(ctx, "go", "list", "-m", "-versions", "-f", `{{join .Versions "\n"}}`, module)
	if strings.TrimSpace(out) == "" {
		// Without tags that Go knows there is no list, but the newest commit. A proxy may also have this alone.
		out, err = run(ctx, "go", "list", "-m", "-f", "{{.Version}}", module+"@latest")
	}

	versions := strings.Fields(out)
	for i := range versions {
		versions[i] = strings.TrimPrefix(versions[i], "v")
	}
	return versions, err
}

// pipList is the list of versions that pip prints.
var pipList = regexp.MustCompile(`(?m)^Available versions: (.*)$`)

// askPyPI asks for the versions of a Python package that this machine could install.
func askPyPI(ctx context.Context, run client, name string) ([]string, error) {
	python := cmp.Or(os.Getenv("PYTHON"), "python3")
	out, err := run(ctx, python, "-m", "pip", "index", "versions", "--disable-pip-version-check", name)
	if err != nil {
		return nil, err
	}
	m := pipList.FindStringSubmatch(out)
	if m == nil {
		return nil, errors.New("pip prints no list of versions")
	}
	return strings.Split(m[1], ", "), nil
}

// maxAnswer is how long a registry may take for one answer.
const maxAnswer = time.Minute

// runClient is the [client] that runs programs of the machine.
func runClient(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, maxAnswer)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	// A go.mod in the folder, or above it, would answer for its own modules.
	cmd.Dir = string(filepath.Separator)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr

	out, err := cmd.Output()
	if err == nil {
		return string(out), nil
	}
	for line := range strings.Lines(stderr.String()) {
		line = strings.TrimSpace(line)
		// pip warns that its command is new before it says what is wrong.
		if line != "" && !strings.HasPrefix(line, "WARNING:") {
			return "", errors.New(line)
		}
	}
	return "", err
}
