package main

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
)

// rows formats log lines for people at a terminal: one row each, without what they have not
// asked for. Programs read JSON, which has all.
type rows struct{ painter painter }

// Format implements [logrus.Formatter].
func (r rows) Format(e *logrus.Entry) ([]byte, error) {
	row := r.painter.paint(styleQuiet, e.Time.Format(time.TimeOnly)) + "  "
	if e.Message == "request" {
		row += r.request(fields(e.Data))
	} else {
		row += r.line(e)
	}
	return append([]byte(row), '\n'), nil
}

// request is the row of a request: API, status, time, model, tokens, and what is unusual.
func (r rows) request(f fields) string {
	status, style := cmp.Or(f.number("status"), 200), styleGood
	switch {
	case status >= 500:
		style = styleBad
	// A reply that was not read to its end is no success, and no error.
	case status >= 400 || f.text("outcome") != "ok":
		style = styleNote
	}

	seconds, _ := f["seconds"].(float64)
	row := fmt.Sprintf("%-9s  %s  %7d ms  %s", f.text("api"), r.painter.paint(style, strconv.Itoa(status)),
		time.Duration(seconds*float64(time.Second)).Milliseconds(), f.text("model"))

	// A request that was refused has no tokens.
	if in, out := f.number("prompt_tokens"), f.number("output_tokens"); in > 0 {
		row += fmt.Sprintf("  %d → %d tokens", in, out)
		if cached := f.number("cached_tokens"); cached > 0 {
			row += fmt.Sprintf(", %d cached", cached)
		}
	}
	if notes := f.notes(); notes != "" {
		row += "  " + r.painter.paint(style, notes)
	}
	// A list of models is of no model.
	return strings.TrimRight(row, " ")
}

// line is the row of all else: the message with its fields, an error first.
func (r rows) line(e *logrus.Entry) string {
	style := ""
	switch e.Level {
	case logrus.WarnLevel:
		style = styleNote
	case logrus.ErrorLevel, logrus.FatalLevel, logrus.PanicLevel:
		style = styleBad
	}
	f, message := fields(maps.Clone(e.Data)), oneLine(e.Message)
	if f.text("from") == fromEnvoy {
		message = fromEnvoy + ": " + message
		delete(f, "from")
	}

	head := []string{message}
	for _, name := range []string{"reason", logrus.ErrorKey} {
		if text := f.text(name); text != "" {
			head = append(head, text)
			delete(f, name)
		}
	}

	var row strings.Builder
	row.WriteString(r.painter.paint(style, strings.Join(head, ": ")))
	for _, name := range slices.Sorted(maps.Keys(f)) {
		row.WriteString(r.painter.paint(styleQuiet, "  "+name+"=") + f.text(name))
	}
	return row.String()
}

// fields are those of a log line.
type fields logrus.Fields

// text returns a field as text without control characters; "": there is none.
func (f fields) text(name string) string {
	value, ok := f[name]
	if !ok {
		return ""
	}
	return oneLine(plain(reflect.ValueOf(value)))
}

// plain writes a value for people: a list as a, b and a mapping as a 1, b 2.
func plain(value reflect.Value) string {
	if !value.IsValid() {
		return ""
	}
	// An error, or a duration, is a list or a number that has a text of its own.
	switch value.Interface().(type) {
	case error, fmt.Stringer:
		return fmt.Sprint(value.Interface())
	}

	var parts []string
	switch value.Kind() {
	case reflect.Slice, reflect.Array:
		for i := range value.Len() {
			parts = append(parts, plain(value.Index(i)))
		}
	case reflect.Map:
		for _, key := range value.MapKeys() {
			parts = append(parts, plain(key)+" "+plain(value.MapIndex(key)))
		}
		slices.Sort(parts)
	default:
		return fmt.Sprint(value.Interface())
	}
	return strings.Join(parts, ", ")
}

// number returns a field that is a number; 0: there is none.
func (f fields) number(name string) int {
	n, _ := f[name].(int)
	return n
}

// notes says what is unusual about a request.
func (f fields) notes() string {
	var notes []string
	if outcome := f.text("outcome"); outcome != "ok" && outcome != "rejected" {
		notes = append(notes, outcome)
	}
	if text := f.text("error"); text != "" {
		notes = append(notes, text)
	}
	if cause := f.text("cause"); cause != "" {
		notes = append(notes, cause)
		// The text may be of a prompt, and a terminal is where it can be asked for.
		if strings.Contains(cause, "…") {
			notes = append(notes, "(all of it: --set log.content=true --log-level debug)")
		}
	}

	for _, name := range []string{
		"fault", "interrupted", "budget", "retries", "continuations", "tool_errors", "repairs",
	} {
		if text := f.text(name); text != "" {
			notes = append(notes, strings.ReplaceAll(name, "_", " ")+" "+text)
		}
	}
	// The other reasons are what a client wants.
	if f.text("finish") == "length" {
		notes = append(notes, "ended by its length")
	}
	// Some are sentences, whose full stop the semicolon replaces.
	for i := range notes {
		notes[i] = strings.TrimSuffix(notes[i], ".")
	}
	return strings.Join(notes, "; ")
}

// oneLine makes control characters visible, line ends among them: a text must not look like
// a row of its own.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		return visible(r)
	}, text)
}
