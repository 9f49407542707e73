// Package tools runs tools at MCP servers (https://modelcontextprotocol.io): it
// keeps sessions with the servers, lists their tools and calls them.
//
// A [Client] runs any number of [Job]s at the same time. Sessions are opened on
// first use, shared by the jobs of the same [Server], and closed when they have
// been idle for a while. A job always ends with a [Result]. Its Error is a text for
// clients and models. See the example.
//
// Servers come from the configuration or from requests. Servers of requests are
// untrusted: [Client.Allow] checks their URL, and connections are made only to
// addresses that are public or that the operator has allowed. What any server sends is
// bounded, and the secrets that it was sent are hidden in what comes back.
//
// The package knows MCP and three transports. It knows neither the model's names of tools, nor
// who may call which: its callers decide that.
package tools

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/sirupsen/logrus"
)

// The transports of MCP. If a server has a URL and no transport, streamable HTTP is
// tried first, and then SSE.
const (
	TransportHTTP  = "http"  // streamable HTTP
	TransportSSE   = "sse"   // HTTP with server-sent events, of MCP 2024-11-05
	TransportStdio = "stdio" // a local process
)

// Server is an MCP server as one request uses it. Requests share a session if all
// fields are equal, except Label, RequestHeaders, AllowedTools and Approval.
type Server struct {
	// Server_label.
	Label string
	// Http or https; "" for a process.
	URL string
	// One of the Transport constants; "" to detect it.
	Transport string
	// Command is the program of a stdio server and its arguments. It never comes from
	// requests: only a Trusted server has one.
	Command []string
	// Env is added to the process's environment, which otherwise has only PATH and
	// HOME. Values are secret.
	Env map[string]string `json:"-"`
	// Header is sent with every HTTP request. Values are secret: logs, errors and
	// String do not contain them.
	Header http.Header `json:"-"`
	// Added are the names of those that came from the request: see AddHeader.
	Added []string
	// Tenants never share sessions.
	Tenant string
	// Session separates sessions of one tenant, for example by conversation. With ""
	// the tenant's requests share one.
	Session string
	// Trusted marks a server of the configuration. Its host and its addresses are not
	// checked.
	Trusted bool
	// RequestHeaders are the headers that requests may set for a Trusted server, in the
	// form of [http.CanonicalHeaderKey].
	RequestHeaders []string
	// Expects are the tools that the server needs because it implements a built-in
	// tool. If it does not list one, a warning is logged and calls of that tool fail.
	Expects []string
	// AllowedTools are the only tools that a model may see; nil means all. If Approval
	// is set, a client has to approve every call. Both come from the configuration
	// (allowed_tools, require_approval). The Client does not enforce them: its caller
	// does.
	AllowedTools []string
	Approval     bool
}

// String returns the label and the origin of the server, without path and query.
func (s Server) String() string {
	switch u, err := url.Parse(s.URL); {
	case s.URL == "":
		return fmt.Sprintf("%q", s.Label)
	case err != nil:
		return fmt.Sprintf("%q (invalid URL)", s.Label)
	default:
		return fmt.Sprintf("%q at %s", s.Label, origin(u))
	}
}

// GoString is like String, so that no formatting verb prints secrets.
func (s Server) GoString() string { return "tools.Server{" + s.String() + "}" }

func (s *Server) isProcess() bool { return s.URL == "" }

// clone returns a deep copy.
func (s *Server) clone() *Server {
	c := *s
	c.Command = slices.Clone(s.Command)
	c.RequestHeaders = slices.Clone(s.RequestHeaders)
	c.Expects = slices.Clone(s.Expects)
	c.AllowedTools = slices.Clone(s.AllowedTools)
	c.Env = maps.Clone(s.Env)
	c.Header, c.Added = s.Header.Clone(), slices.Clone(s.Added)
	return &c
}

// key returns a hash that is equal for servers that may share a session.
func (s *Server) key() string {
	sum := sha256.New()
	hashList(sum, s.Tenant, s.Session, s.Transport, s.URL, strconv.FormatBool(s.Trusted))
	hashList(sum, s.Command...)
	hashList(sum, s.Expects...)
	hashList(sum, slices.Sorted(maps.Keys(s.Env))...)
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		hashList(sum, s.Env[name])
	}
	hashList(sum, slices.Sorted(maps.Keys(s.Header))...)
	for _, name := range slices.Sorted(maps.Keys(s.Header)) {
		hashList(sum, s.Header[name]...)
	}
	return string(sum.Sum(nil))
}

