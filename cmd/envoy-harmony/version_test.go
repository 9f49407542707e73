package main

import (
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

func TestBuild(t *testing.T) {
	t.Parallel()
	recorded := func(version string, settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: version}, Settings: settings}
	}
	commit := debug.BuildSetting{Key: "vcs.revision", Value: "abc"}
	date := debug.BuildSetting{Key: "vcs.time", Value: "2026-01-02T03:04:05Z"}
	modified := debug.BuildSetting{Key: "vcs.modified", Value: "true"}
	for _, tt := range []struct {
		name         string
		linked, want build
		recorded     *debug.BuildInfo
	}{
		{"release", build{"1.2.3", "def", "2026-02-03T04:05:06Z", "go1"}, build{"1.2.3", "def", "2026-02-03T04:05:06Z", "go1"}, recorded("v9.9.9", commit, date, modified)},
		{"go install", build{goVersion: "go1"}, build{"1.2.3", "unknown", "unknown", "go1"}, recorded("v1.2.3")},
		{"go build", build{goVersion: "go1"}, build{"unknown", "abc", "2026-01-02T03:04:05Z", "go1"}, recorded("(devel)", commit, date)},
		{"changed files", build{goVersion: "go1"}, build{"unknown", "abc-dirty", "2026-01-02T03:04:05Z", "go1"}, recorded("", commit, date, modified)},
		{"nothing", build{goVersion: "go1"}, build{"unknown", "unknown", "unknown", "go1"}, recorded("(devel)")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := newBuild(tt.linked, tt.recorded); got != tt.want {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestVersionCommand(t *testing.T) {
	for _, arg := range []string{"version", "--version", "-version"} {
		exit, stdout, stderr := execute(t, nil, arg)
		for _, want := range []string{"envoy-harmony ", "\ncommit:   ", "\ndate:     ", "\ngo:       " + runtime.Version() + "\n", "\nplatform: " + runtime.GOOS + "/" + runtime.GOARCH + "\n"} {
			if exit != 0 || stderr != "" || !strings.Contains(stdout, want) {
				t.Errorf("%s: exit status %d, standard output %q, want %q in it; standard error %q", arg, exit, stdout, want, stderr)
			}
		}
	}
}

// The build is in the first log line and in the metrics, and docs/operations.md has
// the metric.
func TestBuildIsReported(t *testing.T) {
	r := start(t, "serve", "--engine", "vllm", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	if got := r.field(t, "serving", "version"); got != thisBuild().version {
		t.Errorf("version %q in the log, want %q", got, thisBuild().version)
	}
	_, text := get(t, http.MethodGet, "http://"+r.field(t, "serving", "admin")+"/metrics", "")
	if want := `harmony_build_info{commit="` + thisBuild().commit + `",goversion="` + runtime.Version() + `",version="` + thisBuild().version + `"} 1`; !strings.Contains(text, want) {
		t.Errorf("the metrics do not have %s", want)
	}
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "| `harmony_build_info` | `version`, `commit`, `goversion` |") {
		t.Error("docs/operations.md does not have harmony_build_info with its labels")
	}
	r.cancel()
	if exit := r.end(t); exit != 0 {
		t.Errorf("exit status %d", exit)
	}
}
