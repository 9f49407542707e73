package hosted

import (
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

// Page is a page that the browser has shown.
type Page struct{ URL, Title string }

// MaxCursorDigits bounds the digits of a cursor.
const MaxCursorDigits = 9

// The bounds of what is read of a page.
const (
	maxPageHead  = 8 << 10 // bytes of the line that a result begins with
	maxPageURL   = 4 << 10
	maxPageTitle = 512
)

// ReadPage reads which page a result of the browser shows, and its cursor, from the
// line that the text begins with:
//
//	[3] Title (https://example.com/page)
//
// The members cursor, url and title of the structured content, if there is any, take
// precedence. It returns false if there is no cursor. A page that is not of the web,
// such as a list of search results, has no URL.
func ReadPage(text string, structured []byte) (cursor int, shown Page, ok bool) {
	cursor, shown, ok = readPageHead(text)
	if fields := gjson.ParseBytes(structured); fields.IsObject() {
		if inner := fields.Get("result"); inner.IsObject() {
			fields = inner
		}
		if v := fields.Get("cursor"); v.Type == gjson.Number {
			cursor, ok = int(v.Int()), true
		}
		if v := fields.Get("url"); v.Type == gjson.String {
			shown.URL = v.Str
		}
		if v := fields.Get("title"); v.Type == gjson.String {
			shown.Title = v.Str
		}
	}
	return cursor, shown.cleaned(), ok
}

// readPageHead reads the line that a result begins with.
func readPageHead(text string) (cursor int, shown Page, ok bool) {
	text = strings.TrimLeft(text[:min(len(text), maxPageHead)], " \t\r\n")
	// What is no number within the bound of cursors is no head at all, but text of the page.
	digits, head, _ := strings.Cut(strings.TrimPrefix(text, "["), "]")
	if cursor, ok = ReadCursor(digits); !ok || text[0] != '[' {
		return 0, Page{}, false
	}

	// A title can have line feeds in it; what follows the head begins so.
	if title, _, found := strings.Cut(head, "\n**viewing lines ["); found {
		head = title
	} else {
		head, _, _ = strings.Cut(head, "\n")
	}

	shown.Title = strings.TrimSpace(head)
	inner, closed := strings.CutSuffix(shown.Title, ")")
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
			return cursor, Page{address, inner[:i]}, true
		}
		end = i
	}
}

// ReadCursor reads a cursor in decimal digits.
func ReadCursor(digits string) (int, bool) {
	if digits == "" || len(digits) > MaxCursorDigits || strings.Trim(digits, "0123456789") != "" {
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

// cleaned returns the page with an address that a client can open, "" if there is no
// such, and a title of one line. The browser shows what it finds in a page, and a
// page's source, as pages of their own: these stand for the page itself. It shows
// addresses without their escapes, and long ones cut.
func (p Page) cleaned() Page {
	address := strings.TrimPrefix(p.URL, sourceScheme)
	title := strings.Join(strings.Fields(p.Title), " ")
	if found, ok := strings.CutPrefix(title, "Find results for text: `"); ok {
		address, _, _ = strings.Cut(address, "/find?pattern=")
		if i := strings.LastIndex(found, "` in `"); i >= 0 {
			title = strings.TrimSuffix(found[i+len("` in `"):], "`")
		}
	}

	title = strings.ToValidUTF8(title[:min(len(title), maxPageTitle)], "")
	// The browser ends an address that it has cut in three dots: nobody could open it.
	if len(address) > maxPageURL || !isWeb(address) || !utf8.ValidString(address) || strings.HasSuffix(address, "...") {
		return Page{Title: title}
	}

	// The escapes that the browser has removed are set again, as clients put addresses into links.
	u, err := url.Parse(strings.ReplaceAll(address, " ", "%20"))
	if err != nil || u.Host == "" {
		return Page{Title: title}
	}
	return Page{strings.Clone(u.String()), title}
}
