package main

import (
	"strings"
	"testing"
	"testing/fstest"
)

// TestCgroupLimit reads the files of machines and containers with both versions of
// cgroups.
func TestCgroupLimit(t *testing.T) {
	const (
		v1Mount = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
		v2Mount = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"
	)
	for name, c := range map[string]struct {
		groups, mounts string
		files          map[string]string
		want           int64
		version        string
	}{
		"a container with v2": {"0::/\n", v2Mount, map[string]string{"sys/fs/cgroup/memory.max": "536870912\n"}, 512 << 20, "v2"},
		"no limit in v2":      {"0::/\n", v2Mount, map[string]string{"sys/fs/cgroup/memory.max": "max\n"}, 0, ""},
		"the least of those around it, v2": {"0::/a/b\n", v2Mount, map[string]string{
			"sys/fs/cgroup/a/memory.max": "1073741824\n", "sys/fs/cgroup/a/b/memory.max": "2147483648\n",
		}, 1 << 30, "v2"},
		"v1": {"9:cpu:/x\n4:memory:/a\n0::/\n", v1Mount, map[string]string{
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "1073741824\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, 1 << 30, "v1"},
		"no limit in v1": {"4:memory:/\n", v1Mount, map[string]string{"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 0, ""},
		"a container with the host's path": {
			"4:memory:/docker/abc\n", "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
			map[string]string{"sys/fs/cgroup/memory/memory.limit_in_bytes": "1073741824\n"},
			1 << 30, "v1",
		},
		"a path that the mount does not show": {
			"0::/host/path\n", "30 23 0:26 /elsewhere /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
			map[string]string{"sys/fs/cgroup/memory.max": "1073741824\n"},
			1 << 30, "v2",
		},
		"nothing": {"", "", nil, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			system := fstest.MapFS{"proc/self/cgroup": {Data: []byte(c.groups)}, "proc/self/mountinfo": {Data: []byte(c.mounts)}}
			for path, text := range c.files {
				system[path] = &fstest.MapFile{Data: []byte(text)}
			}
			if got, version := cgroupLimit(system); got != c.want || version != c.version {
				t.Errorf("%d %s, want %d %s", got, version, c.want, c.version)
			}
		})
	}
}

// TestCheckTellsMemory shows that check says which limits follow from the memory, and that
// a key that is set wins.
func TestCheckTellsMemory(t *testing.T) {
	system := fstest.MapFS{
		"proc/self/cgroup":         {Data: []byte("0::/\n")},
		"proc/self/mountinfo":      {Data: []byte("30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")},
		"sys/fs/cgroup/memory.max": {Data: []byte("1073741824\n")},
	}
	check := func(flags ...string) string {
		var out, errs strings.Builder
		p := program{stdin: strings.NewReader(""), stdout: &out, stderr: &errs, system: system}
		if err := checkCommand(t.Context(), p, append([]string{"--engine", "vllm=http://127.0.0.1:1"}, flags...)); err != nil {
			t.Fatalf("%v\n%s", err, errs.String())
		}
		return out.String()
	}
	text := check("--set", "responses.store_bytes=7")
	for _, want := range []string{
		"# limits.max_inflight_bytes: set by the memory of the process (the memory limit of the cgroup (v2), 1073741824 bytes)",
		"max_inflight_bytes: 273804164", "# responses.store_bytes: set by a flag", "store_bytes: 7",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if text := check("--set", "store_url=sqlite:x"); !strings.Contains(text, "store_bytes: 268435456") {
		t.Errorf("a file is bounded by memory:\n%s", text)
	}
}
