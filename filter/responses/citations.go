package responses

import (
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

// A model that browses cites what it has read as 【3†L8-L11】: lines 8 to 11 of
// the page that the browser showed under the cursor 3. A result of the browser
// begins with a line that says what it shows:
//
//	[3] Title (https://example.com/page)

// page is a page that a text can cite.
type page struct{ url, title string }

// pages is the pages that the browser has shown, by cursor. The zero value has
// none.
type pages struct {
	shown map[int]page
	last  string // the address of the one that was shown last
}

// The bounds of what is kept.
const (
	maxPages        = 1024
	maxPageHead     = 8 << 10 // bytes of the line that a result begins with
	maxPageURL      = 4 << 10
	maxPageTitle    = 512
	maxCursorDigits = 9
)

// add takes a result of the browser's: its text, and its structured content, if
// there is any, whose members cursor, url and title come before what the text
// says. A result that shows no page of the web, such as a list of what a search
// has found, is none.
func (p *pages) add(text string, structured []byte) {
	cursor, shown, ok := readPageHead(text)
	if fields := gjson.ParseBytes(structured); fields.IsObject() {
		if inner := fields.Get("result"); inner.IsObject() {
			fields = inner
		}
		if v := fields.Get("cursor"); v.Type == gjson.Number {
			cursor, ok = int(v.Int()), true
		}
		if v := fields.Get("url"); v.Type == gjson.String {
			shown.url = v.Str
		}
		if v := fields.Get("title"); v.Type == gjson.String {
			shown.title = v.Str
		}
	}
	if !ok {
		return
	}
	delete(p.shown, cursor) // another page, or none, is shown there now
	if shown = shown.cleaned(); shown.url == "" || len(p.shown) >= maxPages {
		return
	}
	if p.shown == nil {
		p.shown = map[int]page{}
	}
	p.shown[cursor], p.last = shown, shown.url
}

// readPageHead reads the line that a result begins with.
func readPageHead(text string) (cursor int, shown page, ok bool) {
	text = strings.TrimLeft(text[:min(len(text), maxPageHead)], " \t\r\n")
	digits, head, _ := strings.Cut(strings.TrimPrefix(text, "["), "]")
	if cursor, ok = readCursor(digits); !ok || text[0] != '[' {
		return 0, page{}, false
	}
	// A title can have line feeds in it; what is behind the head begins so.
	if title, _, found := strings.Cut(head, "\n**viewing lines ["); found {
		head = title
	} else {
		head, _, _ = strings.Cut(head, "\n")
	}
	shown.title = strings.TrimSpace(head)
	inner, closed := strings.CutSuffix(shown.title, ")")
	if !closed {
		return cursor, shown, true
	}
	// Titles and addresses can have parentheses themselves.
	for end := len(inner); ; {
		i := strings.LastIndexByte(inner[:end], '(')
		if i < 0 {
			return cursor, shown, true
		}
		if address := inner[i+1:]; isWeb(address) {
			return cursor, page{address, inner[:i]}, true
		}
		end = i
	}
}

// readCursor reads a cursor in decimal digits.
func readCursor(digits string) (int, bool) {
	if digits == "" || len(digits) > maxCursorDigits || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	cursor, err := strconv.Atoi(digits)
	return cursor, err == nil
}

const sourceScheme = "view-source:"

func isWeb(address string) bool {
	address = strings.TrimPrefix(address, sourceScheme)
	return strings.HasPrefix(address, "https://") || strings.HasPrefix(address, "http://")
}

// cleaned is the page with an address that a client can open, "" if there is no
// such, and a title of one line. The browser shows what it finds in a page, and
// a page's source, as pages of their own: these stand for the page itself. It
// shows addresses without their escapes, and long ones cut.
func (p page) cleaned() page {
	address := strings.TrimPrefix(p.url, sourceScheme)
	title := strings.Join(strings.Fields(p.title), " ")
	if found, ok := strings.CutPrefix(title, "Find results for text: `"); ok {
		address, _, _ = strings.Cut(address, "/find?pattern=")
		if i := strings.LastIndex(found, "` in `"); i >= 0 {
			title = strings.TrimSuffix(found[i+len("` in `"):], "`")
		}
	}
	if len(address) > maxPageURL || !isWeb(address) || !utf8.ValidString(address) || strings.HasSuffix(address, "...") {
		return page{}
	}
	u, err := url.Parse(strings.ReplaceAll(address, " ", "%20"))
	if err != nil || u.Host == "" {
		return page{}
	}
	return page{strings.Clone(u.String()), strings.ToValidUTF8(title[:min(len(title), maxPageTitle)], "")}
}

// citation is a place of a text that cites a page. start and end count
// characters, Unicode code points, of the whole text; end is behind the place.
type citation struct {
	start, end int
	page
}

// citations finds the citations of one text, which comes in pieces.
type citations struct {
	pages *pages

	at     int               // characters of the text so far
	cut    [utf8.UTFMax]byte // a character that a piece has ended in
	held   int               // how many bytes of it are there
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
	behindMark               // 【3†
	inFirstLine              // 【3†L8
	behindDash               // 【3†L8-
	inLastLine               // 【3†L8-L11
)

// appendFound appends the citations that the next piece of the text completes.
// Those of a cursor that shows no page are left out.
func (c *citations) appendFound(dst []citation, text []byte) []citation {
	if len(c.pages.shown) == 0 {
		return dst
	}
	for c.held > 0 && len(text) > 0 {
		c.cut[c.held] = text[0]
		c.held, text = c.held+1, text[1:]
		for c.held > 0 && utf8.FullRune(c.cut[:c.held]) {
			r, size := utf8.DecodeRune(c.cut[:c.held])
			c.held = copy(c.cut[:], c.cut[size:c.held])
			dst = c.appendIfFound(dst, r)
		}
	}
	for len(text) > 0 {
		if text[0] >= utf8.RuneSelf && !utf8.FullRune(text) {
			c.held = copy(c.cut[:], text)
			break
		}
		r, size := utf8.DecodeRune(text)
		text = text[size:]
		dst = c.appendIfFound(dst, r)
	}
	return dst
}

// appendIfFound takes the next character.
func (c *citations) appendIfFound(dst []citation, r rune) []citation {
	complete := c.step(r)
	c.at++
	if !complete {
		return dst
	}
	if shown, ok := c.pages.shown[c.cursor]; ok {
		dst = append(dst, citation{c.start, c.at, shown})
	}
	return dst
}

// step moves on by one character and tells whether it completes a citation.
func (c *citations) step(r rune) (complete bool) {
	switch {
	case r == '【':
		c.within, c.start, c.cursor, c.digits = inCursor, c.at, 0, 0
	case c.within == outside:
	case '0' <= r && r <= '9' && c.within != behindMark && c.digits < maxCursorDigits:
		switch c.within {
		case inCursor:
			c.cursor = 10*c.cursor + int(r-'0')
		case behindDash:
			c.within = inLastLine
		}
		c.digits++
	case r == '†' && c.within == inCursor && c.digits > 0:
		c.within = behindMark
	case r == 'L' && c.within == behindMark:
		c.within, c.digits = inFirstLine, 0
	case (r == '-' || r == '–') && c.within == inFirstLine && c.digits > 0:
		c.within, c.digits = behindDash, 0
	case r == 'L' && c.within == behindDash:
		c.within = inLastLine
	default:
		complete = r == '】' && (c.within == inFirstLine || c.within == inLastLine) && c.digits > 0
		c.within = outside
	}
	return complete
}
