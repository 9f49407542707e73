package record

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

// JSON of clients is kept by a list: a [Keeper] has the members of the APIs, and what of
// each may be kept. Members with another name are hidden, at any depth, whatever an API or
// the software in front of it will call its credentials.

// keep is what of a value may be kept.
type keep = jsontext.Keep

const (
	members = jsontext.KeepMembers
	nothing = jsontext.KeepNothing
	content = jsontext.KeepContent
	guarded = jsontext.KeepGuarded
	whole   = jsontext.KeepWhole
	names   = jsontext.KeepNames
	address = jsontext.KeepAddress
	server  = jsontext.KeepServer
	link    = jsontext.KeepLink

	// stored: JSON in base64, as the store's results have it. No row says it.
	stored keep = -1
	// accepted: numbers, and the values of a refused field that are accepted all the same. A replay
	// has to accept or refuse the request as the exchange did.
	accepted keep = -2
)

// cleaner copies JSON without what may not be kept, in one pass. The text is known to be
// valid, so that it looks for quotes and brackets only.
type cleaner struct {
	in     []byte
	at     int // what has been read of in
	copied int // what has been copied of in, or replaced
	out    []byte
	// ours says that the filter wrote the JSON: members of names that are not on the list
	// are kept, except those that every list of secrets has, and except what it repeats of
	// the request.
	ours   bool
	keeper *Keeper
	// servers says that the value belongs to tools or servers, whose URLs are those of servers.
	servers bool
}

// cleanJSON returns JSON without what may not be kept; nil if the text is no JSON. It may
// return the text itself.
func (k *Keeper) cleanJSON(p []byte, ours bool) []byte { return k.cleanMember(p, "", ours) }

// cleanMember is cleanJSON of the value of the member in.
func (k *Keeper) cleanMember(p []byte, in string, ours bool) []byte {
	if !utf8.Valid(p) || !json.Valid(p) {
		return nil
	}
	c := cleaner{in: p, ours: ours, keeper: k}
	c.value(members, in)

	// Most JSON has nothing to hide, and is not copied.
	if c.copied == 0 {
		return p
	}
	return append(c.out, p[c.copied:]...)
}

// value reads the value that begins at c.at. in is the name of the member that it belongs
// to, also of an element of an array.
func (c *cleaner) value(k keep, in string) {
	c.space()
	begin := c.at
	if k == accepted {
		c.acceptedValue(begin, in)
		return
	}

	// What is replaced is skipped whole: an object that is nobody's business shows not even the
	// names of its members.
	switch c.in[begin] {
	case '{':
		switch k {
		case nothing, stored:
			c.hide(begin, hiddenObject)
		case whole:
			c.skip()
		case content:
			c.object(guarded, in)
		default:
			c.object(k, in)
		}
	case '[':
		if k == nothing {
			c.hide(begin, hiddenList)
			return
		}
		c.array(k, in)
	case '"':
		c.skipString()
		c.text(begin, k)
	case 't', 'f', 'n':
		// true, false and null tell of nobody.
		c.skip()
	default:
		c.skip()
		if k == nothing || k == names {
			c.replace(begin, []byte("0"))
		}
	}
}

// hide reads an object or a list, and puts by in its place. One that is empty tells of nobody, and
// may be what asks for nothing.
func (c *cleaner) hide(begin int, by []byte) {
	c.skip()
	if !isEmpty(c.in[begin:c.at]) {
		c.replace(begin, by)
	}
}

// isEmpty reports whether an object or a list has nothing in it.
func isEmpty(raw []byte) bool { return len(bytes.TrimSpace(raw[1:len(raw)-1])) == 0 }

// maxAccepted is more bytes than any value of a refused field has that is accepted, but for empty
// lists with white space in them.
const maxAccepted = 64

// acceptedValue reads a value of a refused field. A long one is not parsed: it is no such value.
func (c *cleaner) acceptedValue(begin int, in string) {
	c.skip()
	raw := c.in[begin:c.at]
	switch first := raw[0]; {
	case first != '"' && first != '[' && first != '{': // a number, true, false or null
		return
	case first == '[' && isEmpty(raw):
		return
	case len(raw) <= maxAccepted:
		if m, _ := c.keeper.of(in); jsontext.AsksNothing(gjson.ParseBytes(raw), m.unless) {
			return
		}
	}
	c.replace(begin, hiddenText)
}

// JSON in place of a value. It is of the value's type, which decides whether a request is accepted.
var (
	hiddenText   = []byte(`"` + Hidden + `"`)
	hiddenList   = []byte(`["` + Hidden + `"]`)
	hiddenObject = []byte(`{"` + Hidden + `":"` + Hidden + `"}`)
)

