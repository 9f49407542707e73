package envoy

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Find gives the Envoy to run: what getenv has for ENVOY_BIN, else an envoy in
// PATH, else .bin/envoy (where "make envoy" puts one) in the working directory
// or one above it.
func Find(getenv func(string) string) (string, error) {
	if path := getenv("ENVOY_BIN"); path != "" {
		if _, err := exec.LookPath(path); err != nil {
			return "", fmt.Errorf("ENVOY_BIN: %w", err)
		}
		return path, nil
	}
	if path, err := exec.LookPath("envoy"); err == nil {
		return path, nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find Envoy: %w", err)
	}
	for {
		path := filepath.Join(dir, ".bin", "envoy")
		if _, err := exec.LookPath(path); err == nil {
			return path, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("there is no Envoy: run make envoy, or set ENVOY_BIN, or put envoy into PATH")
		}
		dir = parent
	}
}

// Validate has Envoy check a bootstrap without starting it.
func Validate(ctx context.Context, binary string, bootstrap []byte) error {
	path, remove, err := writeTemp(bootstrap)
	if err != nil {
		return err
	}
	defer remove()
	out, err := exec.CommandContext(ctx, binary, "--mode", "validate", "--log-level", "error", "-c", path).CombinedOutput()
	if err != nil {
		return fmt.Errorf("envoy --mode validate: %w: %s", err, out)
	}
	return nil
}

// LaunchOptions says how to start an Envoy.
type LaunchOptions struct {
	Binary      string   // see [Find]
	Bootstrap   []byte   // see [Bootstrap]
	Concurrency int      // worker threads; 0: one for each processor
	LogLevel    string   // Envoy's level; "": warning
	Log         LineFunc // gets each line that Envoy logs; nil: they are only kept for [Process.LogTail]
}

// LineFunc takes one line of a log, without its newline.
type LineFunc func(line string)

// Process is a running Envoy.
type Process struct {
	cmd   *exec.Cmd
	dir   string
	admin string // host:port
	tail  tail
	done  chan struct{}
	err   error // of Wait; set before done is closed
}

// Launch starts Envoy and waits until it has loaded its configuration, or ctx
// is done. The process ends with [Process.Stop] and, on Linux, with its parent.
func Launch(ctx context.Context, o LaunchOptions) (*Process, error) {
	dir, err := os.MkdirTemp("", "envoy-harmony-")
	if err != nil {
		return nil, fmt.Errorf("start Envoy: %w", err)
	}
	p := &Process{dir: dir, done: make(chan struct{})}
	config, adminFile := filepath.Join(dir, "envoy.yaml"), filepath.Join(dir, "admin")
	if err := os.WriteFile(config, o.Bootstrap, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("start Envoy: %w", err), os.RemoveAll(dir))
	}
	level := o.LogLevel
	if level == "" {
		level = "warning"
	}
	args := []string{
		"-c", config, "--admin-address-path", adminFile, "--log-level", level,
		"--disable-hot-restart", // several Envoys on one machine would share its memory
	}
	if o.Concurrency > 0 {
		args = append(args, "--concurrency", strconv.Itoa(o.Concurrency))
	}
	p.cmd = exec.Command(o.Binary, args...)
	p.cmd.SysProcAttr = processAttributes()
	if err := p.start(o.Log); err != nil {
		return nil, errors.Join(fmt.Errorf("start Envoy: %w", err), os.RemoveAll(dir))
	}
	if err := p.waitReady(ctx, adminFile); err != nil {
		p.Stop(context.Background())
		return nil, fmt.Errorf("start Envoy: %w", err)
	}
	return p, nil
}

// start runs the command from a goroutine that keeps its thread: the kernel
// sends the parent-death signal when the thread that forked ends.
func (p *Process) start(log LineFunc) error {
	output, input := io.Pipe()
	p.cmd.Stdout, p.cmd.Stderr = input, input
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		var read sync.WaitGroup
		read.Go(func() { p.readLog(output, log) })
		p.err = p.cmd.Wait()
		input.Close()
		read.Wait()
		close(p.done)
	}()
	return <-started
}

func (p *Process) readLog(r io.Reader, log LineFunc) {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if line = strings.TrimRight(line, "\r\n"); line != "" {
			p.tail.add(line)
			if log != nil {
				log(line)
			}
		}
		if err != nil {
			return
		}
	}
}

