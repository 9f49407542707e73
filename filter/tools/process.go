package tools

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/sirupsen/logrus"
)

const (
	// stopTimeout is how long a process may take to exit, first after its input is
	// closed and again after SIGTERM.
	stopTimeout = time.Second
	// maxLogLine (bytes) and maxLogLines bound what is logged of one process.
	maxLogLine  = 1 << 10
	maxLogLines = 1000
)

// process is a stdio server. It leads a process group, so that its children end
// with it.
type process struct {
	cmd    *exec.Cmd
	stdin  *os.File
	stdout *os.File
	exited chan struct{}
	once   sync.Once

	// Closed at the end of stderr.
	logged chan struct{}
	// The last line of stderr; read it after logged is closed.
	lastLogLine string
}

// start starts the server's process and connects to it.
func (s *session) start(ctx context.Context) (mcp.Connection, error) {
	if !s.server.Trusted || len(s.server.Command) == 0 {
		return nil, errors.New("the server has no command")
	}
	// Processes that are being stopped count as well.
	select {
	case s.client.processes <- struct{}{}:
	case <-ctx.Done():
		return nil, errors.New("too many processes are running")
	}

	process, stderr, err := spawn(s.server)
	if err != nil {
		<-s.client.processes
		return nil, err
	}

	s.process = process
	s.client.work.Go(func() { s.client.logLines(s.server, process, stderr) })
	s.client.work.Go(func() {
		// The exit status is not used. The children of the process are killed with it.
		_ = process.cmd.Wait()
		process.signal(syscall.SIGKILL)
		<-s.client.processes
		close(process.exited)
		// Processes that have left the group may keep the pipes open.
		_ = process.stdout.SetReadDeadline(time.Now().Add(stopTimeout))
		_ = stderr.SetReadDeadline(time.Now().Add(stopTimeout))
	})

	context.AfterFunc(s.ctx, func() { process.kill(syscall.SIGKILL) })
	transport := mcp.IOTransport{
		Reader: counted{process.stdout, &s.stream}, Writer: process, MaxLineLength: s.client.o.MaxMessageBytes,
	}
	return transport.Connect(ctx)
}

// spawn starts a process with pipes for stdin, stdout and stderr.
func spawn(server *Server) (p *process, stderr *os.File, err error) {
	// Ends of the pipes.
	var ownEnds, childEnds []*os.File
	defer func() {
		for _, f := range childEnds {
			f.Close()
		}
		if err != nil {
			for _, f := range ownEnds {
				f.Close()
			}
		}
	}()

	for range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, nil, err
		}
		// Stdin is written, the others are read.
		if len(ownEnds) == 0 {
			r, w = w, r
		}
		ownEnds, childEnds = append(ownEnds, r), append(childEnds, w)
	}

	cmd := exec.Command(server.Command[0], server.Command[1:]...)
	cmd.Env = environment(server.Env)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = childEnds[0], childEnds[1], childEnds[2]
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}

	p = &process{
		cmd: cmd, stdin: ownEnds[0], stdout: ownEnds[1],
		exited: make(chan struct{}), logged: make(chan struct{}),
	}
	return p, ownEnds[2], nil
}

// environment returns PATH, HOME and the configured variables.
func environment(env map[string]string) []string {
	var list []string
	for _, name := range []string{"PATH", "HOME"} {
		if value, ok := os.LookupEnv(name); ok {
			list = append(list, name+"="+value)
		}
	}

	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}

// kill signals the process group if the process still runs. Later its id may belong
// to another process.
func (p *process) kill(signal syscall.Signal) {
	select {
	case <-p.exited:
	default:
		p.signal(signal)
	}
}

func (p *process) signal(signal syscall.Signal) {
	// The group may have ended.
	_ = syscall.Kill(-p.cmd.Process.Pid, signal)
}

// Write implements [io.Writer]: it writes to the process's stdin.
func (p *process) Write(b []byte) (int, error) { return p.stdin.Write(b) }

// Close implements [io.Closer]. It closes stdin, waits, and then sends SIGTERM and
// SIGKILL.
func (p *process) Close() error {
	p.once.Do(func() {
		p.stdin.Close()
		// First it is asked by the end of its input, then by the first signal.
		for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
			select {
			case <-p.exited:
			case <-time.After(stopTimeout):
				p.kill(signal)
			}
		}
		<-p.exited
	})
	return nil
}

// logLines logs the stderr of a process up to the limits, reads the rest without
// logging it, and keeps the last line.
func (c *Client) logLines(server *Server, process *process, stderr io.ReadCloser) {
	defer close(process.logged)
	defer stderr.Close()
	lines := bufio.NewReaderSize(stderr, maxLogLine)
	log := c.o.Log.WithField("mcp_server", server.Label)
	var last []byte

	for n := 0; ; n++ {
		line, _, err := lines.ReadLine()
		if err != nil {
			process.lastLogLine = string(last)
			return
		}

		if n < maxLogLines && c.o.Log.IsLevelEnabled(logrus.DebugLevel) {
			log.Debug("stderr of the MCP server: " + server.redact(string(line)))
		}
		// A program that gives up says why in its last line.
		if len(bytes.TrimSpace(line)) > 0 {
			last = append(last[:0], line...)
		}
	}
}

// lastLog returns the last line of stderr once the process has closed it, "" if it
// does not within a time limit.
func (p *process) lastLog() string {
	if p == nil {
		return ""
	}

	select {
	case <-p.logged:
		return p.lastLogLine
	case <-time.After(2 * stopTimeout):
		return ""
	}
}

// warnOfPrograms logs a warning for each configured program that is not installed.
func (c *Client) warnOfPrograms() {
	for i := range c.o.Servers {
		s := &c.o.Servers[i]
		if len(s.Command) == 0 {
			continue
		}
		if _, err := exec.LookPath(s.Command[0]); err != nil {
			c.o.Log.WithField("mcp_server", s.Label).WithError(err).Warn(
				"The program of the MCP server cannot be started: correct tools.servers, or install it.")
		}
	}
}
