package config

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// The values of require_approval.
const (
	ApprovalAlways = "always" // the client has to approve every call
	ApprovalNever  = "never"  // calls are made at once
)

// Tools is about the tools that the filter runs itself: MCP servers, and
// OpenAI's built-in tools, which such servers do the work of.
type Tools struct {
	// AllowedHosts are the hosts that a request's server_url may name, such as
	// mcp.example.com or *.example.com, with :port where it is not the scheme's,
	// and with http:// in front where requests may do without TLS. Empty:
	// requests cannot bring servers.
	AllowedHosts []string `json:"allowed_hosts"`
	// AllowedNetworks are networks, such as 10.1.0.0/16, that requests' servers
	// may be in though they are not public.
	AllowedNetworks []string `json:"allowed_networks"`
	// ListTimeout is how long a server may take to list its tools, and to open a
	// session.
	ListTimeout Duration `json:"list_timeout"`
	// CallTimeout is how long a call of a tool may take.
	CallTimeout Duration `json:"call_timeout"`
	// IdleTimeout is how long an unused session is kept.
	IdleTimeout Duration `json:"idle_timeout"`
	// MaxSessions is how many sessions with servers the process may have.
	MaxSessions int `json:"max_sessions"`
	// MaxProcesses is how many processes of stdio servers there may be, those that
	// are being ended among them.
	MaxProcesses int `json:"max_processes" reload:"restart"`
	// MaxListed is how many tools one server may have.
	MaxListed int `json:"max_listed"`
	// MaxResultBytes is how much of a tool's result the model gets; the rest is
	// cut off.
	MaxResultBytes int `json:"max_result_bytes"`
	// MaxMessageBytes is how long a message of a server may be, encoded as it is.
	MaxMessageBytes int `json:"max_message_bytes"`
	// MaxInflightBytes bounds the answers of all servers that are being read at one
	// time.
	MaxInflightBytes int64 `json:"max_inflight_bytes" reload:"restart"`
	// MaxTurns is how many model calls a response may take.
	MaxTurns int `json:"max_turns"`
	// Servers are the MCP servers that requests may use by their label.
	Servers []ToolServer `json:"servers"`

	// What follows names, by its label, the server that does the work of a
	// built-in tool. Empty: the tool is not offered to the model.

	WebSearch       string `json:"web_search"`
	CodeInterpreter string `json:"code_interpreter"`
	Container       string `json:"container"`
	FileSearch      string `json:"file_search"`
	ImageGeneration string `json:"image_generation"`
}

// ToolServer is an MCP server of the configuration.
type ToolServer struct {
	// Label is the server's name in requests (server_label) and, to the model,
	// its tools' namespace.
	Label string `json:"label"`
	// URL is where the server is, http or https. It is trusted: AllowedHosts and
	// AllowedNetworks are not asked.
	URL string `json:"url"`
	// Transport is http, sse or stdio. Empty: stdio for a command, else whichever
	// of http and sse the server knows.
	Transport string `json:"transport"`
	// Command is the program, with its arguments, of a server that is a process
	// of this machine. Each session has a process of its own.
	Command []string `json:"command"`
	// Env is added to the PATH and the HOME of the process. ${NAME} in a value
	// stands for the filter's own variable.
	Env map[string]string `json:"env"`
	// Headers are sent to the server. ${NAME} in a value stands for a variable of
	// the environment.
	Headers map[string]string `json:"headers"`
	// RequestHeaders are the headers that requests may send to the server. Nil:
	// authorization.
	RequestHeaders []string `json:"request_headers"`
	// AllowedTools are the tools that are offered, of those that the server has.
	// Empty: all.
	AllowedTools []string `json:"allowed_tools"`
	// RequireApproval is always or never; a request may only be stricter. Empty:
	// never.
	RequireApproval string `json:"require_approval"`
}

func defaultTools() Tools {
	return Tools{
		ListTimeout:      Duration{10 * time.Second},
		CallTimeout:      Duration{time.Minute},
		IdleTimeout:      Duration{5 * time.Minute},
		MaxSessions:      1000,
		MaxProcesses:     32,
		MaxListed:        256,
		MaxResultBytes:   256 << 10,
		MaxMessageBytes:  8 << 20,
		MaxInflightBytes: 64 << 20,
		MaxTurns:         32,
	}
}