// pollInterval is how often a starting or draining Envoy is asked.
const pollInterval = 20 * time.Millisecond

func (p *Process) waitReady(ctx context.Context, adminFile string) error {
	for {
		if p.admin == "" {
			if text, err := os.ReadFile(adminFile); err == nil {
				p.admin = string(text)
			}
		}
		if p.admin != "" {
			if body, err := p.ask(ctx, http.MethodGet, "/ready"); err == nil && strings.HasPrefix(string(body), "LIVE") {
				return nil
			}
		}
		select {
		case <-p.done:
			return fmt.Errorf("it ended by itself: %w\n%s", p.err, p.LogTail())
		case <-ctx.Done():
			return fmt.Errorf("it did not get ready: %w\n%s", ctx.Err(), p.LogTail())
		case <-time.After(pollInterval):
		}
	}
}

// PID is the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// LogTail is the end of what Envoy logged.
func (p *Process) LogTail() string { return p.tail.String() }

// AdminAddress is host:port of the admin interface.
func (p *Process) AdminAddress() string { return p.admin }

// ListenAddress is the real host:port of the listener that clients use.
func (p *Process) ListenAddress(ctx context.Context) (string, error) {
	body, err := p.ask(ctx, http.MethodGet, "/listeners?format=json")
	if err != nil {
		return "", err
	}
	var listeners struct {
		Statuses []struct {
			Name  string `json:"name"`
			Local struct {
				Socket struct {
					Address string `json:"address"`
					Port    int    `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	if err := json.Unmarshal(body, &listeners); err != nil {
		return "", fmt.Errorf("read Envoy's listeners: %w", err)
	}
	for _, status := range listeners.Statuses {
		if socket := status.Local.Socket; status.Name == clientListener {
			return net.JoinHostPort(socket.Address, strconv.Itoa(socket.Port)), nil
		}
	}
	return "", fmt.Errorf("read Envoy's listeners: there is no %q", clientListener)
}

// clientListener is the name of the listener that clients use.
const clientListener = "openai"

// Drain closes the listener that clients use and waits until no request is left or ctx is done.
func (p *Process) Drain(ctx context.Context) error {
	if _, err := p.ask(ctx, http.MethodPost, "/drain_listeners?inboundonly"); err != nil {
		return err
	}
	for {
		body, err := p.ask(ctx, http.MethodGet, "/stats?filter=^http.openai.downstream_rq_active$")
		if err != nil {
			return err
		}
		if strings.HasSuffix(strings.TrimSpace(string(body)), ": 0") {
			return nil
		}
		select {
		case <-p.done:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("drain Envoy: %w", ctx.Err())
		case <-time.After(pollInterval):
		}
	}
}

// Stop ends the process: politely, and by force once ctx is done or five
// seconds have passed. It returns when the process is gone.
func (p *Process) Stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if _, err := p.ask(ctx, http.MethodPost, "/quitquitquit"); err != nil {
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // an error means that it has ended
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		_ = p.cmd.Process.Kill() // an error means that it has ended
		<-p.done
	}
	_ = os.RemoveAll(p.dir)
}

// ask calls the admin interface. Every call has a connection of its own: there
// are few, and none is left open when Envoy ends.
func (p *Process) ask(ctx context.Context, method, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+p.admin+path, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("ask Envoy for %s: %w", path, err)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask Envoy for %s: %w", path, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("ask Envoy for %s: %w", path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask Envoy for %s: status %d", path, resp.StatusCode)
	}
	return body, nil
}

func writeTemp(text []byte) (path string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "envoy-harmony-")
	if err != nil {
		return "", nil, fmt.Errorf("write the bootstrap: %w", err)
	}
	remove = func() { _ = os.RemoveAll(dir) }
	path = filepath.Join(dir, "envoy.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		remove()
		return "", nil, fmt.Errorf("write the bootstrap: %w", err)
	}
	return path, remove, nil
}

// tail keeps the last lines of a log.
type tail struct {
	mu    sync.Mutex
	lines []string
}

const tailLines = 40

func (t *tail) add(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.lines) == tailLines {
		t.lines = append(t.lines[:0], t.lines[1:]...)
	}
	t.lines = append(t.lines, line)
}

// String joins the lines.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, "\n")
}
