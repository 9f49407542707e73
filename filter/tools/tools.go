// Package tools is the room for tools that the filter runs itself: it keeps
// sessions with MCP servers (https://modelcontextprotocol.io), lists their
// tools and calls them.
//
// A [Client] does one [Job] at a time for whoever asks, many of them at the same
// time. Sessions are opened when they are first needed, shared by the jobs of the
// same [Server], and closed when nobody has used them for a while. A job always
// ends with a [Result]; what went wrong is in its Error, in words that a client
// and a model may read.
//
// Servers come from the configuration, or from requests. What requests name is
// untrusted: [Client.Allow] tells which of it may be used, and connections only
// go to addresses that the operator has allowed.
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

// The transports of MCP. A server with an URL and no transport is spoken to over
// streamable HTTP, or over SSE if it does not know that.
const (
	TransportHTTP  = "http"  // streamable HTTP
	TransportSSE   = "sse"   // HTTP with server-sent events, as MCP had it before
	TransportStdio = "stdio" // a process of this machine
)

// Server is an MCP server as one request may use it. Requests share a session
// where all of it is the same, but for Label, RequestHeaders, AllowedTools and
// Approval.
type Server struct {
	Label     string // server_label
	URL       string // http or https; "" for a server that is a process
	Transport string // one of the Transport constants; "" chooses
	// Command is the program of a stdio server with its arguments. It is never
	// taken from requests: only a Trusted server has one.
	Command []string
	// Env is added to the process' PATH and HOME, which are all that it
	// inherits. Values are secrets.
	Env map[string]string `json:"-"`
	// Header is sent with every HTTP request. Values are secrets: they are in no
	// log, no error and not in String.
	Header http.Header `json:"-"`
	Tenant string      // sessions are never shared between tenants
	// Session keeps sessions of a tenant apart, such as by conversation. "":
	// the tenant's requests share one.
	Session string
	// Trusted is a server of the configuration: neither its host nor its
	// addresses have to be allowed.
	Trusted bool
	// RequestHeaders are the names, as [http.CanonicalHeaderKey] writes them, of
	// the headers that requests may add to those of a Trusted server.
	RequestHeaders []string
	// Expects are tools that the server has to have, for it does the work of a
	// built-in tool. If it does not list them, the log is told, and calls of them
	// fail.
	Expects []string
	// AllowedTools are the only tools that may be offered to a model; nil: all.
	// Approval says that a client has to approve every call. Both are the
	// operator's (allowed_tools, require_approval) and kept by who makes the Job.
	AllowedTools []string
	Approval     bool
}

// String names the server: its label and, without path and query, its address.
func (s Server) String() string {
	switch u, err := url.Parse(s.URL); {
	case s.URL == "":
		return fmt.Sprintf("%q", s.Label)
	case err != nil:
		return fmt.Sprintf("%q (no valid URL)", s.Label)
	default:
		return fmt.Sprintf("%q at %s", s.Label, origin(u))
	}
}

// GoString is String, so that no verb prints secrets.
func (s Server) GoString() string { return "tools.Server{" + s.String() + "}" }

func (s *Server) isProcess() bool { return s.URL == "" }

// clone is a copy that shares nothing with s.
func (s *Server) clone() *Server {
	c := *s
	c.Command = slices.Clone(s.Command)
	c.RequestHeaders = slices.Clone(s.RequestHeaders)
	c.Expects = slices.Clone(s.Expects)
	c.AllowedTools = slices.Clone(s.AllowedTools)
	c.Env = maps.Clone(s.Env)
	c.Header = s.Header.Clone()
	return &c
}

// key is the same for servers that may share a session.
func (s *Server) key() string {
	h := sha256.New()
	texts(h, s.Tenant, s.Session, s.Transport, s.URL, strconv.FormatBool(s.Trusted))
	texts(h, s.Command...)
	texts(h, s.Expects...)
	texts(h, slices.Sorted(maps.Keys(s.Env))...)
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		texts(h, s.Env[name])
	}
	texts(h, slices.Sorted(maps.Keys(s.Header))...)
	for _, name := range slices.Sorted(maps.Keys(s.Header)) {
		texts(h, s.Header[name]...)
	}
	return string(h.Sum(nil))
}

// texts hashes a list so that no other list gives the same bytes.
func texts(h hash.Hash, list ...string) {
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
	Name        string // "" if the server gives none: nobody can call it
	Title       string
	Description string
	InputSchema json.RawMessage // a JSON Schema object, its members in the server's order; nil if there is none
	Annotations json.RawMessage // the server's hints; nil if there are none
}

// Job is one thing to do at a server.
type Job struct {
	Server *Server
	// Tool is the tool to call, under its server's name. "": list the tools.
	Tool string
	// Arguments is what the model wrote. Nothing at all counts as {}; anything
	// but a JSON object is told in the result's Error.
	Arguments string
}

// Part is one part of what a tool gave.
type Part struct {
	Type string // MCP's content type: text, image, audio, resource or resource_link
	Text string // of a text, or of a resource that is one
	MIME string
	URI  string // of a resource or a link to one
	Name string // of a link
	Data []byte // of an image, a sound, or a resource that is no text
}