// hashList hashes a list. Lengths are hashed too, so that different lists have
// different input.
func hashList(h hash.Hash, list ...string) {
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], uint64(len(list)))
	h.Write(n[:])
	for _, text := range list {
		binary.LittleEndian.PutUint64(n[:], uint64(len(text)))
		h.Write(n[:])
		h.Write([]byte(text))
	}
}

// Tool is a tool as its server describes it.
type Tool struct {
	// "" if the server sends none: such a tool cannot be called.
	Name        string
	Title       string
	Description string
	// A JSON Schema object with its members in the server's order; nil if the server sends none.
	InputSchema json.RawMessage
	// The server's hints; nil if it sends none.
	Annotations json.RawMessage
}

// Job is one operation at a server: a tool call, or listing the tools.
type Job struct {
	Server *Server
	// Tool is the name of the tool to call. If it is "", the tools are listed.
	Tool string
	// Arguments are the arguments as the model wrote them. Blank text counts as {}.
	// Anything but a JSON object is reported in Result.Error.
	Arguments string
}

// Part is one content part of a tool's result.
type Part struct {
	// MCP's content type: text, image, audio, resource or resource_link.
	Type string
	// Of a text part or a text resource.
	Text string
	MIME string
	// Of a resource or a resource_link.
	URI string
	// Of a resource_link.
	Name string
	// Of an image, an audio part or a binary resource.
	Data []byte
}

// Result is the outcome of a job.
type Result struct {
	// If the job lists tools.
	Tools []Tool
	// Text is the result of a call for the model: texts joined by newlines, and a short
	// note for each part that is not text.
	Text string
	// Content has the parts of a call's result, and Structured its structured result,
	// nil if there is none. Together they have at most 4 MiB. Parts that do not fit are
	// omitted, and a last text part says so. A structured result that does not fit as
	// well is omitted.
	Content    []Part
	Structured json.RawMessage
	// Answered is true if the tool returned a result, even one that reports an error.
	Answered bool
	// Error describes the failure for clients and models; "" if the job succeeded. It
	// also has the error that a tool itself reports.
	Error string
	// Cause has more details for the log, bounded and without secrets; nil if Error is
	// complete.
	Cause error
}

// Options configure a Client. Zero values stand for the defaults.
type Options struct {
	// The configured servers.
	Servers []Server
	// Hosts that requests may name.
	AllowedHosts []Host
	// Networks that requests may reach though they are not public.
	AllowedNetworks []netip.Prefix
	// Of listing tools and of opening a session; default 10s.
	ListTimeout time.Duration
	// Of a tool call; default 60s.
	CallTimeout time.Duration
	// An unused session is closed after it; default 5m.
	IdleTimeout time.Duration
	// Open sessions; default 1000.
	MaxSessions int
	// Running stdio servers; default 32.
	MaxProcesses int
	// Tools per server; default 256.
	MaxListed int
	// Of Result.Text and Result.Error; default 262144.
	MaxResultBytes int
	// Of one message of a server, in bytes; default 8 MiB.
	MaxMessageBytes int
	// MaxInflightBytes bounds the answers of all servers that are being read or turned
	// into results at one time; default 64 MiB.
	MaxInflightBytes int64
	// Default: logrus's standard logger.
	Log *logrus.Logger
	// Default: time.Now.
	Now func() time.Time
	// Around stands around each job: it calls do for the job's result, or has one. nil:
	// every job is run.
	Around  func(ctx context.Context, j Job, do func(ctx context.Context) Result) Result
	Metrics Metrics
	Trace   Trace
	// Default: the system's.
	Resolver *net.Resolver
	// Default: the system's certificates.
	TLS *tls.Config
}

// Metrics are callbacks that observe a Client. Each may be nil. They must not
// block.
type Metrics struct {
	// Done is called at the end of every job. Labels and tool names come from requests
	// and models: limit their number before using them as metric labels.
	Done func(j Job, took time.Duration, r Result)
	// Sessions is called with the number of sessions whenever it changes.
	Sessions func(open int)
}