// text replaces what may not be kept of the string from begin to c.at.
func (c *cleaner) text(begin int, k keep) {
	switch k {
	case nothing, names:
		c.replace(begin, hiddenText)
	case address, server, link, guarded:
		raw := unquote(c.in[begin:c.at])
		if (k == link || k == guarded) && !looksLikeURL(raw) {
			return
		}
		if clean := cleanAddress(raw, k == server); clean != raw {
			c.replace(begin, quote(clean))
		}
	case stored:
		raw, err := base64.StdEncoding.DecodeString(unquote(c.in[begin:c.at]))
		if err != nil {
			c.replace(begin, hiddenText)
			return
		}

		// What the filter stored may be events or an object; what it repeats of the request is a
		// list of items.
		var clean []byte
		if c.ours {
			clean = c.keeper.cleanReply(raw)
		} else if clean = c.keeper.cleanMember(raw, "items", false); clean == nil {
			c.replace(begin, hiddenText)
			return
		}
		if !bytes.Equal(clean, raw) {
			c.replace(begin, quote(base64.StdEncoding.EncodeToString(clean)))
		}
	}
}

func (c *cleaner) object(k keep, in string) {
	page := pageOf{json: c.in[c.at:]}
	for c.at++; ; {
		c.space()
		if c.in[c.at] == '}' {
			c.at++
			return
		}
		begin := c.at
		c.skipString()
		name := unquote(c.in[begin:c.at])
		c.space()
		// The colon: the JSON is valid, so that nothing else can stand here.
		c.at++

		// What the filter repeats of the request is the client's again, as deep as it goes.
		ours, servers := c.ours, c.servers
		of := c.keepWithin(k, name, in)
		if pageMembers[name] && (of == address || of == link) && page.isPage() {
			of = members
		}
		c.ours, c.servers = ours && !repeated[name], servers || serverLists[name]
		c.value(of, name)
		c.ours, c.servers = ours, servers

		c.space()
		if c.in[c.at] == ',' {
			c.at++
		}
	}
}

func (c *cleaner) array(k keep, in string) {
	switch k {
	case whole:
		c.skip()
		return
	case content:
		// Its elements are parts, not what a tool wrote.
		k = members
	}

	for c.at++; ; {
		c.space()
		switch c.in[c.at] {
		case ']':
			c.at++
			return
		case ',':
			c.at++
		default:
			c.value(k, in)
		}
	}
}

// keepWithin says what may be kept of a member of an object that is kept as k.
func (c *cleaner) keepWithin(k keep, name, in string) keep {
	switch k {
	case names:
		return nothing
	case guarded:
		return c.keepGuarded(name, in)
	case server:
		// No API has an object here. What the list knows may be a URL with another name.
		if c.keepOf(name, in) != nothing {
			return server
		}
		return nothing
	}
	return c.keepOf(name, in)
}

// keepGuarded is keepOf for an object whose members may have any name.
func (c *cleaner) keepGuarded(name, in string) keep {
	switch lower := strings.ToLower(name); {
	// Other objects with names of their own are a client's data, such as what a search filters by.
	case secretMembers[lower], identities[lower] && in == "metadata":
		return nothing
	case lower == "headers":
		return names
	}

	switch k := c.keepOf(name, in); k {
	case whole, address, server, link:
		return k
	}
	return guarded
}

// keepOf says what may be kept of a member of an object, which is itself the member in of
// another one.
func (c *cleaner) keepOf(name, in string) keep {
	if name == "url" && c.servers {
		return server
	}
	if k, listed := keptPlaces[name][in]; listed {
		return k
	}
	if m, known := c.keeper.of(name); known && (!c.ours || !m.asked) {
		k := m.keep
		// Here an object is not what a model or a tool wrote: it is one of the API.
		if k == content && in == "" {
			return members
		}
		return k
	}

	switch {
	case name == "headers":
		return names
	case c.ours && storeMembers[name]:
		return stored
	case c.ours && !secretMembers[strings.ToLower(name)]:
		return members
	}

	return nothing
}

// pageOf says of an object whether it is a page that the model sees. An object can have many
// URLs, and is looked at once.
type pageOf struct {
	// From the object's first bracket on.
	json   []byte
	known  bool
	answer bool
}

func (p *pageOf) isPage() bool {
	if !p.known {
		p.known, p.answer = true, pageTypes[gjson.GetBytes(p.json, "type").Str]
	}
	return p.answer
}

// replace puts a text in place of what was read from begin on.
func (c *cleaner) replace(begin int, by []byte) {
	c.out = append(append(c.out, c.in[c.copied:begin]...), by...)
	c.copied = c.at
}

