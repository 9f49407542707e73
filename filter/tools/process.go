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
	// stopTimeout is how long a process may take to end once its input has, and
	// once more when it has been asked to.
	stopTimeout = time.Second
	// maxLogLine and maxLogLines bound what is logged of one process.
	maxLogLine  = 1 << 10
	maxLogLines = 1000
)

// process is a stdio server. Its own children are ended with it.
type process struct {
	cmd    *exec.Cmd
	stdin  *os.File
	stdout *os.File
	exited chan struct{}
	once   sync.Once

	said     chan struct{} // closed once the process says no more
	lastLine string        // of what it has said, to be read after that
}

// start starts the server's process and connects to it.
func (s *session) start(ctx context.Context) (mcp.Connection, error) {
	if !s.server.Trusted || len(s.server.Command) == 0 {
		return nil, errors.New("the server has no command")
	}
	select { // those that are being ended count, too
	case s.client.processes <- struct{}{}:
	case <-ctx.Done():
		return nil, errors.New("there is no place for one more process")
	}
	p, stderr, err := spawn(s.server)
	if err != nil {
		<-s.client.processes
		return nil, err
	}
	s.process = p
	s.client.work.Go(func() { s.client.logLines(s.server, p, stderr) })
	s.client.work.Go(func() {
		_ = p.cmd.Wait()          // how it ended is of no use to anybody
		p.signal(syscall.SIGKILL) // its children
		<-s.client.processes
		close(p.exited)
		// Whoever has left the process group may hold the pipes open.
		_ = p.stdout.SetReadDeadline(time.Now().Add(stopTimeout))
		_ = stderr.SetReadDeadline(time.Now().Add(stopTimeout))
	})
	context.AfterFunc(s.ctx, func() { p.kill(syscall.SIGKILL) })
	return (&mcp.IOTransport{Reader: counted{p.stdout, &s.stream}, Writer: p, MaxLineLength: s.client.o.MaxMessageBytes}).Connect(ctx)
}

// spawn starts a process with pipes for its input, output and log.
func spawn(server *Server) (p *process, stderr *os.File, err error) {
	var mine, its []*os.File // the ends of the pipes
	defer func() {
		for _, f := range its {
			f.Close()
		}
		if err != nil {
			for _, f := range mine {
				f.Close()
			}
		}
	}()
	for range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, nil, err
		}
		if len(mine) == 0 { // the input is written, the others are read
			r, w = w, r
		}
		mine, its = append(mine, r), append(its, w)
	}
	cmd := exec.Command(server.Command[0], server.Command[1:]...)
	cmd.Env = environment(server.Env)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = its[0], its[1], its[2]
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	return &process{cmd: cmd, stdin: mine[0], stdout: mine[1], exited: make(chan struct{}), said: make(chan struct{})}, mine[2], nil
}

// environment is PATH and HOME and what is configured.
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

// kill sends a signal to the process and its children, while it runs: its id may
// be another's later.
func (p *process) kill(signal syscall.Signal) {
	select {
	case <-p.exited:
	default:
		p.signal(signal)
	}
}

func (p *process) signal(signal syscall.Signal) {
	_ = syscall.Kill(-p.cmd.Process.Pid, signal) // they may be gone already
}

// Write implements [io.Writer]: it writes to the server.
func (p *process) Write(b []byte) (int, error) { return p.stdin.Write(b) }

// Close implements [io.Closer]. It ends the process: politely at first.
func (p *process) Close() error {
	p.once.Do(func() {
		p.stdin.Close()
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

// logLines logs what a process says of itself, reads on when that is too much, and
// keeps the last line.
func (c *Client) logLines(server *Server, p *process, stderr io.ReadCloser) {
	defer close(p.said)
	defer stderr.Close()
	lines := bufio.NewReaderSize(stderr, maxLogLine)
	log := c.o.Log.WithField("mcp_server", server.Label)
	var last []byte
	for n := 0; ; n++ {
		line, _, err := lines.ReadLine()
		if err != nil {
			p.lastLine = string(last)
			return
		}
		if n < maxLogLines && c.o.Log.IsLevelEnabled(logrus.DebugLevel) {
			log.Debug("the MCP server says: " + clip(server.redact(string(line))))
		}
		if len(bytes.TrimSpace(line)) > 0 {
			last = append(last[:0], line...)
		}
	}
}

// lastWords is the last line that a process has said, "" if it goes on or there is
// none.
func (p *process) lastWords() string {
	if p == nil {
		return ""
	}
	select {
	case <-p.said:
		return p.lastLine
	case <-time.After(2 * stopTimeout):
		return ""
	}
}

// warnOfPrograms warns of the programs of configured servers that there are not.
func (c *Client) warnOfPrograms() {
	for i := range c.o.Servers {
		s := &c.o.Servers[i]
		if len(s.Command) == 0 {
			continue
		}
		if _, err := exec.LookPath(s.Command[0]); err != nil {
			c.o.Log.WithField("mcp_server", s.Label).WithError(err).Warn("The program of the MCP server cannot be started: correct tools.servers, or install it.")
		}
	}
}
