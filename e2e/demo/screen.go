package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// style is an ANSI color sequence.
type style string

// Colors of the Harmony channels and of labels.
const (
	plain      style = ""
	bold       style = "1"
	faint      style = "2"
	user       style = "34"
	analysis   style = "36"
	commentary style = "33"
	final      style = "32"
	special    style = "35"
)

const (
	labelWidth = 11
	maxWidth   = 110
	// shortRule is the least of a rule behind a title, with its space.
	shortRule = 4
	// usualWidth is that of a terminal that does not tell its own.
	usualWidth = "80"
)

// screen writes labeled text. It wraps lines itself, because texts arrive in
// chunks.
type screen struct {
	w     io.Writer
	color bool
	width int

	// label is that of the text that is being streamed.
	label  string
	column int
	// indent says that the line has no text yet.
	indent bool
}

// newScreen uses color on a terminal, unless NO_COLOR is set.
func newScreen(f *os.File) *screen {
	s := &screen{w: f, width: maxWidth}
	columns := os.Getenv("COLUMNS")
	// A file or a pipe would get the sequences as text.
	if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		s.color = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
		// Shells know the width as COLUMNS, and do not tell programs.
		columns = cmp.Or(columns, columnsOf(f), usualWidth)
	}

	s.setWidth(columns)
	return s
}

// columnsOf returns the width of a terminal, "" if it has none.
func columnsOf(f *os.File) string {
	stty := exec.Command("stty", "size")
	stty.Stdin = f
	size, err := stty.Output()
	if err != nil {
		return ""
	}
	_, columns, _ := strings.Cut(strings.TrimSpace(string(size)), " ")
	// A terminal that does not know its size has zero columns.
	return strings.TrimLeft(columns, "0")
}

// setWidth sets the width to a number of columns, within bounds.
func (s *screen) setWidth(columns string) {
	if n, err := strconv.Atoi(columns); err == nil {
		// A width below three labels leaves no room for text.
		s.width = min(max(n, 3*labelWidth), maxWidth)
	}
}

func (s *screen) paint(st style, text string) string {
	if !s.color || st == plain || text == "" {
		return text
	}
	return "\x1b[" + string(st) + "m" + text + "\x1b[0m"
}

func (s *screen) title(text string) {
	s.end()
	line, words := "── ", strings.Split(text, " ")
	fmt.Fprintln(s.w)

	// A title that is too long goes on below its first word.
	for i, word := range words {
		if i > 0 && utf8.RuneCountInString(line)+utf8.RuneCountInString(word)+shortRule > s.width {
			fmt.Fprintln(s.w, s.paint(bold, strings.TrimRight(line, " ")))
			line = "   "
		}
		line += word + " "
	}
	rule := strings.Repeat("─", max(0, s.width-utf8.RuneCountInString(line)))
	fmt.Fprintln(s.w, s.paint(bold, strings.TrimRight(line+rule, " ")))
}

func (s *screen) heading(text string) {
	s.end()
	fmt.Fprintf(s.w, "\n%s\n", s.paint(bold, text))
}

// field writes a complete text.
func (s *screen) field(label string, st style, text string) {
	s.end()
	s.stream(label, st, text)
	s.end()
}

// stream writes the next chunk of a text. A new label starts a new line.
func (s *screen) stream(label string, st style, text string) {
	if s.label != label {
		s.end()
		s.label, s.column = label, labelWidth
		fmt.Fprint(s.w, s.paint(faint, fmt.Sprintf("%-*s", labelWidth, label)))
	}
	s.write(st, text)
}

// write wraps text at spaces, and within words that are longer than a line.
func (s *screen) write(st style, text string) {
	for text != "" {
		// From the second byte on: a word begins with the space before it, which is dropped at a new line.
		end := strings.IndexAny(text[1:], " \n") + 1
		if end == 0 {
			end = len(text)
		}
		word := text[:end]
		text = text[end:]
		if word[0] == '\n' {
			s.newline()
			word = word[1:]
		}

		// A word that fits on no line is cut below, where it stands.
		if n := utf8.RuneCountInString(word); s.column+n > s.width && n < s.width-labelWidth {
			s.newline()
			word = strings.TrimPrefix(word, " ")
		}

		for s.column+utf8.RuneCountInString(word) > s.width {
			cut := runes(word, s.width-s.column)
			s.put(st, word[:cut])
			word = word[cut:]
			s.newline()
		}
		s.put(st, word)
	}
}

// put writes as much of a word as fits on the line.
func (s *screen) put(st style, word string) {
	if word == "" {
		return
	}
	if s.indent {
		fmt.Fprintf(s.w, "%*s", labelWidth, "")
		s.indent = false
	}
	fmt.Fprint(s.w, s.paint(st, word))
	s.column += utf8.RuneCountInString(word)
}

// runes returns the number of bytes of the first n runes of text.
func runes(text string, n int) int {
	for i := range text {
		if n == 0 {
			return i
		}
		n--
	}
	return len(text)
}

func (s *screen) newline() {
	fmt.Fprintln(s.w)
	s.column, s.indent = labelWidth, true
}

// end ends the line of a streamed text.
func (s *screen) end() {
	if s.label != "" {
		fmt.Fprintln(s.w)
	}
	s.label, s.indent = "", false
}

// shownIDs is the number of ids on the line of ids.
const shownIDs = 12

func (s *screen) ids(ids []int) {
	var b strings.Builder
	for _, id := range ids[:min(shownIDs, len(ids))] {
		fmt.Fprintf(&b, "%d ", id)
	}
	if len(ids) > shownIDs {
		fmt.Fprintf(&b, "… %d", ids[len(ids)-1])
	}
	s.field("ids", faint, strings.TrimSpace(b.String()))
}

var specialToken = regexp.MustCompile(`<\|[a-z]+\|>`)

// harmony writes a conversation with special tokens marked and each channel in its
// color. Each message starts a line.
func (s *screen) harmony(text string) {
	s.stream("as text", plain, "")
	st, header := faint, false
	for text != "" {
		at := specialToken.FindStringIndex(text)
		if at == nil {
			// The rest has no token: what follows sees an empty one.
			at = []int{len(text), len(text)}
		}

		body, token := text[:at[0]], text[at[0]:at[1]]
		text = text[at[1]:]
		if body != "" {
			if header {
				st = styleOf(body, st)
			}
			s.write(st, body)
		}

		switch token {
		case "<|start|>", "<|channel|>":
			header = true
		case "<|message|>":
			header = false
		}

		// The first message stands beside the label.
		if token == "<|start|>" && s.column > labelWidth {
			s.newline()
			st = faint
		}
		s.write(special, token)
	}
	s.end()
}

// styleOf returns the style of a message by its header.
func styleOf(header string, otherwise style) style {
	for _, known := range []struct {
		word  string
		style style
	}{{"analysis", analysis}, {"commentary", commentary}, {"final", final}, {"user", user}, {"functions", user}} {
		if strings.HasPrefix(header, known.word) {
			return known.style
		}
	}
	return otherwise
}
