package enginesim

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Behavior is how an engine sends its response, and which faults it simulates. It is
// set by directives, key=value separated by spaces, which [Reference] lists. They come
// from Options, from the request header x-engine-sim, and from lines "SIM key=value …"
// of the last user message; later ones override earlier ones. The header and the lines
// exist only in the simulator.
type Behavior struct {
	// When tokens come, and how many in one event.
	TokensPerEvent Count
	First          time.Duration
	Delay          time.Duration
	Rate           float64
	// Zero: when the response begins.
	Start time.Time
	// How long a prefill or decode request waits for the other. 0: 30 s.
	Meet time.Duration

	// What the tokens are, and the form of the events.
	Seed          uint64
	Headers       HeaderForm
	Ungrammatical bool
	Cumulative    bool
	NoTokenizer   bool
	Cut           Count
	CRLF          bool
	Comments      bool

	// A status in place of a stream.
	Status     int
	RetryAfter int
	Body       string

	// What happens after FaultAt tokens.
	Fault   string
	FaultAt int
}

// HeaderForm is in which of the forms that models use the headers of calls are written, from 0;
// [HeadersBySeed]: one of the first three.
type HeaderForm int

// HeadersBySeed chooses by the seed and the length of the conversation, so that a session has
// several.
const HeadersBySeed HeaderForm = -1

func parseHeaderForm(value string) (HeaderForm, error) {
	if value == "seed" {
		return HeadersBySeed, nil
	}
	n, err := strconv.Atoi(value)
	if err == nil && (n < 1 || n > callForms) {
		err = fmt.Errorf("use seed, or a number from 1 to %d", callForms)
	}
	return HeaderForm(n - 1), err
}

// index returns the form in a conversation of so many messages.
func (f HeaderForm) index(seed uint64, messages int) int {
	if f != HeadersBySeed {
		return int(f)
	}
	return rand.New(rand.NewPCG(seed, uint64(messages))).IntN(callForms - 1) //nolint:gosec // a count
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
	case "headers":
		b.Headers, err = parseHeaderForm(value)
	case "output-ids":
		b.Cumulative = value == "cumulative"
		err = oneOf(value, "cumulative", "incremental")
	case "tokenizer":
		b.NoTokenizer = value == "none"
		err = oneOf(value, "own", "none")
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
