package enginesim

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Behavior is how an engine sends its answer, and what goes wrong. It is set
// by directives, key=value with spaces between:
//
//	tokens-per-event=4          ids an event holds; random:8 for 1 to 8
//	delay=5ms                   before each token
//	first=200ms                 before the first token, or before the error
//	cut=7                       bytes of the body a write; random:100 for 1 to 100
//	seed=1                      of everything random
//	output-ids=cumulative       SGLang: incremental or cumulative ids
//	meet=1s                     how long one leg of a request waits for the other
//	grammar=ignore              obey or ignore constraint grammars
//	crlf=true                   lines end in \r\n
//	comments=true               a comment line before each event
//	status=503                  answer so, before the stream
//	retry-after=2               with that header, in seconds
//	body=json                   of the status: json, detail, envoy, html or empty
//	fault=KIND@N                after N tokens of each choice:
//	                            error   an event {"error":…}, then [DONE]
//	                            cut     the connection breaks
//	                            end     the body ends, in good order
//	                            done    [DONE] without a finish reason
//	                            abort   finish reason abort
//	                            abort503 the same with that status (SGLang)
//	                            garbage a line that is no JSON
//	                            hang    silence, until the client leaves
//
// They come from Options, from the request header x-engine-sim, and from lines
// "SIM key=value …" of the last user message; the later one wins. Lines
// "SIM/prefill key=value …" and "SIM/decode …" are for engines of that role alone. The header
// and the lines are the simulator's own: a real engine does not know them.
type Behavior struct {
	TokensPerEvent Count
	Delay          time.Duration
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

// Count is a number, or the upper bound of random ones. 0 is "not set".
type Count struct {
	N      int
	Random bool
}

// With returns b changed by directives.
func (b Behavior) With(directives string) (Behavior, error) {
	for _, field := range strings.Fields(directives) {
		key, value, ok := strings.Cut(field, "=")
		if !ok {
			return b, fmt.Errorf("directive %q: want key=value", field)
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
			err = errors.New("no such status")
		}
	case "retry-after":
		b.RetryAfter, err = strconv.Atoi(value)
	case "body":
		b.Body = value
		err = oneOf(value, "json", "detail", "envoy", "html", "empty")
	case "fault":
		b.Fault, b.FaultAt, err = parseFault(value)
	default:
		err = errors.New("no such key")
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

func parseFault(value string) (kind string, at int, err error) {
	kind, where, ok := strings.Cut(value, "@")
	if ok {
		if at, err = strconv.Atoi(where); err != nil {
			return "", 0, err
		}
	}
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
	return fmt.Errorf("want one of %s", strings.Join(known, ", "))
}

// directives are those in the lines of a user message that an engine of a role
// heeds.
func directives(user, role string) string {
	var found []string
	for line := range strings.Lines(user) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "SIM")
		if own, only := strings.CutPrefix(rest, "/"+role); only && role != "" {
			rest = own
		}
		if ok && strings.HasPrefix(rest, " ") {
			found = append(found, rest)
		}
	}
	return strings.Join(found, " ")
}
