package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"time"
)

const askUsage = `
Asks a model one question through Chat Completions, prints the answer while it is
generated, and exits with status 1 if there is none.

  envoy-harmony ask "What is Envoy?"
  envoy-harmony ask --url https://api.example.com/v1 --model gpt-oss-20b --header x-tenant=a Hello

$OPENAI_BASE_URL and $OPENAI_API_KEY are used as OpenAI's clients do.`

const (
	defaultAskURL   = "http://127.0.0.1:10000/v1"
	defaultAskModel = "gpt-oss-120b"

	maxAskError = 64 << 10 // bytes of an error's body
	maxAskLine  = 4 << 20  // bytes of an event
)

// askPause is the time between two attempts of ask.
var askPause = time.Second

// question is one use of ask.
type question struct {
	url, model, text string
	header           http.Header
	wait, timeout    time.Duration
	reasoning        bool
}

func askCommand(ctx context.Context, p program, args []string) error {
	q, err := parseQuestion(p, args)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, q.timeout)
	defer cancel()

	// An answer that has begun is not asked for again: a part of it is on the terminal.
	said := ""
	for deadline := time.Now().Add(q.wait); ; {
		err := q.ask(ctx, p)
		var later *notReadyError
		if !errors.As(err, &later) || time.Now().After(deadline) {
			return err
		}
		// A gateway that is being set up says the same each second, for a minute.
		if text := err.Error(); text != said {
			fmt.Fprintf(p.stderr, "%s; asking again every %s\n", text, askPause)
			said = text
		}
		select {
		case <-time.After(askPause):
		case <-ctx.Done():
			return err
		}
	}
}

func parseQuestion(p program, args []string) (*question, error) {
	q := &question{header: http.Header{}}
	s := &settings{program: p, flags: newFlags(p, "ask", " [flags] QUESTION", askUsage)}
	s.flags.StringVar(&q.url, "url", cmp.Or(p.getenv("OPENAI_BASE_URL"), defaultAskURL),
		"the base `URL` of the API, with its /v1")
	s.flags.StringVar(&q.model, "model", defaultAskModel, "the model's `name`")
	s.flags.BoolVar(&q.reasoning, "reasoning", false, "print the reasoning too, on standard error")
	s.flags.DurationVar(&q.wait, "wait", 0, "how long to try again while nobody answers, or with 404, 502, 503 or 504")
	s.flags.DurationVar(&q.timeout, "timeout", 5*time.Minute, "the most time for everything")

	if key := p.getenv("OPENAI_API_KEY"); key != "" {
		q.header.Set("Authorization", "Bearer "+key)
	}
	s.flags.Func("header", "a header of the request, `NAME=VALUE`, repeatable", func(v string) error {
		name, value, ok := strings.Cut(v, "=")
		if !ok || name == "" {
			return errors.New("write NAME=VALUE")
		}
		q.header.Set(name, value)
		return nil
	})

	words, err := parseMixed(p, s.flags, args)
	if err != nil {
		return nil, err
	}
	if q.text = strings.Join(words, " "); q.text == "" {
		return nil, s.wrong("the question is missing")
	}
	// Package url takes the host of "localhost:10000" for a scheme.
	if !strings.HasPrefix(q.url, "http://") && !strings.HasPrefix(q.url, "https://") {
		return nil, s.wrong("--url %s: write http:// or https:// before it", q.url)
	}

	return q, nil
}

// notReadyError is an error that may go away by itself.
type notReadyError struct{ error }

func (e *notReadyError) Unwrap() error { return e.error }

// ask asks once and prints the answer.
func (q *question) ask(ctx context.Context, p program) error {
	body, err := json.Marshal(map[string]any{
		"model": q.model, "stream": true,
		"messages": []map[string]string{{"role": "user", "content": q.text}},
	})
	if err != nil {
		return fmt.Errorf("ask: %w", err)
	}

	url := strings.TrimSuffix(q.url, "/") + "/chat/completions"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("ask: --url: %w", err)
	}

	req.Close = true // one request
	req.Header = q.header.Clone()
	req.Header.Set("Content-Type", "application/json")

	// Package net/http does not send a Host of the header.
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
	}

	resp, err := http.DefaultClient.Do(req)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return &notReadyError{fmt.Errorf(
			"ask: no answer: %w (nothing listens there: is --url what run has printed as ready?)", err)}
	case err != nil:
		return &notReadyError{fmt.Errorf("ask: no answer: %w", err)}
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return p.statusError(resp, url)
	}

	// A wrong base URL often answers with 200 and a page.
	if kind := resp.Header.Get("Content-Type"); !strings.HasPrefix(kind, "text/event-stream") {
		return fmt.Errorf(
			"ask: %s answered with %q, not with a stream of events: is --url the base URL of an OpenAI API?", url, kind)
	}
	return q.read(resp.Body, p)
}

