package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/inspect"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
)

const inspectUsage = `Usage: envoy-harmony inspect [flags] RECORDS...

Shows recorded exchanges: each model call with its prompt and its output by message, in
the colors of the channels, and what took how long. RECORDS are files, or folders of
files, as record.folder has them.

Flags:
`

// inspectCommand shows records.
func inspectCommand(_ context.Context, p program, args []string) error {
	flags := recordFlags(p, "inspect", inspectUsage)
	v := recordWriter{out: bufio.NewWriter(p.stdout), painter: newPainter(p.stdout)}
	flags.BoolVar(&v.brief, "brief", false, "one line for each record")
	flags.BoolVar(&v.tokens, "tokens", false, "show each token of outputs with its id and its time")
	flags.BoolVar(&v.reply, "reply", false, "show the bytes of the reply too")
	id := flags.String("id", "", "only the record of the request with this `ID`")
	asJSON := flags.Bool("json", false, "print what is shown as JSON, one object for each record")
	raw := flags.Bool("record", false,
		"print the records themselves as JSON, such as for a test case in filter/testdata/records")
	curl := flags.String("curl", "",
		"print a curl command that sends the request again to this base `URL`, such as http://127.0.0.1:10000")

	paths, err := parseRecords(p, flags, args)
	if err != nil {
		return err
	}
	files, err := record.Files(paths)
	if err != nil {
		return err
	}

	read, shown := 0, 0
	for _, file := range files {
		err := record.ReadFile(file, func(r *record.Record) {
			read++
			if *id != "" && r.ID != *id {
				return
			}
			shown++

			switch {
			case *raw:
				_ = json.NewEncoder(v.out).Encode(r)
			case *curl != "":
				fmt.Fprintln(v.out, inspect.Curl(r, *curl))
			case *asJSON:
				_ = json.NewEncoder(v.out).Encode(inspect.Of(r)) // Flush returns the error
			default:
				v.write(r)
			}
		})
		if err != nil {
			return err
		}
	}

	if *id != "" && shown == 0 {
		return fmt.Errorf("inspect: none of %d records in %d files is of a request with the id %q: it is the "+
			"request_id of the log, and the x-request-id of the reply", read, len(files), *id)
	}
	return v.out.Flush()
}

// recordFlags makes the flags of a command whose arguments are files of records.
func recordFlags(p program, name, usage string) *flag.FlagSet {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(p.stderr)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	return flags
}

// parseRecords parses the command line of a command whose arguments are files of records,
// which it returns.
func parseRecords(p program, flags *flag.FlagSet, args []string) ([]string, error) {
	paths, err := parseMixed(p, flags, args)
	if err == nil && len(paths) == 0 {
		flags.Usage()
		err = errUsage
	}
	return paths, err
}

// recordWriter writes records for people.
type recordWriter struct {
	out                  *bufio.Writer
	painter              painter
	brief, tokens, reply bool
}

func (v *recordWriter) print(style, format string, args ...any) {
	v.painter.styled(v.out, style, fmt.Sprintf(format, args...))
}

func (v *recordWriter) write(r *record.Record) {
	v.head(r)
	if v.brief {
		return
	}
	view := inspect.Of(r)
	v.steps(view.Steps)
	for i := range view.Calls {
		v.call(i, &view.Calls[i])
	}
	if view.Prefix != "" {
		v.print(styleNote, "prefix broken: %s\n", view.Prefix)
	}
	if view.Refused != "" || r.Result.Error != "" {
		v.print(styleNote, "error: %s\n", cmp.Or(view.Refused, r.Result.Error))
	}
	if v.reply && view.Reply != "" {
		v.print(styleHeader, "reply\n")
		v.print("", "%s\n", view.Reply)
	}
	v.print("", "\n")
}