// Trace are callbacks that trace the jobs of a Client. Each may be nil.
type Trace struct {
	// Begin is called at the begin of every job. It returns the context of the job,
	// and a function that is called at its end.
	Begin func(ctx context.Context, j Job) (context.Context, func(took time.Duration, r Result))
	// Inject sets fields that continue the trace of ctx at a server, such as
	// traceparent. They are sent to Trusted servers: as HTTP headers, and in the
	// _meta of tool calls and listings (SEP-414 of MCP).
	Inject func(ctx context.Context, set func(name, value string))
}

const (
	// maxListedBytes bounds the tool descriptions of one server.
	maxListedBytes = 1 << 20
	// maxContentBytes bounds Result.Content and Result.Structured together. A part
	// counts partBytes plus its texts and data.
	maxContentBytes = 4 << 20
	partBytes       = 128
	// maxPages bounds the pages of a tool list.
	maxPages = 100
)

func (o *Options) setDefaults() {
	setDefault(&o.ListTimeout, 10*time.Second)
	setDefault(&o.CallTimeout, time.Minute)
	setDefault(&o.IdleTimeout, 5*time.Minute)
	setDefault(&o.MaxSessions, 1000)
	setDefault(&o.MaxProcesses, 32)
	setDefault(&o.MaxListed, 256)
	setDefault(&o.MaxResultBytes, 256<<10)
	setDefault(&o.MaxMessageBytes, 8<<20)
	setDefault(&o.MaxInflightBytes, 64<<20)

	if o.Log == nil {
		o.Log = logrus.StandardLogger()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	// Callbacks that are always there need not be looked at where they are called.
	if o.Around == nil {
		o.Around = func(ctx context.Context, _ Job, do func(ctx context.Context) Result) Result { return do(ctx) }
	}
	if o.Metrics.Done == nil {
		o.Metrics.Done = func(Job, time.Duration, Result) {}
	}
	if o.Metrics.Sessions == nil {
		o.Metrics.Sessions = func(int) {}
	}
	if o.Trace.Begin == nil {
		o.Trace.Begin = func(ctx context.Context, _ Job) (context.Context, func(time.Duration, Result)) {
			return ctx, func(time.Duration, Result) {}
		}
	}
	if o.Trace.Inject == nil {
		o.Trace.Inject = func(context.Context, func(name, value string)) {}
	}
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Server returns a copy of the configured server with that label, in which Tenant
// and Session can be set. It returns false if there is none.
func (c *Client) Server(label string) (*Server, bool) {
	for i := range c.o.Servers {
		if c.o.Servers[i].Label == label {
			return c.o.Servers[i].clone(), true
		}
	}
	return nil, false
}

// Do runs a job. It ends at the job's own deadline (ListTimeout or CallTimeout) or
// with ctx, whichever is first, and then also cancels the request at the server. A
// tool is never called twice: if a session turns out to have ended before the
// server can have begun, the job runs in a new session. If the connection breaks
// later, or the server answers with an error, that is the result.
func (c *Client) Do(ctx context.Context, j Job) Result {
	start := c.o.Now()
	ctx, end := c.o.Trace.Begin(ctx, j)
	result := c.o.Around(ctx, j, func(ctx context.Context) Result { return c.do(ctx, j) })

	took := c.o.Now().Sub(start)
	end(took, result)
	c.o.Metrics.Done(j, took, result)
	return result
}

func (c *Client) do(ctx context.Context, j Job) Result {
	if j.Server == nil {
		return Result{Error: "The job names no MCP server."}
	}
	if err := c.check(j.Server); err != nil {
		return Result{Error: err.Error()}
	}

	arguments, ok := parseArguments(j.Arguments)
	if !ok {
		return Result{
			Error: "The arguments of the call are not a JSON object. Write an object such as {\"name\": \"value\"}.",
		}
	}

	// The caller may change its server afterwards.
	t := &task{
		client: c, server: j.Server.clone(), tool: j.Tool, arguments: arguments,
		timeout: c.o.CallTimeout, key: "tools.call_timeout",
	}
	if j.Tool == "" {
		t.timeout, t.key = c.o.ListTimeout, "tools.list_timeout"
	}
	return t.run(ctx)
}

// check returns an error if a server may not be used. Trusted servers always may.
func (c *Client) check(server *Server) error {
	if server.Trusted {
		return nil
	}

	if server.Transport == TransportStdio || len(server.Command) > 0 || len(server.Env) > 0 {
		return fmt.Errorf("the MCP server %q is a process: only the configuration can define such servers",
			server.Label)
	}
	if err := c.Allow(server.URL); err != nil {
		return err
	}
	return CheckHeader(server.Header)
}
