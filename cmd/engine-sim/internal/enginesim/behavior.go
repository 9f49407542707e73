package enginesim

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Behavior is how an engine sends its response, and which faults it simulates. It
// is set by directives, key=value separated by spaces:
//
//	tokens-per-event=4          ids per event; random:8 for 1 to 8
//	delay=5ms                   before each token
//	rate=50                     tokens a second, by a schedule: token i, from 0, is due i/rate
//	                            after the first one, however late the ones before were
//	start=1790000000000000      with rate: when the first token is due, in microseconds of the
//	                            Unix epoch; otherwise when the response begins
//	first=200ms                 before the first token, or before the error
//	cut=7                       bytes of the body per write; random:100 for 1 to 100
//	seed=1                      of all random numbers
//	output-ids=cumulative       SGLang: incremental or cumulative ids
//	meet=1s                     how long a prefill or decode request waits for the other
//	grammar=ignore              obey or ignore constraint grammars
//	crlf=true                   lines end with \r\n
//	comments=true               a comment line before each event
//	status=503                  the response is this status without a stream
//	retry-after=2               that header of the status, in seconds
//	body=json                   body of the status: json, detail, envoy, html or empty
//	fault=KIND@N                after N tokens of each choice:
//	                            error   an event {"error":…}, then [DONE]
//	                            cut     the connection is closed
//	                            end     the body ends without an error
//	                            done    [DONE] without a finish reason
//	                            abort   finish reason abort
//	                            abort503 the same with that status (SGLang)
//	                            garbage a line that is not JSON
//	                            hang    nothing until the client disconnects
//
// Directives come from Options, from the request header x-engine-sim, and from lines
// "SIM key=value …" of the last user message. Later ones override earlier ones. Lines
// "SIM/prefill key=value …" and "SIM/decode …" apply only to engines of that role. The
// header and the lines exist only in the simulator.
type Behavior struct {
	TokensPerEvent Count
	Delay          time.Duration
	Rate           float64
	Start          time.Time // zero: when the response begins
	First          time.Duration
	Meet           time.Duration // 0: 30 s
	Cut            Count
	Seed           uint64
	Cumulative     bool
	Ungrammatical  bool
	CRLF           bool
	Comments       bool
	Status         int
	RetryAfter     int
	Body           string
	Fault          string
	FaultAt        int
}

// Count is a number, or the upper limit of a random one. 0 means "not set".
type Count struct {
	N      int
	Random bool
}

// With returns b with directives applied. The error names the wrong directive.
func (b Behavior) With(directives string) (Behavior, error) {
	for _, field := range strings.Fields(directives) {
		key, value, ok := strings.Cut(field, "=")
		if !ok {
			return b, fmt.Errorf("directive %q: write key=value", field)
		}
		if err := b.set(key, value); err != nil {
			return b, fmt.Errorf("directive %q: %w", field, err)
		}
	}
	return b, nil
}

func (b *Behavior) set(key, value string) (err error) {
	switch key {
	case "tokens-per-event":
		b.TokensPerEvent, err = parseCount(value)
	case "cut":
		b.Cut, err = parseCount(value)

	case "delay":
		b.Delay, err = time.ParseDuration(value)
	case "rate":
		b.Rate, err = parseRate(value)
	case "start":
		b.Start, err = parseMicroseconds(value)
	case "first":
		b.First, err = time.ParseDuration(value)
	case "meet":
		b.Meet, err = time.ParseDuration(value)

	case "seed":
		b.Seed, err = strconv.ParseUint(value, 10, 64)
	case "output-ids":
		b.Cumulative = value == "cumulative"
		err = oneOf(value, "cumulative", "incremental")
	case "grammar":
		b.Ungrammatical = value == "ignore"
		err = oneOf(value, "obey", "ignore")
	case "crlf":
		b.CRLF, err = strconv.ParseBool(value)
	case "comments":
		b.Comments, err = strconv.ParseBool(value)

	case "status":
		b.Status, err = strconv.Atoi(value)
		if err == nil && (b.Status < 200 || b.Status > 599) {
			err = errors.New("the status must be from 200 to 599")
		}
	case "retry-after":
		b.RetryAfter, err = strconv.Atoi(value)
	case "body":
		b.Body = value
		err = oneOf(value, "json", "detail", "envoy", "html", "empty")

	case "fault":
		b.Fault, b.FaultAt, err = parseFault(value)

	default:
		err = errors.New("unknown key")
	}
	return err
}

func parseCount(value string) (Count, error) {
	digits, random := strings.CutPrefix(value, "random:")
	n, err := strconv.Atoi(digits)
	if err == nil && n < 1 {
		err = errors.New("must be at least 1")
	}
	return Count{n, random}, err
}

// parseRate parses a rate in tokens per second.
func parseRate(value string) (float64, error) {
	rate, err := strconv.ParseFloat(value, 64)
	if err == nil && (math.IsNaN(rate) || rate < 1e-3 || rate > 1e6) {
		err = errors.New("must be from 0.001 to 1000000")
	}
	return rate, err
}

// parseMicroseconds parses a time in microseconds of the Unix epoch.
func parseMicroseconds(value string) (time.Time, error) {
	us, err := strconv.ParseInt(value, 10, 64)
	return time.UnixMicro(us), err
}

func parseFault(value string) (kind string, at int, err error) {
	kind, where, ok := strings.Cut(value, "@")
	if ok {
		if at, err = strconv.Atoi(where); err != nil {
			return "", 0, err
		}
	}

	// SGLang puts a status beside the finish reason of an abort, so the kind may end with one.
	if status, ok := strings.CutPrefix(kind, "abort"); ok && status != "" {
		_, err = strconv.Atoi(status)
		return kind, at, err
	}
	return kind, at, oneOf(kind, "error", "cut", "end", "done", "abort", "garbage", "hang")
}

func oneOf(value string, known ...string) error {
	if slices.Contains(known, value) {
		return nil
	}
	return fmt.Errorf("use one of %s", strings.Join(known, ", "))
}

// directives returns the directives in the lines of a user message that apply to an
// engine of this role.
func directives(user, role string) string {
	var found []string
	for line := range strings.Lines(user) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "SIM")
		// A line for another role keeps its "/", so it fails the test for a space below.
		if own, only := strings.CutPrefix(rest, "/"+role); only && role != "" {
			rest = own
		}
		if ok && strings.HasPrefix(rest, " ") {
			found = append(found, rest)
		}
	}
	return strings.Join(found, " ")
}