// builtinKeys returns the values of the keys of built-in tools, which have the tools' names.
func (t *Tools) builtinKeys() map[tools.Builtin]string {
	return map[tools.Builtin]string{
		tools.WebSearch:       t.WebSearch,
		tools.CodeInterpreter: t.CodeInterpreter,
		tools.Container:       t.Container,
		tools.FileSearch:      t.FileSearch,
		tools.ImageGeneration: t.ImageGeneration,
	}
}

// Builtins returns the labels of the servers of the configured built-in tools.
func (t *Tools) Builtins() map[tools.Builtin]string {
	servers := t.builtinKeys()
	maps.DeleteFunc(servers, func(_ tools.Builtin, label string) bool { return label == "" })
	return servers
}

// Options is the configuration as package tools takes it. lookup is
// [os.LookupEnv].
func (t *Tools) Options(lookup func(string) (string, bool)) (tools.Options, error) {
	o := tools.Options{
		ListTimeout:      t.ListTimeout.Duration,
		CallTimeout:      t.CallTimeout.Duration,
		IdleTimeout:      t.IdleTimeout.Duration,
		MaxSessions:      t.MaxSessions,
		MaxProcesses:     t.MaxProcesses,
		MaxListed:        t.MaxListed,
		MaxResultBytes:   t.MaxResultBytes,
		MaxMessageBytes:  t.MaxMessageBytes,
		MaxInflightBytes: t.MaxInflightBytes,
	}

	var errs faults
	for i, entry := range t.AllowedHosts {
		host, err := tools.ParseHost(entry)
		if err != nil {
			errs.add("tools.allowed_hosts[%d]: %w", i, err)
		}
		o.AllowedHosts = append(o.AllowedHosts, host)
	}
	for i, entry := range t.AllowedNetworks {
		// An IPv4 network in the form of IPv6 would match nothing: addresses are compared unmapped.
		network, err := netip.ParsePrefix(entry)
		if err != nil || network.Addr().Is4In6() {
			errs.add("tools.allowed_networks[%d]: %q is no network: write it as 10.1.0.0/16 or fd00:1::/64", i, entry)
			continue
		}
		o.AllowedNetworks = append(o.AllowedNetworks, network.Masked())
	}

	// A server of a built-in tool has to have that tool's functions, which its listing shows. The
	// order of a map is none: the list is sorted.
	for i := range t.Servers {
		server, err := t.Servers[i].resolve(fmt.Sprintf("tools.servers[%d]", i), lookup)
		errs = append(errs, err...)
		for builtin, label := range t.Builtins() {
			if label == server.Label {
				server.Expects = append(server.Expects, builtin.Tools()...)
			}
		}
		slices.Sort(server.Expects)
		o.Servers = append(o.Servers, server)
	}
	return o, errors.Join(errs...)
}

// resolve is the server with the values of its environment variables.
func (s *ToolServer) resolve(path string, lookup func(string) (string, bool)) (tools.Server, faults) {
	server := tools.Server{
		Label:     s.Label,
		URL:       s.URL,
		Transport: s.Transport,
		Command:   s.Command,
		Trusted:   true,
		Approval:  s.RequireApproval == ApprovalAlways,
	}
	if len(s.AllowedTools) > 0 {
		server.AllowedTools = s.AllowedTools
	}
	if s.RequestHeaders == nil && s.URL != "" {
		// As OpenAI's API has it: the token for a server comes with the request.
		server.RequestHeaders = []string{"Authorization"}
	}
	for _, name := range s.RequestHeaders {
		server.RequestHeaders = append(server.RequestHeaders, http.CanonicalHeaderKey(name))
	}

	var errs faults
	value := func(key, text string) string {
		text, err := expand(text, lookup)
		if err != nil {
			errs.add("%s.%s: %w", path, key, err)
		}
		return text
	}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		if server.Env == nil {
			server.Env = map[string]string{}
		}
		server.Env[name] = value("env."+name, s.Env[name])
	}
	for _, name := range slices.Sorted(maps.Keys(s.Headers)) {
		if server.Header == nil {
			server.Header = http.Header{}
		}
		server.Header.Add(name, value("headers."+name, s.Headers[name]))
	}

	if err := tools.CheckHeader(server.Header); err != nil {
		errs.add("%s.headers: %w", path, err)
	}
	return server, errs
}

var variable = regexp.MustCompile(`\$\{([^}]*)\}?`)

