package stack

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/envoy"
)

// NeedEnvoy skips a test if Envoy's version is older than 1.minor.
func NeedEnvoy(t testing.TB, minor int) {
	t.Helper()
	binary, err := envoy.Find(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(binary, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}

	// envoy  version: COMMIT/1.40.0/Clean/RELEASE/BoringSSL
	found := regexp.MustCompile(`/1\.(\d+)\.\d+`).FindSubmatch(out)
	if found == nil {
		t.Fatalf("no version in %q", out)
	}
	if have, _ := strconv.Atoi(string(found[1])); have < minor {
		t.Skipf("Envoy 1.%d is needed, this is 1.%d", minor, have)
	}
}

// Echo answers with the request's body.
func Echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	_, _ = w.Write(body)
}