// Result is how a job ended.
type Result struct {
	Tools []Tool // of a listing
	// Text is what a call gave, for the model: texts joined by newlines, a short
	// note in place of what is no text.
	Text string
	// Content is what a call gave, as it came, and Structured its structured
	// result, nil if there is none. Together they have at most 4 MiB: parts that
	// do not fit are left out, which the last one then says, and so is a
	// structured result that does not fit beside the parts.
	Content    []Part
	Structured json.RawMessage
	// Answered says that the tool has given a result, if only that it failed.
	Answered bool
	// Error says what failed, in words fit for clients and models; "" if nothing
	// did. An error that the tool itself tells stands here, too.
	Error string
	// Cause is more of it for the log, free of secrets and bounded; nil if Error
	// says all.
	Cause error
}

// Options say how a Client works. The zero value of each gives its default.
type Options struct {
	Servers         []Server       // the configured ones
	AllowedHosts    []Host         // the hosts that requests may name
	AllowedNetworks []netip.Prefix // addresses that requests may reach though they are not public
	ListTimeout     time.Duration  // of a listing, and of opening a session; default 10s
	CallTimeout     time.Duration  // of a call; default 60s
	IdleTimeout     time.Duration  // after which an unused session is closed; default 5m
	MaxSessions     int            // default 1000
	MaxProcesses    int            // of stdio servers; default 32
	MaxListed       int            // tools of one server; default 256
	MaxResultBytes  int            // of Result.Text and Result.Error; default 262144
	MaxMessageBytes int            // of one message of a server; default 8 MiB
	// MaxInflightBytes bounds the answers of all servers that are being read, or
	// made into results, at one time; default 64 MiB.
	MaxInflightBytes int64
	Log              *logrus.Logger // default: logrus's standard logger
	Now              func() time.Time
	Metrics          Metrics
	Resolver         *net.Resolver // default: the system's
	TLS              *tls.Config   // default: the system's certificates
}

// Metrics are told what a Client does. Each may be nil. They must not block.
type Metrics struct {
	// Done is told of every job when it has ended. Labels and tools' names come
	// from requests and models: bound them before they become labels.
	Done func(j Job, took time.Duration, r Result)
	// Sessions is told how many sessions there are, whenever that changes.
	Sessions func(open int)
}

const (
	// maxListedBytes bounds the descriptions of a server's tools.
	maxListedBytes = 1 << 20
	// maxContentBytes bounds Result.Content and Result.Structured together;
	// partBytes is what a part counts without its texts and data.
	maxContentBytes = 4 << 20
	partBytes       = 128
	// maxPages bounds the pages of a listing.
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
	if o.Metrics.Done == nil {
		o.Metrics.Done = func(Job, time.Duration, Result) {}
	}
	if o.Metrics.Sessions == nil {
		o.Metrics.Sessions = func(int) {}
	}
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Server gives a copy of the configured server of that label, to set Tenant and
// Session in.
func (c *Client) Server(label string) (*Server, bool) {
	for i := range c.o.Servers {
		if c.o.Servers[i].Label == label {
			return c.o.Servers[i].clone(), true
		}
	}
	return nil, false
}

// Do does a job. It ends by the job's own deadline (ListTimeout, CallTimeout) or
// with ctx, whichever is first; a call that is under way is then cancelled at the
// server, too. A call is never made twice: if a session turns out to be gone
// before the server can have begun, the job is done with a new one; if the
// connection breaks later, or the server answers with an error, that is the
// result.
func (c *Client) Do(ctx context.Context, j Job) Result {
	start := c.o.Now()
	result := c.do(ctx, j)
	c.o.Metrics.Done(j, c.o.Now().Sub(start), result)
	return result
}

func (c *Client) do(ctx context.Context, j Job) Result {
	if j.Server == nil {
		return Result{Error: "No MCP server is named."}
	}
	if err := c.check(j.Server); err != nil {
		return Result{Error: err.Error()}
	}
	arguments, ok := objectOf(j.Arguments)
	if !ok {
		return Result{Error: "The arguments of the call are not a JSON object. Write them as one, such as {\"name\": \"value\"}."}
	}
	t := &task{client: c, server: j.Server.clone(), tool: j.Tool, arguments: arguments, timeout: c.o.CallTimeout, key: "tools.call_timeout"}
	if j.Tool == "" {
		t.timeout, t.key = c.o.ListTimeout, "tools.list_timeout"
	}
	return t.run(ctx)
}

// check tells why a server may not be used; only what requests may decide can be
// wrong.
func (c *Client) check(s *Server) error {
	if s.Trusted {
		return nil
	}
	if s.Transport == TransportStdio || len(s.Command) > 0 || len(s.Env) > 0 {
		return fmt.Errorf("the MCP server %q is a process: such servers come from the configuration only", s.Label)
	}
	if err := c.Allow(s.URL); err != nil {
		return err
	}
	return CheckHeader(s.Header)
}
