package stack

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/envoy"
)

// Program is "envoy-harmony serve" as a process of its own, for tests of what is
// not in package filter: TLS, the ports.
type Program struct {
	// Config are flags of the configuration.
	Config []string
	// Address is the filter's, host:port; Admin the URL of its admin port.
	Address string
	Admin   string
	Logs    *LogFile

	Process *os.Process
	// Ended is closed when the process has ended. Exit is its status from then on; -1: a
	// signal has ended it.
	Ended chan struct{}
	Exit  int
}

// ServeProgram starts the program with a configuration until the test ends.
func ServeProgram(t testing.TB, log *LogFile, config ...string) *Program {
	t.Helper()
	return ServeProgramAt(t, "127.0.0.1:0", log, config...)
}

// ServeProgramAt is ServeProgram at an address, host:port.
func ServeProgramAt(t testing.TB, listen string, log *LogFile, config ...string) *Program {
	t.Helper()
	p := LaunchProgram(t, log, "serving", append([]string{
		"serve", "--listen", listen, "--admin", "127.0.0.1:0",
		"--log-level", "debug",
	}, config...)...)
	p.Config = config
	return p
}

// LaunchProgram runs a command of the program until the test ends. It has begun when it
// logs a line with the message begun.
func LaunchProgram(t testing.TB, log *LogFile, begun string, args ...string) *Program {
	t.Helper()
	binary, err := BuildProgram()
	if err != nil {
		t.Fatal(err)
	}
	return Launch(t, log, begun, exec.CommandContext(t.Context(), binary, args...))
}

// Launch is LaunchProgram for a command that starts the program.
func Launch(t testing.TB, log *LogFile, begun string, cmd *exec.Cmd) *Program {
	t.Helper()
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	// Ports are the kernel's choice: the program logs which, together with the news that it serves.
	type line struct{ Msg, Listen, Admin string }

	serving := make(chan line, 1)
	p := &Program{Logs: log, Process: cmd.Process, Ended: make(chan struct{})}

	go func() {
		// Both channels are closed after the exit status is set. A program that ends before it has
		// begun closes serving, so that its test fails at once and not after its whole patience.
		defer close(p.Ended)
		defer close(serving)
		// The log is read to its end before Wait, which closes the pipe.
		out := log.Named("filter")
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			fmt.Fprintln(out, lines.Text())
			var l line
			if json.Unmarshal(lines.Bytes(), &l) == nil && l.Msg == begun {
				serving <- l
			}
		}
		_ = cmd.Wait() // killed at the end of the test, if not before
		p.Exit = cmd.ProcessState.ExitCode()
	}()

	// The command is killed by the test's context. What it has written is in the log before the
	// log is printed.
	t.Cleanup(func() { <-p.Ended })

	l := Receive(t, serving, "the program's start")
	if l.Listen == "" {
		t.Fatalf("%s does not start", cmd)
	}
	p.Address, p.Admin = l.Listen, "http://"+l.Admin
	return p
}

// Bootstrap returns what envoy-config prints for the program, with more flags.
func (p *Program) Bootstrap(t testing.TB, flags ...string) []byte {
	t.Helper()
	binary, err := BuildProgram()
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{
		"envoy-config", "--listen", "127.0.0.1:0", "--envoy-admin", "127.0.0.1:0", "--filter",
		p.Address,
	}, p.Config...)
	out, err := exec.Command(binary, append(args, flags...)...).Output()
	if err != nil {
		//nolint:errorlint,forcetypeassert // Output returns no other error of a program that runs
		t.Fatalf("envoy-config: %v: %s", err, err.(*exec.ExitError).Stderr)
	}
	return out
}

// Envoy runs an Envoy for the program until the test ends.
func (p *Program) Envoy(t testing.TB, bootstrap []byte) *Dataplane {
	t.Helper()
	binary, err := envoy.Find(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	d := &Dataplane{Upstream: &Upstream{}, Logs: p.Logs}
	d.URL, d.Admin = launchEnvoy(t, binary, bootstrap, p.Logs)
	d.Client = NewClient(t)
	return d
}

// Metric returns a sample of the filter, such as name{label="value"}.
func (p *Program) Metric(t *testing.T, sample string) float64 {
	t.Helper()
	return SampleOf(t, p.Admin+"/metrics", sample)
}

// AdminPage reads a page of an admin interface, of Envoy or the filter.
func AdminPage(t testing.TB, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}

	// An idle connection of the default client has goroutines, which goleak would find.
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return ReadText(t, resp)
}

// SampleOf returns a sample in Prometheus' text format; 0 if there is none.
func SampleOf(t *testing.T, url, sample string) float64 {
	t.Helper()
	text := AdminPage(t, url)

	// A counter with labels has no sample before its first event.
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(sample) + ` (\S+)$`).FindStringSubmatch(text)
	if found == nil {
		return 0
	}

	value, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// LogOf returns a log file that is printed if the test fails.
func LogOf(t testing.TB) *LogFile {
	t.Helper()
	log := &LogFile{}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("logs of the data plane:\n%s", log)
		}
	})
	return log
}

// Python is the interpreter that has the clients installed.
const Python = "../.venv/bin/python"