func (c *cleaner) space() {
	for c.at < len(c.in) {
		switch c.in[c.at] {
		case ' ', '\t', '\n', '\r':
			c.at++
		default:
			return
		}
	}
}

// skip reads a value to its end.
func (c *cleaner) skip() {
	depth := 0

	// A number or a word ends where what follows begins; an object or array with its last bracket.
	for c.at < len(c.in) {
		switch b := c.in[c.at]; b {
		case '"':
			c.skipString()
			if depth == 0 {
				return
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			// It closes what the number or the word stands in.
			if depth == 0 {
				return
			}
			depth--
			if depth == 0 {
				c.at++
				return
			}
		case ',', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return
			}
		}
		c.at++
	}
}

// skipString reads a string to its end.
func (c *cleaner) skipString() {
	for c.at++; c.at < len(c.in); c.at++ {
		switch c.in[c.at] {
		case '\\':
			c.at++
		case '"':
			c.at++
			return
		}
	}
}

// unquote is the string of its JSON.
func unquote(raw []byte) string {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		// This cannot be: the JSON was checked.
		return ""
	}
	return s
}

func quote(s string) []byte {
	raw, err := json.Marshal(s)
	if err != nil {
		// This cannot be: a string has JSON.
		return hiddenText
	}
	return raw
}

// looksLikeURL reports whether a text may be a URL. Contents, which may be long, do not begin
// as one does.
func looksLikeURL(text string) bool {
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, "//") || strings.HasPrefix(text, `\\`) {
		return true
	}

	scheme, behind, found := strings.Cut(text[:min(len(text), maxScheme)], ":")
	if !found || scheme == "" || strings.IndexFunc(scheme, isNoScheme) >= 0 {
		return false
	}

	// http:host is one for browsers; note: … is a text.
	return strings.HasPrefix(behind, "//") || strings.HasPrefix(strings.ToLower(scheme), "http")
}

// maxScheme is more bytes than the scheme of a URL has.
const maxScheme = 64

// isNoScheme reports whether the scheme of a URL cannot have a character. Browsers drop line
// breaks and tabs.
func isNoScheme(c rune) bool {
	return c > unicode.MaxASCII || !unicode.IsLetter(c) && !unicode.IsDigit(c) && !strings.ContainsRune("+-.\t\r\n", c)
}

// cleanAddress is a URL without its user, query and fragment, and, of a server, without its
// path. That there was each of them stays visible: it decides whether a request is accepted.
func cleanAddress(raw string, isServer bool) string {
	if len(raw) >= 5 && strings.EqualFold(raw[:5], "data:") && !isServer {
		return raw
	}

	u, err := url.Parse(raw)
	switch {
	case raw == "":
		return raw
	// What is no address may be anything, such as a key in the wrong member.
	case err != nil || u.Host == "" || u.Opaque != "":
		return Hidden
	}

	// What was there is shown as hidden, and not left out: its absence can be the mistake that
	// somebody looks for.
	kept := url.URL{Scheme: u.Scheme, Host: u.Host}
	if u.Scheme != "http" && u.Scheme != "https" {
		kept.Scheme = "hidden"
	}
	if u.User != nil {
		kept.User = url.User("hidden")
	}

	switch {
	case !isServer:
		kept.Path, kept.RawPath = u.Path, u.RawPath
	case strings.Trim(u.Path, "/") != "":
		kept.Path = "/hidden"
	default:
		kept.Path = u.Path
	}

	if u.RawQuery != "" {
		kept.RawQuery = "hidden"
	}
	if u.Fragment != "" {
		kept.Fragment = "hidden"
	}
	if kept.Scheme == u.Scheme && kept.User == nil && kept.RawQuery == "" && kept.Fragment == "" &&
		kept.Path == u.Path {
		// Nothing is hidden: it stays in its own spelling.
		return raw
	}

	return kept.String()
}

// cleanReply returns what the filter wrote, JSON or server-sent events, without what may not
// be kept of what it repeats. It may return the text itself.
func (k *Keeper) cleanReply(p []byte) []byte {
	if clean := k.cleanJSON(p, true); clean != nil {
		return clean
	}

	// It is a stream: each event's data is JSON of its own.
	var out []byte
	copied := 0
	for at := 0; at < len(p); {
		end := len(p)
		if n := bytes.IndexByte(p[at:], '\n'); n >= 0 {
			end = at + n
		}
		if line, isData := bytes.CutPrefix(p[at:end], []byte("data: ")); isData {
			if clean := k.cleanJSON(line, true); clean != nil && !bytes.Equal(clean, line) {
				out = append(append(out, p[copied:end-len(line)]...), clean...)
				copied = end
			}
		}
		at = end + 1
	}

	if copied == 0 {
		return p
	}
	return append(out, p[copied:]...)
}
