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
	"os"
	"strconv"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

const tokensUsage = `Usage: envoy-harmony tokens COMMAND [flags] [FILE]

Reads FILE or standard input, and writes to standard output.

  encode   text to token ids
  decode   token ids to text
  render   a conversation in openai-harmony's JSON to token ids
  parse    the token ids of a completion to its messages

Token ids are numbers separated by spaces, commas or newlines; brackets are
ignored. With -jsonl every line of input and output is a JSON object:

  encode   {"s": text}     to  {"t": [ids]}
  decode   {"t": [ids]}    to  {"s": text}
  render   a conversation  to  {"t": [ids]}
  parse    {"t": [ids]}    to  {"msgs": [[channel, recipient, content type, text], ...],
                                "delta": all deltas joined, "err": whether it failed}

A line that fails yields {"error": reason}, and the exit status is 1.
"envoy-harmony tokens COMMAND -h" lists the flags of a command.
`

// tokensCommand runs a function of package harmony on files or standard input.
func tokensCommand(_ context.Context, p program, args []string) error {
	if len(args) == 0 {
		fmt.Fprint(p.stderr, tokensUsage)
		return errUsage
	}
	if args[0] == "-h" || args[0] == "--help" || args[0] == "help" {
		fmt.Fprint(p.stdout, tokensUsage)
		return nil
	}

	w := &tokensWork{name: args[0]}
	if w.do = w.command(); w.do == nil {
		fmt.Fprintf(p.stderr, "tokens: no command %q: use encode, decode, render or parse\n", args[0])
		return errUsage
	}

	flags := w.flags(p)
	if err := parseFlags(p, flags, args[1:]); err != nil {
		return err
	}

	if err := w.run(flags.Args(), p.stdin, p.stdout); err != nil {
		return fmt.Errorf("tokens %s: %w", w.name, err)
	}
	return nil
}

// tokensWork is one execution of a subcommand of tokens.
type tokensWork struct {
	name string
	do   tokensPart
	// jsonl says that each line of input and output is a JSON object.
	jsonl bool

	// Flags of encode.
	special bool
	// Flags of render.
	filter   bool
	text     bool
	training bool
	next     string
	// Flags of parse.
	role string
	mode harmony.Mode

	renderer *harmony.Renderer
	paint    painter
}

func (c *tokensWork) flags(p program) *flag.FlagSet {
	f := newFlags(p, "tokens "+c.name, " [flags]", `"envoy-harmony tokens --help" says what it does.`)
	f.BoolVar(&c.jsonl, "jsonl", false, "read and write one JSON object per line")

	switch c.name {
	case "encode":
		f.BoolVar(&c.special, "special", false, "read spelled special tokens, such as <|start|>, as special tokens")
	case "render":
		f.BoolVar(&c.filter, "filter", false, "render like the filter: valid TypeScript, and no analysis before the "+
			"last final answer (default: like openai-harmony)")
		f.BoolVar(&c.text, "text", false, "write the text of the tokens instead of their ids")
		f.StringVar(&c.next, "next", "assistant",
			"`role` of the message that the model writes next; none for no next message")
		f.BoolVar(&c.training, "training", false,
			"render a training example, which ends with <|return|>; implies -next none")
	case "parse":
		f.StringVar(&c.role, "role", "assistant",
			"`role` of the message that the prompt has started; none if the ids begin with <|start|>")
		strict := func(m harmony.Mode) func(string) error {
			return func(string) error { c.mode = m; return nil }
		}
		f.BoolFunc("strict", "fail where openai-harmony fails (default: repair)", strict(harmony.Strict))
		f.BoolFunc("permissive", "parse like openai-harmony with strict=False", strict(harmony.Permissive))
	}

	return f
}

// tokensPart processes one input: everything, or a line.
type tokensPart func(in []byte, out *bufio.Writer) error

