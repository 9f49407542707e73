// Command demo runs a conversation with a simulated gpt-oss through a real Envoy.
// It prints what an OpenAI client receives next to the engine's tokens. "make demo"
// runs it.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"
)

const (
	model = "gpt-oss-120b"
	// Scripts of the simulated model.
	question = `What do I wear in Bern today?
THINK The weather decides that. There is a tool for it.
COMMENTARY I look at the weather first.
CALL get_weather {"city":"Bern"}
SAY Take a jacket: it is 12 °C and rains. ☔`
	weather = `{"celsius":12,"sky":"rain"}`
	joke    = `Tell me a joke.
THINK A short one.
SAY Why do tokens never get lost? They know their channel.`
	again = `Which one was that?
NOTHINK
LAST_ASSISTANT`
)

func main() {
	command := flag.String("command", "bin/envoy-harmony", "the envoy-harmony `binary`")
	flag.Parse()
	if err := run(*command); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(command string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	return play(ctx, command, newScreen(os.Stdout))
}

// play starts the data plane, sends the requests and stops it.
func play(ctx context.Context, command string, s *screen) (err error) {
	s.title("envoy-harmony run --simulate")
	base, stop, err := start(ctx, command)
	if err != nil {
		return err
	}

	// A demo whose processes do not end in good order has failed.
	defer func() { err = errors.Join(err, stop()) }()
	s.field("client", plain, "openai-go, base URL "+base)
	s.field("Envoy", plain, "with the filter beside it and a simulated engine behind it")

	d := &demo{
		screen: s, base: base,
		// The SDK must not repeat a request that fails: the demo shows each one once.
		client: openai.NewClient(option.WithBaseURL(base), option.WithAPIKey("none"), option.WithMaxRetries(0),
			// Slow enough to watch.
			option.WithHeader("x-engine-sim", "delay=12ms")),
	}
	return d.talk(ctx)
}

// demo is the client.
type demo struct {
	screen *screen
	base   string
	client openai.Client

	// before is the prompt of the previous turn.
	before string
	// last is the id of the last response.
	last string
}

// talk is the conversation, step by step.
func (d *demo) talk(ctx context.Context) error {
	s := d.screen
	messages := make([]openai.ChatCompletionMessageParamUnion, 0, 3)
	messages = append(messages, openai.UserMessage(question))
	s.title("1  A question: the model thinks and calls a tool")
	s.field("user", user, question)
	s.field("tool", user, "get_weather(city: string)")
	answer, err := d.chat(ctx, "demo-1", messages)
	if err != nil {
		return err
	}
	if len(answer.ToolCalls) != 1 {
		return fmt.Errorf("the model made %d tool calls, not one", len(answer.ToolCalls))
	}

	// The client sends back what the SDK knows of a message, which has no reasoning.
	messages = append(messages, answer.ToParam(), openai.ToolMessage(weather, answer.ToolCalls[0].ID))
	s.title("2  The tool's result: the model sees its reasoning again, which the client has not sent, and answers")
	s.field("tool", user, weather)
	if _, err := d.chat(ctx, "demo-2", messages); err != nil {
		return err
	}

	s.title("3  The Responses API: the response is stored")
	s.field("user", user, joke)
	if err := d.respond(ctx, "demo-3", joke); err != nil {
		return err
	}

	s.title("4  The next turn: the client names the response, and the model sees the conversation")
	s.field("user", user, again)
	if err := d.respond(ctx, "demo-4", again); err != nil {
		return err
	}

	s.title("5  Another model: the filter lets it pass, byte for byte")
	other, err := d.client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{
		Model: "another-model", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Hello")},
	})
	if err != nil {
		return err
	}
	s.field("content", final, other.Choices[0].Message.Content)

	s.title("Done")
	s.field("next", plain, "bin/envoy-harmony run --engine vllm=http://YOUR-ENGINE:8000")
	return nil
}

// start runs the command and returns the base URL that it prints.
func start(ctx context.Context, command string) (base string, stop func() error, err error) {
	// The engine's records are read through Envoy, whose other paths are closed.
	cmd := exec.CommandContext(ctx, command, "run", "--simulate", "--listen", "127.0.0.1:0", "--open-paths",
		"/sim/requests", "--log-level", "error")
	// By a signal that the command handles: it ends Envoy and the engine in good order.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	var log bytes.Buffer
	cmd.Stderr = &log

	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, fmt.Errorf("start %s (run make build first): %w", command, err)
	}

	stop = func() error {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			return err
		}
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("%s: %w\n%s", command, err, &log)
		}
		return nil
	}

	// The command prints its address when all of its processes are ready.
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return "", nil, fmt.Errorf("%s did not become ready: %w", command, stop())
	}
	_, base, _ = strings.Cut(strings.TrimSpace(line), " ")
	return base, stop, nil
}

