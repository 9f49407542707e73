package item

import (
	"cmp"
	"encoding/json"
	"maps"
	"strconv"
	"unicode/utf8"

	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

// A model that browses cites what it has read as 【3†L8-L11】: lines 8 to 11 of
// the page that the browser showed under the cursor 3. A result of the browser
// begins with a line that says what it shows:
//
//	[3] Title (https://example.com/page)

// Pages are the pages that the browser has shown, by cursor. The zero value has
// none.
type Pages struct {
	shown map[int]hosted.Page
	Last  string // the address of the page that was shown last
}

// maxPages bounds how many pages are kept.
const maxPages = 1024

// Add takes a result of the browser: its text, and its structured content, if
// there is any, whose members cursor, url and title take precedence over the
// text. A result that shows no page of the web, such as a list of search
// results, adds no page.
func (p *Pages) Add(text string, structured []byte) {
	cursor, shown, ok := hosted.ReadPage(text, structured)
	if !ok {
		return
	}

	// Another page, or none, is shown there now.
	delete(p.shown, cursor)
	// The pages belong to the state of a conversation, which is kept as long as the conversation.
	if shown.URL == "" || len(p.shown) >= maxPages {
		return
	}

	if p.shown == nil {
		p.shown = map[int]hosted.Page{}
	}

	p.shown[cursor], p.Last = shown, shown.URL
}

// Empty reports whether no page has been shown.
func (p *Pages) Empty() bool { return len(p.shown) == 0 }

// URL is the address of the page that is shown under a cursor; "" if there is
// none.
func (p *Pages) URL(cursor int) string { return p.shown[cursor].URL }

// With returns the pages and those that were shown later.
func (p Pages) With(later Pages) Pages {
	all := Pages{Last: cmp.Or(later.Last, p.Last)}
	if len(p.shown)+len(later.shown) > 0 {
		all.shown = make(map[int]hosted.Page, len(p.shown)+len(later.shown))
		maps.Copy(all.shown, p.shown)
		maps.Copy(all.shown, later.shown)
	}
	return all
}

// Bytes is roughly how much memory the pages take.
func (p *Pages) Bytes() int64 {
	const overhead = 64
	var n int64
	for _, page := range p.shown {
		n += int64(len(page.URL)+len(page.Title)) + overhead
	}
	return n
}

// Citation is a place of a text that cites a page. start and end count
// characters, Unicode code points, of the whole text; end is after the place.
type Citation struct {
	start, end int
	hosted.Page
}

// JSON is the citation as an annotation of a text.
func (c *Citation) JSON() json.RawMessage {
	dst := strconv.AppendInt([]byte(`{"type":"url_citation","start_index":`), int64(c.start), 10)
	dst = strconv.AppendInt(append(dst, `,"end_index":`...), int64(c.end), 10)
	dst = jsontext.AppendString(append(dst, `,"url":`...), c.URL)
	return append(jsontext.AppendString(append(dst, `,"title":`...), c.Title), '}')
}

// Citations finds the citations of one text, which comes in pieces.
type Citations struct {
	Pages *Pages // that the text can cite

	at     int               // characters of the text so far
	cut    [utf8.UTFMax]byte // a character that a piece has ended in
	cutLen int               // how many bytes of it there are
	within citationPart      // of the citation being read
	start  int               // where it begins
	digits int               // how many of the number being read there are
	cursor int
}

// citationPart is a part of a citation.
type citationPart uint8

const (
	outside     citationPart = iota
	inCursor                 // 【3
	afterMark                // 【3†
	inFirstLine              // 【3†L8
	afterDash                // 【3†L8-
	inLastLine               // 【3†L8-L11
)

// AppendFound appends the citations that the next piece of the text completes.
// Those of a cursor that shows no page are left out.
func (c *Citations) AppendFound(dst []Citation, text []byte) []Citation {
	// Most replies have no pages, and take nothing for each piece of their text.
	if len(c.Pages.shown) == 0 {
		return dst
	}

	// A piece may end within a character. The rest of it is the beginning of this piece.
	for c.cutLen > 0 && len(text) > 0 {
		c.cut[c.cutLen] = text[0]
		c.cutLen, text = c.cutLen+1, text[1:]
		for c.cutLen > 0 && utf8.FullRune(c.cut[:c.cutLen]) {
			r, size := utf8.DecodeRune(c.cut[:c.cutLen])
			c.cutLen = copy(c.cut[:], c.cut[size:c.cutLen])
			dst = c.appendIfFound(dst, r)
		}
	}

	for len(text) > 0 {
		// Nearly all bytes are ASCII: only others can be a character that is not complete.
		if text[0] >= utf8.RuneSelf && !utf8.FullRune(text) {
			c.cutLen = copy(c.cut[:], text)
			break
		}
		r, size := utf8.DecodeRune(text)
		text = text[size:]
		dst = c.appendIfFound(dst, r)
	}

	return dst
}

// appendIfFound takes the next character.
func (c *Citations) appendIfFound(dst []Citation, r rune) []Citation {
	// A citation ends after the character that completes it.
	complete := c.step(r)
	c.at++
	if !complete {
		return dst
	}
	// The model may cite a cursor that it has made up.
	if shown, ok := c.Pages.shown[c.cursor]; ok {
		dst = append(dst, Citation{c.start, c.at, shown})
	}
	return dst
}

// step moves on by one character and reports whether it completes a citation.
func (c *Citations) step(r rune) (complete bool) {
	switch {
	// A bracket begins a citation wherever it comes: what was open before was none.
	case r == '【':
		c.within, c.start, c.cursor, c.digits = inCursor, c.at, 0, 0
	case c.within == outside:
	case '0' <= r && r <= '9' && c.within != afterMark && c.digits < hosted.MaxCursorDigits:
		switch c.within {
		case inCursor:
			c.cursor = 10*c.cursor + int(r-'0')
		case afterDash:
			c.within = inLastLine
		}
		c.digits++
	case r == '†' && c.within == inCursor && c.digits > 0:
		c.within = afterMark
	case r == 'L' && c.within == afterMark:
		c.within, c.digits = inFirstLine, 0
	case (r == '-' || r == '–') && c.within == inFirstLine && c.digits > 0:
		c.within, c.digits = afterDash, 0
	case r == 'L' && c.within == afterDash:
		c.within = inLastLine
	default:
		complete = r == '】' && (c.within == inFirstLine || c.within == inLastLine) && c.digits > 0
		c.within = outside
	}

	return complete
}
