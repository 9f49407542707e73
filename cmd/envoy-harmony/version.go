package main

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
)

// Set by the linker (-X) in release builds, see docs/release.md.
var (
	linkedVersion string // such as 1.2.3
	linkedCommit  string
	linkedDate    string // of the commit, RFC 3339
)

// build is what the program was built from. What is not known is "unknown".
type build struct {
	version, commit, date, goVersion string
}

// thisBuild returns what the linker was given, or else what the go command has
// recorded in the binary.
func thisBuild() build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return newBuild(build{linkedVersion, linkedCommit, linkedDate, runtime.Version()}, info)
}

// newBuild completes the values of the linker with those of the go command.
func newBuild(linked build, info *debug.BuildInfo) build {
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	module := info.Main.Version
	// What the go command says of a work tree is no version.
	if module == "(devel)" {
		module = ""
	}
	commit := settings["vcs.revision"]
	// Nobody could build the same from that commit.
	if commit != "" && settings["vcs.modified"] == "true" {
		commit += "-dirty"
	}

	const unknown = "unknown"
	return build{
		version:   cmp.Or(linked.version, strings.TrimPrefix(module, "v"), unknown),
		commit:    cmp.Or(linked.commit, commit, unknown),
		date:      cmp.Or(linked.date, settings["vcs.time"], unknown),
		goVersion: linked.goVersion,
	}
}

func versionCommand(_ context.Context, p program, _ []string) error {
	b := thisBuild()
	_, err := fmt.Fprintf(p.stdout, "envoy-harmony %s\ncommit:   %s\ndate:     %s\ngo:       %s\nplatform: %s/%s\n",
		b.version, b.commit, b.date, b.goVersion, runtime.GOOS, runtime.GOARCH)
	return err
}

// metric is harmony_build_info, whose value is 1.
func (b build) metric() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "harmony_build_info", Help: "The build of the program; the value is 1.",
		ConstLabels: prometheus.Labels{"version": b.version, "commit": b.commit, "goversion": b.goVersion},
	}, func() float64 { return 1 })
}

// fields are those of the program's first log line.
func (b build) fields() logrus.Fields {
	return logrus.Fields{"version": b.version, "commit": b.commit, "go": b.goVersion}
}