// chat sends a chat request and shows its stream, and then the engine's side.
func (d *demo) chat(ctx context.Context, id string,
	messages []openai.ChatCompletionMessageParamUnion,
) (*openai.ChatCompletionMessage, error) {
	d.screen.heading("what the client sees")
	stream := d.client.Chat.Completions.NewStreaming(ctx, openai.ChatCompletionNewParams{
		Model:         model,
		Messages:      messages,
		StreamOptions: openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)},
		Tools: []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
			Name:        "get_weather",
			Description: openai.String("Tells the weather of a city."),
			Parameters: shared.FunctionParameters{
				"type":       "object",
				"properties": map[string]any{"city": map[string]any{"type": "string"}},
				"required":   []string{"city"},
			},
		})},
	}, option.WithHeader("x-request-id", id))

	defer func() { _ = stream.Close() }()

	var acc openai.ChatCompletionAccumulator
	for stream.Next() {
		chunk := stream.Current()
		acc.AddChunk(chunk)
		for _, choice := range chunk.Choices {
			d.delta(&choice.Delta)
		}
	}

	if err := stream.Err(); err != nil {
		return nil, err
	}
	if len(acc.Choices) != 1 {
		return nil, fmt.Errorf("the reply has %d choices", len(acc.Choices))
	}
	d.screen.field("finish", plain, acc.Choices[0].FinishReason)
	d.screen.field("usage", plain, fmt.Sprintf(
		"%d prompt tokens, %d cached; %d completion tokens, %d of them reasoning",
		acc.Usage.PromptTokens, acc.Usage.PromptTokensDetails.CachedTokens,
		acc.Usage.CompletionTokens, acc.Usage.CompletionTokensDetails.ReasoningTokens))
	return &acc.Choices[0].Message, d.engineSide(ctx, id)
}

// delta shows the content of a chunk.
func (d *demo) delta(delta *openai.ChatCompletionChunkChoiceDelta) {
	var more struct {
		// Reasoning is not in the SDK's types.
		Reasoning string `json:"reasoning"`
	}
	if json.Unmarshal([]byte(delta.RawJSON()), &more) == nil && more.Reasoning != "" {
		d.screen.stream("reasoning", analysis, more.Reasoning)
	}
	if delta.Content != "" {
		d.screen.stream("content", final, delta.Content)
	}
	for _, call := range delta.ToolCalls {
		// The name comes with a call's first delta, the arguments with those that follow.
		if call.Function.Name != "" {
			d.screen.stream("tool call", commentary, call.Function.Name+" ")
		}
		d.screen.stream("tool call", commentary, call.Function.Arguments)
	}
}

// respond sends a Responses API request that continues the last response, and shows
// its stream and the engine's side.
func (d *demo) respond(ctx context.Context, id, text string) error {
	d.screen.heading("what the client sees")
	request := responses.ResponseNewParams{
		Model: model,
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(text)},
	}

	if d.last != "" {
		request.PreviousResponseID = openai.String(d.last)
		d.screen.field("continues", plain, d.last)
	}

	stream := d.client.Responses.NewStreaming(ctx, request, option.WithHeader("x-request-id", id))
	defer func() { _ = stream.Close() }()

	var response responses.Response
	for stream.Next() {
		switch event := stream.Current(); event.Type {
		case "response.reasoning_text.delta":
			d.screen.stream("reasoning", analysis, event.Delta)
		case "response.output_text.delta":
			d.screen.stream("text", final, event.Delta)
		case "response.completed", "response.incomplete", "response.failed":
			response = event.Response
		}
	}

	if err := stream.Err(); err != nil {
		return err
	}

	if response.Status != responses.ResponseStatusCompleted {
		return fmt.Errorf("the response is %q", response.Status)
	}

	d.last = response.ID
	d.screen.field("response", plain, fmt.Sprintf("%s, %s", response.ID, response.Status))
	d.screen.field("usage", plain, fmt.Sprintf("%d input tokens, %d cached; %d output tokens, %d of them reasoning",
		response.Usage.InputTokens, response.Usage.InputTokensDetails.CachedTokens,
		response.Usage.OutputTokens, response.Usage.OutputTokensDetails.ReasoningTokens))

	return d.engineSide(ctx, id)
}

// engineSide shows the tokens of a request as recorded by the simulated engine. The
// records are read through Envoy, too: their path is opened.
func (d *demo) engineSide(ctx context.Context, id string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(d.base, "/v1")+"/sim/requests",
		http.NoBody)
	if err != nil {
		return err
	}

	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()

	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}

	var records []struct {
		Path      string   `json:"path"`
		RequestID string   `json:"request_id"`
		PromptIDs []int    `json:"prompt_ids"`
		OutputIDs [][]int  `json:"output_ids"`
		Prompt    string   `json:"prompt"`
		Output    []string `json:"output"`
	}
	if err := json.Unmarshal(body, &records); err != nil {
		return fmt.Errorf("read the engine's records: %w", err)
	}

	for _, r := range records {
		// The engine's request id contains the client's.
		if !strings.Contains(r.RequestID+"-", id+"-") || len(r.Output) != 1 {
			continue
		}

		d.screen.heading(fmt.Sprintf("what the engine got: %d token ids at %s", len(r.PromptIDs), r.Path))
		d.screen.ids(r.PromptIDs)
		d.screen.harmony(d.news(r.Prompt))
		d.screen.heading(fmt.Sprintf("what the engine returned: %d token ids", len(r.OutputIDs[0])))
		d.screen.ids(r.OutputIDs[0])
		d.screen.harmony(r.Output[0])
		return nil
	}

	return fmt.Errorf("the engine has no record of request %s", id)
}

// news returns the messages of a prompt that the previous one does not have.
func (d *demo) news(prompt string) string {
	same := 0
	for same < min(len(prompt), len(d.before)) && prompt[same] == d.before[same] {
		same++
	}
	d.before = prompt
	// The first difference is within a message, which is shown from its start.
	if at := strings.LastIndex(prompt[:same], "<|start|>"); at > 0 {
		return "(as before)" + prompt[at:]
	}
	return prompt
}
