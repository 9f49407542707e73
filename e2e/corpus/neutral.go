package main

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"path"
	"regexp"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/turn/fields"
)

// What clients send is other people's text. Here it becomes ours: the form of everything stays, since
// the filter may look at it, and the same text becomes the same everywhere, so that a call is still
// found by its id, and an answer in the next request is still the model's.

// words are what texts become.
var words = strings.Fields(`amber birch cedar delta ember flint grove harbor island jasper kettle lantern meadow
	nickel orchard pebble quartz river saddle timber umber valley willow yarrow acorn basil copper dune elm
	fern garnet hazel iris juniper kelp linen maple nutmeg olive poplar quill reed slate thyme urchin velvet
	walnut zinc apple barley clover daisy fir ginger heather ivory jade lotus mint oat pine rye`)

// hashed returns hexadecimal digits that stand for a text.
func hashed(text string, digits int) string {
	sum := sha256.Sum256([]byte(text))
	all := hex.EncodeToString(sum[:])
	for len(all) < digits {
		all += all
	}
	return all[:digits]
}

// word returns the word that stands for a text.
func word(text string) string {
	sum := sha256.Sum256([]byte(text))
	return words[int(sum[0])%len(words)]
}

// prose returns a text that stands for another one, of the same kind: nothing, white space, a
// line, several lines.
func prose(text string) string {
	lines := strings.Count(strings.TrimSpace(text), "\n")
	switch {
	case strings.TrimSpace(text) == "":
		return text
	case strings.HasPrefix(text, fields.Billing):
		// The filter drops the values of this line.
		return fields.Billing + " cc_version=1.2.3." + hashed(text, 3) + "; cc_entrypoint=cli;"
	case strings.HasPrefix(text, "@") && reference.MatchString(text):
		return text
	case lines == 0:
		return leading(text) + strings.ToUpper(word(text)[:1]) + word(text)[1:] + " " + hashed(text, 4) + "." + trailing(text)
	}
	return leading(text) + "The " + word(text) + " " + hashed(text, 4) + ":\n- the " + word(text[1:]) + "." + trailing(text)
}

func leading(text string) string { return text[:len(text)-len(strings.TrimLeft(text, " \t\r\n"))] }

func trailing(text string) string { return text[len(strings.TrimRight(text, " \t\r\n")):] }

// The forms of strings that are no prose.
var (
	uuid       = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	longID     = regexp.MustCompile(`^([a-zA-Z]+[_-])*[0-9a-zA-Z+/=_-]*\d[0-9a-zA-Z+/=_-]*$`)
	email      = regexp.MustCompile(`^[\w.+-]+@[\w-]+\.[\w.]+$`)
	filePath   = regexp.MustCompile(`^(/|~/|\.\.?/|[A-Z]:\\)\S*$`)
	dataURL    = regexp.MustCompile(`^data:[\w/+.-]+;base64,`)
	identifier = regexp.MustCompile(`^[A-Za-z][\w.:/-]{0,63}$`)
	dateLike   = regexp.MustCompile(`^\d{4}-\d\d-\d\d`)
)

// pixel is a picture of ours.
const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

// value returns what stands for a string, whose member is a name and no free text.
func value(text string) string {
	switch {
	// What the neutral corpus has already stays as it is.
	case reference.MatchString(text) && strings.HasPrefix(text, "@"):
		return text
	case dataURL.MatchString(text):
		return dataURL.FindString(text) + pixel
	case text == pixel || dateLike.MatchString(text):
		return text

	// What could name a machine, a person or a request.
	case strings.Contains(text, "://"):
		return address(text)
	case email.MatchString(text):
		return "name@example.com"
	case filePath.MatchString(text):
		return "/code/" + word(text) + path.Ext(text)
	case uuid.MatchString(text):
		return uuid.ReplaceAllStringFunc(text, func(id string) string {
			return "00000000-0000-4000-8000-" + hashed(id, 12)
		})
	case isID(text):
		return fakeID(text)

	case identifier.MatchString(text):
		return text
	}
	return prose(text)
}

// isID reports whether a text is an id or a secret: letters and digits of no sense.
func isID(text string) bool {
	if len(text) < 20 || !longID.MatchString(text) {
		return false
	}
	// Names have few digits: claude-code-20250219, response_output_text_2.
	digits := strings.IndexFunc(text, func(r rune) bool { return r >= '0' && r <= '9' })
	last := text[strings.LastIndexAny(text, "_-")+1:]
	return digits >= 0 && (len(last) >= 16 || len(text) > 64)
}

// fakeID returns an id of the same form: its prefix stays.
func fakeID(text string) string {
	at := strings.LastIndexAny(text, "_-") + 1
	if len(text)-at < 16 {
		at = 0
	}
	return text[:at] + hashed(text, min(len(text)-at, 48))
}