// head writes a line about the exchange.
func (v *recordWriter) head(r *record.Record) {
	v.print(styleHeader, "%s", cmp.Or(r.Result.Response, r.ID))
	v.print("", "  %s  %s", r.Started.UTC().Format("2006-01-02 15:04:05.000"), r.Target.API)
	for _, word := range []string{r.Target.Model, r.Target.Kind, r.Tenant} {
		if word != "" {
			v.print("", "  %s", word)
		}
	}

	style := ""
	// A stream that failed has the status 200 all the same.
	if r.Result.Status != 200 || r.Result.Outcome != "ok" {
		style = styleNote
	}
	v.print(style, "  %d %s", r.Result.Status, r.Result.Outcome)
	v.print("",
		"  %s  %d calls, %d + %d tokens", inspect.Duration(r.Result.Micros).Round(time.Millisecond),
		r.Result.Calls, r.Result.Prompt, r.Result.Output)

	for _, kind := range slices.Sorted(maps.Keys(r.Result.Repairs)) {
		v.print(styleNote, "  repaired: %s %d", kind, r.Result.Repairs[kind])
	}

	if r.Redacted {
		v.print(styleNote, "  redacted")
	}
	if r.Cut {
		v.print(styleNote, "  cut")
	}
	v.print("", "\n")
}

// barWidth is how many characters stand for the time of an exchange.
const barWidth = 40

// steps writes what took how long, each with its part of the time.
func (v *recordWriter) steps(steps []inspect.Step) {
	// Not 0, since times are divided by it.
	var total int64 = 1
	for _, s := range steps {
		total = max(total, s.To)
	}
	for _, s := range steps {
		from, to := int(s.From*barWidth/total), int(s.To*barWidth/total)
		bar := strings.Repeat(" ", from) + strings.Repeat("█", max(1, to-from))
		v.print("",
			"  %-9s %10s  %-*s  %s\n",
			s.Name, inspect.Duration(s.To-s.From).Round(10*time.Microsecond), barWidth+1, bar, s.Of)
	}
}

func (v *recordWriter) call(i int, c *inspect.Call) {
	v.print(styleHeader, "call %d", i+1)
	v.print("", "  %s  prompt of %d tokens", c.ID, c.Tokens)
	if c.Cached != nil {
		v.print("", ", %d cached", *c.Cached)
	}
	if c.Retry > 0 {
		v.print(styleNote, ", retry %d", c.Retry)
	}
	v.print("", ", ended by %s\n", c.Ended)
	for j := range c.Prompt {
		v.message(&c.Prompt[j], false)
	}
	if len(c.Output) > 0 {
		v.print(styleHeader, "  output\n")
	}
	for j := range c.Output {
		v.message(&c.Output[j], v.tokens)
	}
}

// message writes a message: its head, and its text behind a margin, or its tokens.
func (v *recordWriter) message(m *inspect.Message, tokens bool) {
	style := channelStyles[m.Channel]
	v.print(style, "  %s", cmp.Or(m.Role, "?"))
	for _, word := range []string{m.Channel, m.Type} {
		if word != "" {
			v.print(style, " %s", word)
		}
	}
	if m.Recipient != "" {
		v.print(style, " to %s", m.Recipient)
	}
	v.print("", "  (%d tokens)", len(m.Pieces))
	if repairs := m.Repairs(); len(repairs) > 0 {
		v.print(styleNote, "  repaired: %s", strings.Join(repairs, ", "))
	}
	v.print("", "\n")

	if !tokens {
		// Pagers forget a color at the end of a line.
		for line := range strings.SplitSeq(m.Text(), "\n") {
			v.print(style, "    %s\n", line)
		}
		return
	}

	for i := range m.Pieces {
		p := &m.Pieces[i]
		v.print("", "    %7d  %11s  ", p.ID, inspect.Duration(p.At).Round(10*time.Microsecond))
		if p.Logprob != nil {
			v.print("", "%8.3f  ", *p.Logprob)
		}
		if p.Kind == inspect.Special {
			v.print(styleSpecial, "%s", p.Text)
		} else {
			v.print(style, "%q", p.Text)
		}
		if len(p.Repairs) > 0 {
			v.print(styleNote, "  repaired: %s", strings.Join(p.Repairs, ", "))
		}
		v.print("", "\n")
	}
}
