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
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Find returns the path of the Envoy binary: ENVOY_BIN if getenv has it, or else
// .bin/envoy (from "make envoy") in the working directory or one above it, or else one
// beside this program or in .bin beside its folder, or else envoy in PATH. The error states
// where it has looked, and how to provide one.
func Find(getenv func(string) string) (string, error) {
	if path := getenv("ENVOY_BIN"); path != "" {
		if _, err := exec.LookPath(path); err != nil {
			return "", fmt.Errorf("ENVOY_BIN: %w", err)
		}
		return path, nil
	}

	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find Envoy: %w", err)
	}
	program, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find Envoy: %w", err)
	}
	// A link in a folder of PATH leads to where the program was built.
	if resolved, err := filepath.EvalSymlinks(program); err == nil {
		program = resolved
	}
	return find(dir, filepath.Dir(program))
}

// find is Find without ENVOY_BIN, for a process in a directory, whose program is in a folder.
func find(dir, folder string) (string, error) {
	var places []string
	// Before PATH: what make has fetched is tested, what the machine has may be too old.
	// Tests and "go run" have a working directory below the one that make downloads to.
	for above, last := dir, ""; above != last; last, above = above, filepath.Dir(above) {
		places = append(places, filepath.Join(above, ".bin", "envoy"))
	}
	// "make build" writes to bin, and "make envoy" to .bin beside it.
	places = append(places, filepath.Join(folder, "envoy"), filepath.Join(filepath.Dir(folder), ".bin", "envoy"), "envoy")

	for _, place := range places {
		if path, err := exec.LookPath(place); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("no Envoy was found: not in PATH, nor in .bin of %s and the folders above it, nor beside this "+
		"program in %s and ../.bin: run make envoy in the source of envoy-harmony, set ENVOY_BIN to the program, or "+
		"add it to PATH", dir, folder)
}

// LaunchOptions are the settings of an Envoy process.
type LaunchOptions struct {
	Binary      string   // see [Find]
	Bootstrap   []byte   // see [Bootstrap]
	Concurrency int      // worker threads; 0: one per CPU
	Log         LineFunc // receives each line of Envoy's log; nil: errors contain the last lines
}

// LineFunc receives a line of a log, without its newline.
type LineFunc func(line string)

// Process is a running Envoy. Stop it with [Process.Stop].
type Process struct {
	cmd   *exec.Cmd
	dir   string
	admin string // host:port
	log   LineFunc
	tail  tail
	done  chan struct{}
	err   error // result of Wait; set before done is closed
}

// Launch starts Envoy and waits until it is ready. It fails if Envoy exits or ctx
// ends before. The process ends with [Process.Stop] and, on Linux, with its parent.
func Launch(ctx context.Context, o LaunchOptions) (*Process, error) {
	dir, err := os.MkdirTemp("", "envoy-harmony-")
	if err != nil {
		return nil, fmt.Errorf("start Envoy: %w", err)
	}

	p := &Process{dir: dir, log: o.Log, done: make(chan struct{})}
	config, adminFile := filepath.Join(dir, "envoy.yaml"), filepath.Join(dir, "admin")
	if err := os.WriteFile(config, o.Bootstrap, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("start Envoy: %w", err), os.RemoveAll(dir))
	}

	args := []string{
		"-c", config, "--admin-address-path", adminFile, "--log-level", "warning",
		"--disable-hot-restart", // several Envoys on one machine would share its shared memory
	}
	if o.Concurrency > 0 {
		args = append(args, "--concurrency", strconv.Itoa(o.Concurrency))
	}

	// Without ctx, at whose end package exec would kill it: requests that are running are to end first.
	p.cmd = exec.Command(o.Binary, args...)
	p.cmd.SysProcAttr = processAttributes()
	if err := p.start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start Envoy: %w", err), os.RemoveAll(dir))
	}
	if err := p.waitReady(ctx, adminFile); err != nil {
		// ctx may be over, which is why Envoy is not ready.
		p.Stop(context.Background())
		return nil, fmt.Errorf("start Envoy: %w", err)
	}
	return p, nil
}

