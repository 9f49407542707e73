//go:build attack

package attack

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// cgroup is a control group with a memory limit, in which a filter runs.
type cgroup struct {
	folder string
	limit  int64
	v1     bool
}

// newCgroup makes a group until the test ends; nil where this machine does not let us.
func newCgroup(t testing.TB, limit int64) *cgroup {
	t.Helper()
	for _, g := range []cgroup{{folder: "/sys/fs/cgroup/memory", v1: true}, {folder: "/sys/fs/cgroup"}} {
		g.folder, g.limit = filepath.Join(g.folder, fmt.Sprintf("harmony-attack-%d-%d", os.Getpid(), limit)), limit
		if os.Mkdir(g.folder, 0o750) != nil {
			continue
		}
		t.Cleanup(func() { _ = os.Remove(g.folder) }) // its processes have ended before
		if os.WriteFile(filepath.Join(g.folder, g.file("memory.limit_in_bytes", "memory.max")), []byte(strconv.FormatInt(limit, 10)), 0o600) == nil {
			return &g
		}
	}
	return nil
}

func (g *cgroup) file(v1, v2 string) string {
	if g.v1 {
		return v1
	}
	return v2
}

// inside makes a command start in the group, so that it finds the limit.
func (g *cgroup) inside(cmd *exec.Cmd) {
	cmd.Args = append([]string{"sh", "-c", `echo $$ > "$0" && exec "$@"`, filepath.Join(g.folder, "cgroup.procs"), cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
}

// reset forgets the peak (v1 only; v2 has the peak of all).
func (g *cgroup) reset() {
	if g.v1 {
		_ = os.WriteFile(filepath.Join(g.folder, "memory.max_usage_in_bytes"), []byte("0"), 0o600)
	}
}

// peak is the most memory that the group has used.
func (g *cgroup) peak() int64 {
	text, _ := os.ReadFile(filepath.Join(g.folder, g.file("memory.max_usage_in_bytes", "memory.peak")))
	n, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n
}