// statusError is the error of an answer with another status than 200.
func (p program) statusError(resp *http.Response, url string) error {
	// A proxy's error can be a page of any length.
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxAskError))
	var reply struct {
		Error struct {
			Message string
			// Engines write a number, the filter a word.
			Code any
		}
	}

	message := strings.TrimSpace(string(text))
	if json.Unmarshal(text, &reply) == nil && reply.Error.Message != "" {
		message = reply.Error.Message
	}

	// A gateway whose routes are still being set up says 404, one without an engine a 5xx of these.
	hint, later := "", false
	switch code := reply.Error.Code; {
	// It has come through every route, and a key would not help.
	case code == "tenant_missing":
		hint = " (set it with --header)"
	// So has this. The message names the models that there are.
	case code == "model_not_found":
	case resp.StatusCode == http.StatusUnauthorized, resp.StatusCode == http.StatusForbidden:
		hint = " (set OPENAI_API_KEY, or --header)"
	case resp.StatusCode == http.StatusNotFound:
		hint, later = " (is there a route for this host and path, and does --url end in /v1?)", true
	case resp.StatusCode == http.StatusServiceUnavailable:
		hint, later = " (Envoy cannot reach the filter, or the filter no engine: see "+p.logs()+")", true
	case resp.StatusCode == http.StatusBadGateway, resp.StatusCode == http.StatusGatewayTimeout:
		later = true
	}

	err := fmt.Errorf("ask: %s: %s: %s%s", url, resp.Status, cmp.Or(message, "no message"), hint)
	if later {
		return &notReadyError{err}
	}
	return err
}

// logs says where the logs of the filter and of Envoy are.
func (p program) logs() string {
	// Kubernetes sets it in every container.
	if p.getenv("KUBERNETES_SERVICE_HOST") == "" {
		return "the logs of both"
	}
	return `"kubectl logs --all-containers --selector app.kubernetes.io/component=filter" in the filter's namespace, ` +
		"and the log of the gateway's Envoy"
}

// askChunk is what ask reads of a chunk of Chat Completions.
type askChunk struct {
	Error   *struct{ Message string } `json:"error"`
	Choices []struct {
		Delta struct {
			Content          string `json:"content"`
			Reasoning        string `json:"reasoning"`
			ReasoningContent string `json:"reasoning_content"`
		} `json:"delta"`
		FinishReason string `json:"finish_reason"`
	} `json:"choices"`
}

// read prints the text of a stream. The error names what is missing of the answer.
func (q *question) read(body io.Reader, p program) error {
	lines := bufio.NewScanner(body)
	// The default, 64 KiB, is less than an event can have.
	lines.Buffer(nil, maxAskLine)
	text, finish := false, ""
	for lines.Scan() {
		// Other lines are keep-alives, and the empty ones between events.
		data, ok := strings.CutPrefix(lines.Text(), "data:")
		if !ok {
			continue
		}

		if data = strings.TrimSpace(data); data == "[DONE]" {
			fmt.Fprintln(p.stdout)
			// A limit can cut a reply off while the model reasons: that is no answer.
			if !text {
				return fmt.Errorf("ask: the answer has no text (finish reason %q)", finish)
			}
			return nil
		}

		var chunk askChunk
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			return fmt.Errorf("ask: an event is no chunk of Chat Completions: %w", err)
		}
		if chunk.Error != nil {
			return fmt.Errorf("ask: the stream ended with an error: %s", chunk.Error.Message)
		}

		for _, c := range chunk.Choices {
			if q.reasoning {
				// reasoning_fields of the configuration says which of the two a reply has.
				fmt.Fprint(p.stderr, cmp.Or(c.Delta.ReasoningContent, c.Delta.Reasoning))
			}
			fmt.Fprint(p.stdout, c.Delta.Content)
			text = text || c.Delta.Content != ""
			finish = cmp.Or(c.FinishReason, finish)
		}
	}

	if err := lines.Err(); err != nil {
		return fmt.Errorf("ask: the stream broke: %w", err)
	}
	return errors.New("ask: the stream ended too early, without [DONE]")
}
