//go:build engines

package engines

import (
	"context"
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/e2e/engines/probes"
)

var updateProbes = flag.Bool("update-probes", false, "write the answers of engines that have a file already")

// TestRealProbes sends the probes to each engine that is served, and compares the answers with
// those of its version. A version that has none gets a file.
func TestRealProbes(t *testing.T) {
	const dir = "engines/probes/testdata"
	served := 0
	for _, e := range probes.Engines {
		url := os.Getenv(e.Variable)
		if url == "" {
			continue
		}
		served++
		t.Run(e.Name, func(t *testing.T) {
			version := versionOf(t, e, url)
			answers, err := probes.Run(t.Context(), e, url)
			if err != nil {
				t.Fatal(err)
			}
			last, err := probes.Newest(dir, e)
			if err != nil {
				t.Fatal(err)
			}

			now := probes.Renew(e, version, answers, last)
			diff := ""
			if last != nil {
				diff = gocmp.Diff(last.String(), now.String())
			}
			switch {
			case last == nil || last.Version != version:
				t.Logf("the answers of version %s are new: commit the file. From the last version:\n%s", version, diff)
			case diff == "":
				return
			case !*updateProbes:
				t.Fatalf("version %s answers otherwise than before (-update-probes writes it):\n%s", version, diff)
			}
			if err := now.Save(dir); err != nil {
				t.Fatal(err)
			}
		})
	}
	if served == 0 {
		t.Fatal("no engine is served: run make test-engines")
	}
}

// versionOf returns the version that an engine reports, or that is installed.
func versionOf(t *testing.T, e probes.Engine, url string) string {
	t.Helper()
	switch e.Kind {
	case "sglang":
		return jsonOf(t, url+"/server_info").Version
	case "vllm", "vllm-generate":
		return jsonOf(t, url+"/version").Version
	}

	// The others say none: gRPC servers, and a llama.cpp that is built into a package.
	name := map[string]string{
		"sglang-grpc": `sglang==`,
		"vllm-grpc":   `vllm==`,
		"llamacpp":    `xllamacpp==\d+\.\d+\.`,
	}[e.Kind]
	pin := regexp.MustCompile(`(?m)^` + name + `([0-9.]+)`)
	file := "engines/requirements/" + strings.TrimSuffix(e.Kind, "-grpc") + ".txt"
	pins, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	m := pin.FindSubmatch(pins)
	if m == nil {
		t.Fatalf("%s has no version of %s", file, name)
	}
	return string(m[1])
}

type reported struct {
	Version string `json:"version"`
}

func jsonOf(t *testing.T, url string) (v reported) {
	t.Helper()
	req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || json.Unmarshal(b, &v) != nil {
		t.Fatalf("%s: %s (%v)", url, b, err)
	}
	return v
}
