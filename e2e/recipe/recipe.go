// Package recipe runs the commands of a page of the documentation as its readers do: in
// one shell, block by block, and compares what they print with what the page says.
//
//	steps := recipe.Read(t, "docs/gateways/recipes.md")
//	shell := recipe.NewShell(t, folder, "PATH=...")
//	shell.Run(steps["Certificate and keys"]...)
package recipe

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience bounds a block of commands.
const patience = 4 * time.Minute

// Step is a block of commands.
type Step struct {
	Commands string
	// Output is the block after it, which the commands print; "…" stands for any text, and
	// a space for any white space. Empty: the page does not say what they print.
	Output string
}

var block = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?\n)```$")

// Read returns the blocks of commands of a page, by the headings of its sections.
func Read(t testing.TB, path string) map[string][]Step {
	t.Helper()
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	sections := map[string][]Step{}
	for section := range strings.SplitSeq(string(page), "\n## ") {
		heading, text, _ := strings.Cut(section, "\n")
		var steps []Step
		for _, b := range block.FindAllStringSubmatch(text, -1) {
			switch language, content := b[1], b[2]; {
			case language == "sh":
				steps = append(steps, Step{Commands: content})
			case language == "" && len(steps) > 0:
				steps[len(steps)-1].Output = content
			}
		}
		sections[heading] = steps
	}
	return sections
}

// Blocks returns the blocks of a page that are in a language, such as yaml.
func Blocks(t testing.TB, path, language string) (blocks []string) {
	t.Helper()
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	for _, b := range block.FindAllStringSubmatch(string(page), -1) {
		if b[1] == language {
			blocks = append(blocks, b[2])
		}
	}
	return blocks
}

// Shell is a bash that keeps its variables, functions and jobs from one step to the next.
// It ends with the test, and so do the programs that it has started.
type Shell struct {
	t      testing.TB
	folder string
	in     io.Writer
	out    *bufio.Reader
	stderr string // path
	kill   func()
}

// NewShell starts a shell in a folder, with variables NAME=VALUE beside the environment.
// A command that fails ends it.
func NewShell(t testing.TB, folder string, env ...string) *Shell {
	t.Helper()
	stderr, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()

	// Programs that the commands leave in the background are of its process group.
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail")
	cmd.Dir, cmd.Env, cmd.Stderr = folder, append(os.Environ(), env...), stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
	})
	return &Shell{t: t, folder: folder, in: in, out: bufio.NewReader(out), stderr: stderr.Name(), kill: cancel}
}

// Do runs commands and returns what they print.
func (s *Shell) Do(commands string) string {
	s.t.Helper()
	const end = "-- end of the step --"
	// Commands that hang are named by the error, which the end of all tests would not do.
	hangs := time.AfterFunc(patience, s.kill)
	defer hangs.Stop()

	var printed strings.Builder
	fail := func(err error) {
		s.t.Helper()
		stderr, _ := os.ReadFile(s.stderr)
		s.t.Fatalf("a command has failed or hangs (%v):\n%s\nIt printed:\n%s\n%s",
			err, commands, printed.String(), stderr)
	}

	if _, err := fmt.Fprintf(s.in, "%s\necho\necho '%s'\n", strings.TrimSpace(commands), end); err != nil {
		fail(err)
	}
	for {
		line, err := s.out.ReadString('\n')
		if err != nil {
			fail(err)
		}
		if strings.TrimSpace(line) == end {
			return printed.String()
		}
		printed.WriteString(line)
	}
}

// LogOnFailure prints files of the shell's folder if the test has failed.
func (s *Shell) LogOnFailure(names ...string) {
	s.t.Helper()
	for _, name := range names {
		if text, err := os.ReadFile(filepath.Join(s.folder, name)); err == nil && s.t.Failed() {
			s.t.Logf("%s:\n%s", name, text[max(0, len(text)-10_000):])
		}
	}
}

// Run runs steps. What they print must be what the page says.
func (s *Shell) Run(steps ...Step) {
	s.t.Helper()
	if len(steps) == 0 {
		s.t.Fatal("the page has no commands there")
	}
	for _, step := range steps {
		if got := s.Do(step.Commands); !step.Prints(got) {
			s.t.Errorf("the commands\n%s\nprint\n%s\nThe page says\n%s", step.Commands, got, step.Output)
		}
	}
}

// Prints reports whether a text is what the page says.
func (step Step) Prints(text string) bool {
	if step.Output == "" {
		return true
	}
	oneSpace := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	pattern := strings.ReplaceAll(regexp.QuoteMeta(oneSpace(step.Output)), "…", ".*")
	return regexp.MustCompile("^" + pattern + "$").MatchString(oneSpace(text))
}

// Requests that the page does not show.
const (
	noKeyStatus = `curl -sS --cacert tls.crt "$URL/v1/models" -H 'x-tenant: acme' -o answer.json -w '%{http_code}'`
	// The SDKs for Anthropic's API have their key in another header.
	refusedMessage = `curl -sS --cacert tls.crt "$URL/v1/messages" -H "x-api-key: $TRIAL" -H 'x-tenant: acme' \
		-H 'content-type: application/json' \
		-d '{"model":"gpt-oss-120b","max_tokens":2048,"messages":[{"role":"user","content":"Hi"}]}' |
		jq -r .error.type`
	noLimit = `curl -sS --cacert tls.crt "$URL/v1/chat/completions" -H "authorization: Bearer $ACME" \
		-H 'content-type: application/json' \
		-d '{"model":"gpt-oss-120b","messages":[{"role":"user","content":"SAY no limit"}]}' |
		jq -r '.choices[0].message.content'`
)

// CheckTenants runs what all recipes of docs/gateways/recipes.md have in common, and what
// the page does not show. noKey is the status of a request without any key.
func (s *Shell) CheckTenants(sections map[string][]Step, noKey string) {
	s.t.Helper()
	s.Run(sections["Ask"]...)
	s.Run(Step{noKeyStatus, noKey}, Step{refusedMessage, "rate_limit_error"})

	// The page does not know the refused message, which is in the bill too.
	bill := sections["The bill"][0]
	bill.Output = strings.Replace(bill.Output, "trial 7", "trial 8", 1)
	// The line of the log may follow the reply.
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if bill.Prints(s.Do(bill.Commands)) {
			break
		}
	}
	s.Run(bill)

	// 20 million tokens are enough for a request that names no limit.
	s.Run(Step{noLimit, "no limit"})
}