// command returns what the subcommand does; nil: there is no such subcommand.
func (c *tokensWork) command() tokensPart {
	switch c.name {
	case "encode":
		return c.encode
	case "decode":
		return c.decode
	case "render":
		return c.render
	case "parse":
		return c.parse
	}
	return nil
}

func (c *tokensWork) run(files []string, stdin io.Reader, stdout io.Writer) error {
	if len(files) > 1 {
		return fmt.Errorf("%d files: name one, or none to read standard input", len(files))
	}
	if len(files) == 1 && files[0] != "-" {
		f, err := os.Open(files[0])
		if err != nil {
			return err
		}
		defer f.Close()
		stdin = f
	}
	if err := c.configure(stdout); err != nil {
		return err
	}
	out := bufio.NewWriter(stdout)
	err := c.process(stdin, out)
	return errors.Join(err, out.Flush())
}

// configure derives what the functions need from the flags.
func (c *tokensWork) configure(stdout io.Writer) error {
	c.paint = newPainter(stdout)
	for _, role := range []*string{&c.next, &c.role} {
		switch harmony.Role(*role) {
		case harmony.RoleAssistant, harmony.RoleUser, harmony.RoleSystem, harmony.RoleDeveloper, harmony.RoleTool:
		case "", "none":
			*role = ""
		default:
			return fmt.Errorf("role %q: use assistant, user, system, developer, tool or none", *role)
		}
	}

	// By default as openai-harmony does it, so that outputs of both can be compared.
	options := []harmony.RendererOption{
		harmony.WithReferenceSchema(),
		harmony.WithAnalysis(harmony.DropBeforeFirstFinal),
	}
	if c.filter {
		options = nil
	}
	c.renderer = harmony.NewRenderer(options...)
	return nil
}

