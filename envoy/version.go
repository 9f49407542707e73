package envoy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"time"
)

// Version is the version of an Envoy.
type Version struct{ Major, Minor, Patch int }

func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }

// before reports whether v is older than another version.
func (v Version) before(other Version) bool {
	return cmp.Or(cmp.Compare(v.Major, other.Major), cmp.Compare(v.Minor, other.Minor),
		cmp.Compare(v.Patch, other.Patch)) < 0
}

// Check compares the version with what a bootstrap of o needs. An Envoy that cannot have
// it is an error; unsafe says why another one should not be used, "" if there is no reason.
// docs/operations.md has the same in a table.
func (v Version) Check(o Options) (unsafe string, err error) {
	const get = `get a newer one, such as with "make envoy", and name it in ENVOY_BIN`
	switch {
	case v.before(Version{1, 38, 0}):
		return "", fmt.Errorf("this Envoy is %s, which cannot keep content-length in full-duplex mode; the filter "+
			"needs 1.38.4, 1.39.1, 1.40 or newer: %s", v, get)
	case o.ModeOverride && v.before(Version{1, 40, 0}):
		return "", fmt.Errorf("this Envoy is %s, and the mode override needs 1.40: leave it out, or %s", v, get)

	// A security fix of 2026-08-26, which each minor version got in another patch.
	case v.before(Version{1, 38, 4}), v.Minor == 39 && v.before(Version{1, 39, 1}):
		return fmt.Sprintf("Envoy %s can crash under load, and has uses of freed memory in ext_proc that 1.38.4, "+
			"1.39.1 and 1.40 fix (see docs/operations.md#envoy-versions): %s", v, get), nil
	}
	return "", nil
}

// versionTimeout bounds how long a program has to say its version: one that is no Envoy
// might serve in place of an answer.
const versionTimeout = 10 * time.Second

// versionLine is the line of "envoy --version": a hash, the version, the state of the
// source, the kind of build and the TLS library.
var versionLine = regexp.MustCompile(`version: \w+/(\d+)\.(\d+)\.(\d+)`)

// ReadVersion asks an Envoy binary for its version.
func ReadVersion(ctx context.Context, binary string) (Version, error) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, binary, "--version").Output()
	if err != nil {
		return Version{}, fmt.Errorf("%s --version: %w", binary, err)
	}

	parts := versionLine.FindSubmatch(out)
	if parts == nil {
		return Version{}, fmt.Errorf("%s --version: %w", binary, errNoVersion)
	}
	var numbers [3]int
	for i := range numbers {
		if numbers[i], err = strconv.Atoi(string(parts[i+1])); err != nil {
			return Version{}, fmt.Errorf("%s --version: %w", binary, err)
		}
	}
	return Version{numbers[0], numbers[1], numbers[2]}, nil
}

var errNoVersion = errors.New("the output has no version of an Envoy")
