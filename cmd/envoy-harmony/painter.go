package main

import (
	"bufio"
	"io"
	"os"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// painter writes tokens for people. On a terminal it colors channels and highlights
// special tokens.
type painter struct{ on bool }

const (
	styleReset   = "\x1b[0m"
	styleSpecial = "\x1b[7m" // reverse
	styleNote    = "\x1b[33m"
	styleHeader  = "\x1b[1m"
	styleQuiet   = "\x1b[90m"
	styleGood    = "\x1b[32m"
	styleBad     = "\x1b[31m"
)

// channelStyles are the colors of the channels.
var channelStyles = map[string]string{
	harmony.ChannelAnalysis:   "\x1b[90m",
	harmony.ChannelCommentary: "\x1b[36m",
	harmony.ChannelFinal:      "\x1b[32m",
}

// newPainter returns a painter that uses colors if w is a terminal and NO_COLOR is
// not set.
func newPainter(w io.Writer) painter {
	return painter{on: isTerminal(w) && os.Getenv("NO_COLOR") == ""}
}

// isTerminal reports whether people read what is written to w.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// styled writes text in a style. On a terminal, control characters are made visible
// so that they have no effect.
func (p painter) styled(out *bufio.Writer, style, text string) {
	if p.on {
		// In a file or a pipe the text is for programs, and stays as it is.
		text = strings.Map(visible, text)
	}
	_, _ = out.WriteString(p.paint(style, text)) // Flush returns the error
}

// paint returns text in a style.
func (p painter) paint(style, text string) string {
	if !p.on || style == "" || text == "" {
		return text
	}
	return style + text + styleReset
}

// visible returns the symbol of a control character.
func visible(r rune) rune {
	switch {
	case r == '\n' || r == '\t':
		return r
	// Unicode has a picture for each of these, in the same order.
	case r < ' ':
		return '\u2400' + r
	case 0x7F <= r && r < 0xA0:
		return '\uFFFD'
	}
	return r
}

// note writes a remark as a line of its own.
func (p painter) note(out *bufio.Writer, text string) {
	p.styled(out, styleNote, text)
	p.styled(out, "", "\n")
}

// tokens writes the text of tokens in the colors of their channels.
func (p painter) tokens(out *bufio.Writer, tokens []harmony.Token) {
	var d harmony.Decoder
	var text []byte
	style, channel := "", false
	for _, t := range tokens {
		// What follows <|channel|> as text is the name of a channel, by which the rest is colored.
		if name, ok := harmony.SpecialName(t); ok {
			p.styled(out, "", string(d.Flush(nil)))
			p.styled(out, styleSpecial, name)
			channel = t == harmony.TokenChannel
			if t == harmony.TokenStart {
				style = ""
			}
			continue
		}

		text, _ = d.Append(text[:0], t)
		if channel {
			style, channel = channelStyles[string(text)], false
		}
		p.styled(out, style, string(text))
	}
	p.styled(out, "", string(d.Flush(nil))+"\n")
}

// event writes an event of a parsed completion.
func (p painter) event(out *bufio.Writer, e harmony.Event) {
	style := channelStyles[e.Header.Channel]

	switch e.Kind {
	case harmony.MessageStart:
		parts := []string{string(e.Header.Role)}
		for _, part := range []struct{ label, value string }{
			{"name ", e.Header.Name},
			{"", e.Header.Channel},
			{"to ", e.Header.Recipient},
			{"type ", e.Header.ContentType},
		} {
			if part.value != "" {
				parts = append(parts, part.label+part.value)
			}
		}

		p.styled(out, styleHeader+style, "["+strings.Join(parts, ", ")+"]")
		p.styled(out, "", "\n")

	case harmony.Delta:
		p.styled(out, style, string(e.Text))

	// The end has the last text of the message too.
	case harmony.MessageEnd:
		p.styled(out, style, string(e.Text))
		name, _ := harmony.SpecialName(e.End)
		p.styled(out, styleSpecial, name)
		p.styled(out, "", "\n")
	}
}
