package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/envoy"
)

// buildProgram builds envoy-harmony once, and returns the path of the binary.
var buildProgram = sync.OnceValues(func() (string, error) {
	path := filepath.Join(filepath.Dir(engineSim), "envoy-harmony")
	out, err := exec.Command("go", buildArgs(path, "../cmd/envoy-harmony")...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("build envoy-harmony: %w\n%s", err, out)
	}
	return path, err
})

// buildArgs are arguments of go that build a program of the tests.
func buildArgs(path, pkg string) []string {
	return append(append([]string{"build"}, raceFlags...), "-o", path, pkg)
}

// program is "envoy-harmony serve" as a process of its own, for tests of what is
// not in package filter: TLS, the ports.
type program struct {
	config  []string // flags of the configuration
	address string   // of the filter, host:port
	admin   string   // URL of the filter's admin port
	log     *logFile
	process *os.Process
	ended   chan struct{} // closed when the process has ended
	exit    int           // its status, once it has ended; -1: a signal has ended it
}

// serveProgram starts the program with a configuration until the test ends.
func serveProgram(t testing.TB, log *logFile, config ...string) *program {
	t.Helper()
	return serveProgramAt(t, "127.0.0.1:0", log, config...)
}

// serveProgramAt is serveProgram at an address, host:port.
func serveProgramAt(t testing.TB, listen string, log *logFile, config ...string) *program {
	t.Helper()
	p := launchProgram(t, log, "serving", append([]string{"serve", "--listen", listen, "--admin", "127.0.0.1:0", "--log-level", "debug"}, config...)...)
	p.config = config
	return p
}

// launchProgram runs a command of the program until the test ends. It has begun when it
// logs a line with the message begun.
func launchProgram(t testing.TB, log *logFile, begun string, args ...string) *program {
	t.Helper()
	binary, err := buildProgram()
	if err != nil {
		t.Fatal(err)
	}
	return launch(t, log, begun, exec.CommandContext(t.Context(), binary, args...))
}

// launch is launchProgram for a command that starts the program.
func launch(t testing.TB, log *logFile, begun string, cmd *exec.Cmd) *program {
	t.Helper()
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	type line struct{ Msg, Listen, Admin string }
	serving := make(chan line, 1)
	p := &program{log: log, process: cmd.Process, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		defer close(serving)
		out := log.named("filter")
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			fmt.Fprintln(out, lines.Text())
			var l line
			if json.Unmarshal(lines.Bytes(), &l) == nil && l.Msg == begun {
				serving <- l
			}
		}
		_ = cmd.Wait() // killed at the end of the test, if not before
		p.exit = cmd.ProcessState.ExitCode()
	}()
	t.Cleanup(func() { <-p.ended })
	l := receive(t, serving, "the program's start")
	if l.Listen == "" {
		t.Fatalf("%s does not start", cmd)
	}
	p.address, p.admin = l.Listen, "http://"+l.Admin
	return p
}

// bootstrap returns what envoy-config prints for the program, with more flags.
func (p *program) bootstrap(t testing.TB, flags ...string) []byte {
	t.Helper()
	binary, err := buildProgram()
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{"envoy-config", "--listen", "127.0.0.1:0", "--envoy-admin", "127.0.0.1:0", "--filter", p.address}, p.config...)
	out, err := exec.Command(binary, append(args, flags...)...).Output()
	if err != nil {
		t.Fatalf("envoy-config: %v: %s", err, err.(*exec.ExitError).Stderr) //nolint:errorlint,forcetypeassert // Output returns no other
	}
	return out
}

// envoy runs an Envoy for the program until the test ends.
func (p *program) envoy(t testing.TB, bootstrap []byte) *dataplane {
	t.Helper()
	binary, err := envoy.Find(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	d := &dataplane{upstream: &upstream{}, log: p.log}
	d.url, d.admin = launchEnvoy(t, binary, bootstrap, p.log)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	d.client = &http.Client{Transport: transport}
	return d
}

// metric returns a sample of the filter, such as name{label="value"}.
func (p *program) metric(t *testing.T, sample string) float64 {
	t.Helper()
	return sampleOf(t, p.admin+"/metrics", sample)
}

// sampleOf returns a sample in Prometheus' text format; 0 if there is none.
func sampleOf(t *testing.T, url, sample string) float64 {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(sample) + ` (\S+)$`).FindSubmatch(text)
	if found == nil {
		return 0
	}
	value, err := strconv.ParseFloat(string(found[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// logOf returns a log file that is printed if the test fails.
func logOf(t testing.TB) *logFile {
	t.Helper()
	log := &logFile{}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("logs of the data plane:\n%s", log)
		}
	})
	return log
}