// start starts the command from a goroutine that keeps its thread: the kernel sends
// the parent-death signal when the thread that forked ends.
func (p *Process) start() error {
	output, input := io.Pipe()
	p.cmd.Stdout, p.cmd.Stderr = input, input
	started := make(chan error, 1)
	go func() {
		// Linux sends the death signal of a child when the thread that started it ends, so the thread stays.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}

		// The log is read to its end before done is closed: Err looks for its last lines.
		var read sync.WaitGroup
		read.Go(func() { p.readLog(output) })
		p.err = p.cmd.Wait()
		input.Close()
		read.Wait()
		close(p.done)
	}()
	return <-started
}

func (p *Process) readLog(r io.Reader) {
	// Not a Scanner: it gives up at a long line, and Envoy would hang in writing the next one.
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if line = strings.TrimRight(line, "\r\n"); line != "" {
			p.tail.add(line)
			if p.log != nil {
				p.log(line)
			}
		}
		if err != nil {
			return
		}
	}
}

// pollInterval is the interval at which a starting or draining Envoy is polled.
const pollInterval = 20 * time.Millisecond

func (p *Process) waitReady(ctx context.Context, adminFile string) error {
	for {
		// Envoy writes the file only after it has chosen the port.
		if p.admin == "" {
			if text, err := os.ReadFile(adminFile); err == nil {
				p.admin = string(text)
			}
		}
		if p.admin != "" {
			if body, err := p.ask(ctx, http.MethodGet, "/ready"); err == nil &&
				strings.HasPrefix(string(body), "LIVE") {
				return nil
			}
		}

		select {
		case <-p.done:
			return p.Err()
		case <-ctx.Done():
			return p.withTail(fmt.Errorf("the process did not become ready: %w", ctx.Err()))
		case <-time.After(pollInterval):
		}
	}
}

// Done returns a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// ErrAddressInUse means that Envoy exited because another process uses one of its
// addresses.
var ErrAddressInUse = errors.New("another process listens at an address of Envoy")

// Err returns the reason why the process ended. Call it only after Done is closed.
func (p *Process) Err() error {
	// Envoy's exit status is the same for everything that it cannot start with.
	if line, found := p.tail.find("Address already in use"); found {
		return fmt.Errorf("%w: %s", ErrAddressInUse, line)
	}
	if p.err == nil {
		return p.withTail(errors.New("the process exited without an error"))
	}
	return p.withTail(fmt.Errorf("the process exited: %w", p.err))
}

// withTail adds the end of the log to an error, unless a LineFunc receives the log.
func (p *Process) withTail(err error) error {
	tail := p.tail.String()
	if p.log != nil || tail == "" {
		return err
	}
	return fmt.Errorf("%w; the end of its log:\n%s", err, tail)
}

// PID returns the id of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// AdminAddress returns the address of the admin interface, host:port.
func (p *Process) AdminAddress() string { return p.admin }

// ListenAddress returns the address of the clients' listener, host:port, with the
// port that Envoy has chosen.
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
		// Its port may have been chosen by the kernel: the bootstrap can say 0.
		if socket := status.Local.Socket; status.Name == clientListener {
			return net.JoinHostPort(socket.Address, strconv.Itoa(socket.Port)), nil
		}
	}
	return "", fmt.Errorf("read Envoy's listeners: there is no listener %q", clientListener)
}

// clientListener is the name of the clients' listener.
const clientListener = "openai"

// Drain closes the clients' listener and waits until no request is active or ctx
// ends.
func (p *Process) Drain(ctx context.Context) error {
	// The loopback listener stays: requests that are running call engines through it.
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

// Stop ends the process. It asks Envoy to quit, and kills it when ctx ends or after
// five seconds. It returns after the process has ended.
func (p *Process) Stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if _, err := p.ask(ctx, http.MethodPost, "/quitquitquit"); err != nil {
		// An Envoy that is still starting, or hangs, does not answer there.
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // on error the process has already ended
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		_ = p.cmd.Process.Kill() // on error the process has already ended
		<-p.done
	}
	_ = os.RemoveAll(p.dir)
}

// ask sends a request to the admin interface, on its own connection so that none is
// open when Envoy ends.
func (p *Process) ask(ctx context.Context, method, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+p.admin+path, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("admin request %s: %w", path, err)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("admin request %s: %w", path, err)
	}

	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("admin request %s: %w", path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("admin request %s: status %d", path, resp.StatusCode)
	}
	return body, nil
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

// find returns the last line that contains text.
func (t *tail) find(text string) (line string, found bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, line := range slices.Backward(t.lines) {
		if strings.Contains(line, text) {
			return line, true
		}
	}
	return "", false
}

// String joins the lines.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, "\n")
}