// expand puts variables of the environment in the place of ${NAME}.
func expand(text string, lookup func(string) (string, bool)) (string, error) {
	var err error
	text = variable.ReplaceAllStringFunc(text, func(part string) string {
		name := variable.FindStringSubmatch(part)[1]
		// Sent as it is, half a variable would be a credential that the server cannot know.
		if !envName.MatchString(name) || !strings.HasSuffix(part, "}") {
			err = errors.New("write the name of an environment variable between ${ and }")
			return ""
		}
		value, ok := lookup(name)
		if !ok {
			err = fmt.Errorf("the environment variable %s is not set", name)
		}
		return value
	})
	return text, err
}

var (
	serverLabel = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	envName     = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

func (t *Tools) check() (errs faults) {
	labels := map[string]bool{}
	for i := range t.Servers {
		s, path := &t.Servers[i], fmt.Sprintf("tools.servers[%d]", i)
		switch {
		case !serverLabel.MatchString(s.Label):
			errs.add("%s.label: must be 1 to 64 letters, digits, - and _, not %q", path, s.Label)
		case s.Label == turn.FunctionsNamespace:
			errs.add("%s.label: %q is the namespace of clients' functions; change the label", path, s.Label)
		case labels[s.Label]:
			errs.add("%s.label: %q is used twice; each server needs a label of its own", path, s.Label)
		}
		labels[s.Label] = true
		errs = append(errs, s.check(path)...)
	}

	keys := t.builtinKeys()
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		if label := keys[name]; label != "" && !labels[label] {
			errs.add("tools.%s: there is no server %q in tools.servers", name, label)
		}
	}

	// A variable that is not set is found at the start, and not by the first call.
	if _, err := t.Options(os.LookupEnv); err != nil {
		errs = append(errs, err)
	}
	return errs
}

func (s *ToolServer) check(path string) (errs faults) {
	bad := func(key, format string, args ...any) {
		errs.add("%s.%s: %w", path, key, fmt.Errorf(format, args...))
	}

	// Set here, so that what is printed says what holds.
	if s.RequireApproval == "" {
		s.RequireApproval = ApprovalNever
	}
	errs.oneOf(path+".require_approval", s.RequireApproval, ApprovalAlways, ApprovalNever)
	if slices.Contains(s.AllowedTools, "") {
		bad("allowed_tools", "a name is empty")
	}
	errs.optional(path+".transport", s.Transport, tools.TransportHTTP, tools.TransportSSE, tools.TransportStdio)

	switch {
	case len(s.Command) == 0 && s.URL == "":
		bad("url", "write the server's url, or the command of one that is a process")
	case len(s.Command) > 0 && s.URL != "":
		bad("command", "a server has a url or a command, not both")
	case len(s.Command) > 0:
		s.checkProcess(bad)
	default:
		s.checkRemote(bad)
	}
	return errs
}

func (s *ToolServer) checkProcess(bad func(key, format string, args ...any)) {
	switch program := s.Command[0]; {
	case program == "":
		bad("command", "the program is missing")
	// A relative path would depend on where the filter was started.
	case strings.Contains(program, "/") && !filepath.IsAbs(program):
		bad("command", "%q: write an absolute path, or a name that PATH has", program)
	}

	if s.Transport == tools.TransportHTTP || s.Transport == tools.TransportSSE {
		bad("transport", "a command is spoken to by stdio, not %s", s.Transport)
	}
	if len(s.Headers) > 0 {
		bad("headers", "a process gets no headers; use env")
	}
	if len(s.RequestHeaders) > 0 {
		bad("request_headers", "a process gets no headers")
	}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		if !envName.MatchString(name) {
			bad("env", "%q is no name of an environment variable", name)
		}
	}
}

func (s *ToolServer) checkRemote(bad func(key, format string, args ...any)) {
	switch u, err := url.Parse(s.URL); {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		// Its query may hold a secret.
		bad("url", "write it as https://host/path")
	case !fitsPort(u):
		bad("url", "the port must be a number from 1 to 65535")
	case u.User != nil:
		bad("url", "must not have a user or a password; use headers")
	case u.Fragment != "":
		bad("url", "must not have a fragment")
	}
	if s.Transport == tools.TransportStdio {
		bad("transport", "stdio needs a command, not a url")
	}
	if len(s.Env) > 0 {
		bad("env", "only a command has an environment; use headers")
	}
	for _, name := range s.RequestHeaders {
		if err := tools.CheckHeader(http.Header{name: nil}); err != nil {
			bad("request_headers", "%w", err)
		}
	}
}
