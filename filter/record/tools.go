package record

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/envoy-harmony/envoy-harmony/filter/tools"
)

// Tools takes down the job of a recorded exchange. It is an Around of tools.Options.
func Tools(ctx context.Context, j tools.Job, do func(ctx context.Context) tools.Result) tools.Result {
	if e := From(ctx); e != nil {
		return e.Tool(j, func() tools.Result { return do(ctx) })
	}
	return do(ctx)
}

// toolResult is a tool's result in a record. Its cause is not in it: it may have
// addresses.
type toolResult struct {
	Tools      []listedTool    `json:"tools,omitempty"`
	Text       string          `json:"text,omitempty"`
	Content    []tools.Part    `json:"content,omitempty"`
	Structured json.RawMessage `json:"structured,omitempty"`
	Answered   bool            `json:"answered,omitempty"`
}

// listedTool is a tools.Tool. What a server does not send is absent.
type listedTool struct {
	Name        string          `json:"name"`
	Title       string          `json:"title,omitempty"`
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"input_schema,omitempty"`
	Annotations json.RawMessage `json:"annotations,omitempty"`
}

// Tool implements [Effects]: it runs the job and takes it down.
func (t *Tape) Tool(j tools.Job, do func() tools.Result) tools.Result {
	begun := t.now()
	r := do()
	run := &ToolRun{
		Tool: j.Tool, Arguments: NewText([]byte(j.Arguments)), Error: r.Error,
		Micros: t.now().Sub(begun).Microseconds(),
	}
	if j.Server != nil {
		run.Server = j.Server.Label
	}

	listed := make([]listedTool, 0, len(r.Tools))
	for _, t := range r.Tools {
		listed = append(listed, listedTool(t))
	}

	// An error means that a server's JSON is broken: there is nothing to replay it by.
	result, err := json.Marshal(
		toolResult{Tools: listed, Text: r.Text, Content: r.Content, Structured: r.Structured, Answered: r.Answered},
	)
	if err != nil {
		run.Error = "the result could not be recorded"
	}
	run.Result = result
	t.add(len(run.Result)+len(j.Arguments), Event{Kind: KindTool, Tool: run})
	return r
}

// ToolResult returns the result as the exchange had it.
func (r *ToolRun) ToolResult() (tools.Result, error) {
	var t toolResult
	if err := json.Unmarshal(r.Result, &t); err != nil {
		return tools.Result{}, errors.Join(errors.New("the recorded result of a tool cannot be read"), err)
	}

	// It stays nil where none were listed: an empty list is a listing.
	var listed []tools.Tool
	for _, tool := range t.Tools {
		listed = append(listed, tools.Tool(tool))
	}

	return tools.Result{
		Tools: listed, Text: t.Text, Content: t.Content, Structured: t.Structured, Answered: t.Answered,
		Error: r.Error,
	}, nil
}
