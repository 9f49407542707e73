package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"math"
	"path"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/sirupsen/logrus"
)

// memory is what the process may take. The collector holds the heap to it, and the
// defaults of the limits are shares of it.
type memory struct {
	// limit is the soft limit of the runtime, in bytes; 0: not known.
	limit int64
	// source says where it is from, for people; "" if it is not known.
	source string
	// cgroup is the hard limit that it is a part of; 0: it is not from a cgroup.
	cgroup int64
}

// softPart is the part of a cgroup's memory that the runtime is held to. The rest is for
// what the runtime does not count (the program's own pages, buffers of sockets), and for
// what is allocated while a collection runs.
const softNumerator, softDenominator = 7, 10

// memoryOf finds out what the process may take: what GOMEMLIMIT says, else a part of what
// its cgroup allows.
func memoryOf(p program) memory {
	if text := p.getenv("GOMEMLIMIT"); text != "" && text != "off" {
		if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 { // the runtime has read it
			return memory{limit: limit, source: "GOMEMLIMIT"}
		}
	}
	if p.system == nil {
		return memory{}
	}
	limit, version := cgroupLimit(p.system)
	if limit == 0 {
		return memory{}
	}
	return memory{
		// Divided first: a limit can be so large that the product would not fit.
		limit: limit / softDenominator * softNumerator, cgroup: limit,
		source: fmt.Sprintf("the memory limit of the cgroup (%s), %d bytes", version, limit),
	}
}

// half is the memory of a process that shares its cgroup with another one, an Envoy.
func (m memory) half() memory {
	// GOMEMLIMIT is of this process alone.
	if m.cgroup > 0 {
		m.limit /= 2
	}
	return m
}

// origin is where a default is from, as check says it.
func (m memory) origin() string { return "the memory of the process (" + m.source + ")" }

// apply holds the runtime to the limit, unless the environment has done so, and logs what
// the limits are made of.
func (m memory) apply(log *logrus.Logger, inflight int64) {
	if m.cgroup > 0 {
		debug.SetMemoryLimit(m.limit)
	}
	line := log.WithField("max_inflight_bytes", inflight)
	if m.limit == 0 {
		line.Info("neither GOMEMLIMIT nor a cgroup limits the memory of this process: limits have their fixed defaults")
		return
	}
	line.WithFields(logrus.Fields{"memory_limit": m.limit, "from": m.source}).Info(
		"defaults of limits follow from the memory of the process")
}

// cgroupLimit returns the least memory limit of the process's cgroup and of those around
// it, with the version of cgroups that has it. 0: there is none.
func cgroupLimit(system fs.FS) (limit int64, version string) {
	groups, err := fs.ReadFile(system, "proc/self/cgroup")
	if err != nil {
		return 0, "" // not Linux
	}
	mounts, err := fs.ReadFile(system, "proc/self/mountinfo")
	if err != nil {
		return 0, ""
	}

	// Hosts can have both versions mounted; the memory controller is in one of them.
	for lines := bufio.NewScanner(bytes.NewReader(groups)); lines.Scan(); {
		fields := strings.SplitN(lines.Text(), ":", 3) // hierarchy:controllers:path
		if len(fields) != 3 {
			continue
		}

		file, name := "memory.max", "v2"
		if fields[1] != "" {
			file, name = "memory.limit_in_bytes", "v1"
		}

		// The empty name of v2 stands for all controllers.
		if fields[1] != "" && !hasOption(fields[1], "memory") {
			continue
		}

		if found := leastLimit(system, mounts, fields[2], file); found > 0 && (limit == 0 || found < limit) {
			limit, version = found, name
		}
	}
	return limit, version
}

// leastLimit returns the least limit in the files of a name, from a cgroup's folder up to
// where its hierarchy is mounted. 0: there is none.
func leastLimit(system fs.FS, mounts []byte, group, file string) (least int64) {
	for lines := bufio.NewScanner(bytes.NewReader(mounts)); lines.Scan(); {
		root, point, ok := cgroupMount(lines.Text(), file == "memory.max")
		if !ok {
			continue
		}

		// In a container the path may be that of the host, which the mount does not show.
		below, inside := strings.CutPrefix(group, strings.TrimSuffix(root, "/"))
		if !inside {
			below = ""
		}
		point = strings.TrimPrefix(point, "/")
		// The groups around it, such as that of a pod, can have less.
		for folder := path.Join(point, below); ; folder = path.Dir(folder) {
			if n := limitIn(system, path.Join(folder, file)); n > 0 && (least == 0 || n < least) {
				least = n
			}
			if len(folder) <= len(point) {
				break
			}
		}
	}
	return least
}

// cgroupMount reads a line of mountinfo that is about the hierarchy of memory.
func cgroupMount(line string, v2 bool) (root, point string, ok bool) {
	before, after, _ := strings.Cut(line, " - ")
	fields, kind := strings.Fields(before), strings.Fields(after)
	if len(fields) < 5 || len(kind) < 3 {
		return "", "", false
	}
	if v2 {
		return fields[3], fields[4], kind[0] == "cgroup2"
	}
	return fields[3], fields[4], kind[0] == "cgroup" && hasOption(kind[2], "memory")
}

func hasOption(list, name string) bool {
	for option := range strings.SplitSeq(list, ",") {
		if option == name {
			return true
		}
	}
	return false
}

// noLimit is the least value by which v1 says that there is no limit: all that fits into
// 63 bits, rounded to pages.
const noLimit = math.MaxInt64 &^ (1<<20 - 1)

// limitIn reads a limit; 0: there is none.
func limitIn(system fs.FS, name string) int64 {
	text, err := fs.ReadFile(system, name)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64) // "max" is no number
	if err != nil || n <= 0 || n >= noLimit {
		return 0
	}
	return n
}