// process processes the whole input or, with -jsonl, each line.
func (c *tokensWork) process(in io.Reader, out *bufio.Writer) error {
	if !c.jsonl {
		data, err := io.ReadAll(in)
		if err != nil {
			return err
		}
		return c.do(data, out)
	}

	// Not a Scanner, whose lines are bounded: the ids of a prompt are megabytes.
	lines := bufio.NewReader(in)
	failed := 0
	for {
		line, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			if err := c.do(line, out); err != nil {
				// The other lines count all the same: outputs are compared with others line by line.
				failed++
				writeLine(out, map[string]string{"error": err.Error()})
			}
		}

		switch {
		case errors.Is(err, io.EOF) && failed > 0:
			return fmt.Errorf("%d lines failed", failed)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// writeLine writes v as a line of JSON. Flush returns an error of the writer.
func writeLine(out *bufio.Writer, v any) {
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	_ = e.Encode(v)
}

func (c *tokensWork) encode(in []byte, out *bufio.Writer) error {
	text := string(in)
	if c.jsonl {
		var line struct{ S *string }
		if err := json.Unmarshal(in, &line); err != nil {
			return err
		}
		if line.S == nil {
			return errors.New(`the line has no "s": write {"s": "text"}`)
		}
		text = *line.S
	}

	appendTokens := harmony.AppendEncode
	if c.special {
		appendTokens = harmony.AppendEncodeSpecial
	}
	c.writeTokens(out, appendTokens(nil, text))
	return nil
}

func (c *tokensWork) decode(in []byte, out *bufio.Writer) error {
	tokens, err := c.readTokens(in)
	if err != nil {
		return err
	}
	if !c.jsonl {
		c.paint.tokens(out, tokens)
		return nil
	}

	var d harmony.Decoder
	var text []byte
	for _, t := range tokens {
		text, _ = d.Append(text, t)
	}
	writeLine(out, map[string]string{"s": string(d.Flush(text))})
	return nil
}

func (c *tokensWork) render(in []byte, out *bufio.Writer) error {
	msgs, err := harmony.UnmarshalConversation(in)
	if err != nil {
		return err
	}

	var tokens []harmony.Token
	switch {
	case c.training:
		tokens, err = c.renderer.AppendTraining(nil, msgs)
	case c.next == "":
		tokens, err = c.renderer.AppendConversation(nil, msgs)
	default:
		tokens, err = c.renderer.AppendCompletion(nil, msgs, harmony.Role(c.next))
	}
	if err != nil {
		return err
	}

	if c.text && !c.jsonl {
		c.paint.tokens(out, tokens)
		return nil
	}
	c.writeTokens(out, tokens)
	return nil
}

func (c *tokensWork) parse(in []byte, out *bufio.Writer) error {
	tokens, err := c.readTokens(in)
	if err != nil {
		return err
	}
	p := harmony.NewParser(c.mode, harmony.Role(c.role))
	if c.jsonl {
		writeLine(out, parsed(p, tokens))
		return nil
	}

	err = parseTokens(p, tokens, func(e harmony.Event) { c.paint.event(out, e) })
	repairs := p.Repairs()
	for kind, n := range repairs.All() {
		c.paint.note(out, fmt.Sprintf("repaired: %s (%d)", kind, n))
	}
	return err
}

// parsedLine is the result of parse in the format of the reference's test cases.
type parsedLine struct {
	Msgs  [][4]string `json:"msgs"`
	Delta string      `json:"delta"`
	Err   bool        `json:"err"`
	Error string      `json:"error,omitempty"`
}

// parsed parses a completion. An error is a part of the result.
func parsed(p *harmony.Parser, tokens []harmony.Token) parsedLine {
	result := parsedLine{Msgs: [][4]string{}}
	var delta, text []byte
	err := parseTokens(p, tokens, func(e harmony.Event) {
		text = append(text, e.Text...)
		switch e.Kind {
		case harmony.MessageStart:
			text = text[:0]
		case harmony.Delta:
			delta = append(delta, e.Text...)
		case harmony.MessageEnd:
			result.Msgs = append(result.Msgs,
				[4]string{e.Header.Channel, e.Header.Recipient, e.Header.ContentType, string(text)})
		}
	})

	result.Delta = string(delta)
	if err != nil {
		result.Err, result.Error = true, err.Error()
	}
	return result
}

// parseTokens parses a completion up to its end or the first error.
func parseTokens(p *harmony.Parser, tokens []harmony.Token, each func(harmony.Event)) error {
	for _, t := range tokens {
		// With an error come the events before it, which openai-harmony has returned by then too.
		events, err := p.Push(t)
		for _, e := range events {
			each(e)
		}
		if err != nil {
			return err
		}
	}
	events, err := p.Close()
	for _, e := range events {
		each(e)
	}
	return err
}

// readTokens reads ids that are separated by spaces, commas, brackets or newlines, or those of a line.
func (c *tokensWork) readTokens(in []byte) ([]harmony.Token, error) {
	if c.jsonl {
		var line struct{ T *[]harmony.Token }
		if err := json.Unmarshal(in, &line); err != nil {
			return nil, err
		}
		if line.T == nil {
			return nil, errors.New(`the line has no "t": write {"t": [ids]}`)
		}
		return *line.T, nil
	}

	fields := strings.FieldsFunc(string(in), func(r rune) bool { return strings.ContainsRune(" \t\r\n,[]", r) })
	tokens := make([]harmony.Token, len(fields))
	for i, f := range fields {
		id, err := strconv.ParseUint(f, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("token %d is %q: write ids as numbers separated by spaces or commas", i, f)
		}
		tokens[i] = harmony.Token(id)
	}
	return tokens, nil
}

// writeTokens writes ids separated by spaces, or as a line. Flush returns an error of the writer.
func (c *tokensWork) writeTokens(out *bufio.Writer, tokens []harmony.Token) {
	if c.jsonl {
		// No tokens are an empty list, and not null.
		writeLine(out, map[string][]harmony.Token{"t": append([]harmony.Token{}, tokens...)})
		return
	}
	ids := strings.Trim(fmt.Sprint(tokens), "[]")
	_, _ = out.WriteString(ids + "\n")
}