// address returns a URL of the same form. Those of schemas are known everywhere.
func address(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return prose(text)
	}
	switch {
	case u.Host == "json-schema.org":
		return text
	case strings.HasPrefix(u.Host, "127.0.0.1"), strings.HasPrefix(u.Host, "localhost"):
		return u.Scheme + "://" + localHost + u.Path
	}
	return u.Scheme + "://example.com/" + word(text) + path.Ext(u.Path)
}

// localHost stands for a server of the test, such as one of MCP.
const localHost = "server.test"

// Members by what their strings are.
var (
	// proseMembers have texts for people and models, also if they are one word.
	proseMembers = set(`content text description instructions system input title output reasoning thinking summary
		arguments reasoning_content refusal query prompt default examples $comment suffix data message query
		display_name note stdout stderr reason additional_instructions`)
	// schemaMembers have JSON schemas.
	schemaMembers = set(`parameters input_schema schema output_schema`)
	// namedMembers have members whose names are a client's own.
	namedMembers = set(`properties patternProperties dependentRequired dependentSchemas`)
)

// knownNames are names of members that no product has for itself.
var knownNames = set(`path file file_path filePath filename command cmd query pattern url text content name input message
	prompt description city location celsius temperature timeout timeout_ms limit offset id type title value
	old_string new_string language format unit count start end line lines args arguments options tags status date
	action answer result results items data key reason question questions a b x y n workdir`)

func set(list string) map[string]bool {
	names := map[string]bool{}
	for _, name := range strings.Fields(list) {
		names[name] = true
	}
	return names
}

// memberName returns what stands for a member's name that is a client's own.
func memberName(name string) string {
	if knownNames[name] || strings.HasPrefix(name, "$") || name == "" {
		return name
	}
	return word(name) + "_" + hashed(name, 8)[4:]
}

// codexMetadata is a member and a header with much that Codex knows of itself, in JSON, for the log of a
// service. The filter does not read it.
const (
	codexMetadata = "x-codex-turn-metadata"
	noMetadata    = `{"sandbox":"none"}`
)

// neutralBody returns a body with neutral strings.
func neutralBody(body string, references map[string]string) string {
	n := &neutral{references: references}
	return n.text(nil, body)
}

// neutral replaces the strings of one request. references are of what replies have given.
type neutral struct{ references map[string]string }

// text returns a JSON text with neutral strings.
func (n *neutral) text(at place, text string) string {
	w := &rewriter{name: n.name, value: n.value}
	return w.rewrite(at, text)
}

// name returns what stands for the name of a member.
func (n *neutral) name(at place, name string) string {
	switch {
	case at.has(schemaMembers) && namedMembers[at.last(0)]:
		return memberName(name)
	case !at.has(schemaMembers) && inArguments(at):
		return memberName(name)
	}
	return name
}

// inArguments reports whether the members of an object are arguments. The input of Responses is a list
// of items, with members of the API.
func inArguments(at place) bool {
	for i, name := range at {
		if name == "arguments" || name == "input" && i > 0 {
			return true
		}
	}
	return false
}

// value returns what stands for a string.
func (n *neutral) value(at place, text string) string {
	if of, ok := n.references[text]; ok {
		return of
	}
	member := at.last(0)
	if at.has(schemaMembers) {
		return n.schemaValue(at, text)
	}

	switch inner := strings.TrimSpace(text); {
	case member == codexMetadata:
		return noMetadata
	case inner != "" && (inner[0] == '{' || inner[0] == '[') && gjson.Valid(text):
		// JSON in a text. What a model or a tool wrote is as arguments are, and its members are a client's
		// own; those of metadata are not.
		if proseMembers[member] {
			at = place{"arguments"}
		}
		return n.text(at, text)
	case enumMembers[member] && identifier.MatchString(text):
		return text
	case member == "definition":
		return grammar(text)
	case member == "server_url" || member == "url" || member == "image_url" || member == "file_url":
		return value(text)
	case proseMembers[member] && !dataURL.MatchString(text) && text != pixel:
		if isID(text) || filePath.MatchString(text) {
			return value(text)
		}
		return prose(text)
	}
	return value(text)
}

// schemaValue returns what stands for a string of a schema.
func (n *neutral) schemaValue(at place, text string) string {
	named := len(at) > 1 && namedMembers[at.last(1)]
	switch member := at.last(0); {
	case named:
		return value(text)
	case member == "required" || member == "propertyOrdering" || namedMembers[member]:
		return memberName(text)
	case proseMembers[member]:
		return prose(text)
	case member == "pattern" || member == "$ref" || member == "$schema" || member == "format" || member == "type":
		return text
	}
	return value(text)
}

// What stands in a grammar: texts in quotes, and names of rules.
var (
	grammarText = regexp.MustCompile(`"(?:[^"\\\n]|\\.)*"`)
	proseRun    = regexp.MustCompile(`[A-Za-z]{3,}`)
)

// grammar returns a grammar of the same rules with other texts.
func grammar(text string) string {
	return grammarText.ReplaceAllStringFunc(text, func(literal string) string {
		return proseRun.ReplaceAllStringFunc(literal, word)
	})
}
