package main

import (
	"encoding/json"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
)

// shapeOf returns what makes a request one of its kind: the endpoint, the headers that change what is
// done, and which members of which types and with which values of a list it has, at any depth. How many
// messages there are, what they say and what tools are named makes no difference.
func shapeOf(r *row) string {
	s := &shape{facts: map[string]bool{}}
	path, query, _ := strings.Cut(r.Path, "?")
	s.add(r.Method, anyID.ReplaceAllString(path, "ID"), anyID.ReplaceAllString(query, "ID"), strconv.FormatBool(r.Socket != 0))
	for _, name := range []string{"anthropic-beta", "openai-beta", "content-encoding", "content-type"} {
		s.add(name, r.Header[name])
	}
	s.add("text", strconv.Itoa(min(len(r.Text), 1)))
	s.value(nil, gjson.ParseBytes(r.Body))

	facts := make([]string, 0, len(s.facts))
	for fact := range s.facts {
		facts = append(facts, fact)
	}
	sort.Strings(facts)
	return strings.Join(facts, "\n")
}

// anyID matches what stands for an id in a path.
var anyID = regexp.MustCompile(`@\d+ [a-z_-]+ \d+|[a-z]*_?[0-9a-f]{16,}`)

// shape collects the facts about a request.
type shape struct{ facts map[string]bool }

func (s *shape) add(parts ...string) { s.facts[strings.Join(parts, " ")] = true }

// value notes a JSON value and all in it.
func (s *shape) value(at place, v gjson.Result) {
	where := strings.Join(at, ".")
	switch {
	case v.IsObject():
		if at.last(0) == "metadata" || inArguments(at) {
			s.add(where, "object")
			return
		}
		v.ForEach(func(name, member gjson.Result) bool {
			s.value(append(at[:len(at):len(at)], s.name(at, name.Str)), member)
			return true
		})
	case v.IsArray():
		s.list(at, v.Array())
	case v.Type == gjson.String:
		s.add(where, s.text(at, v.Str))
	case v.Type == gjson.Number && len(at) <= 2 && !at.has(proseMembers):
		// Limits are compared with one another.
		s.add(where, v.Raw)
	default:
		s.add(where, v.Type.String())
	}
}

// name returns the name of a member, unless it is one of a client's own.
func (s *shape) name(at place, name string) string {
	if namedMembers[at.last(0)] || at.last(0) == "$defs" || at.last(0) == "definitions" {
		return "*"
	}
	return name
}

// list notes what the elements are, and which follows which.
func (s *shape) list(at place, elements []gjson.Result) {
	where := strings.Join(at, ".")
	s.add(where, "list", strconv.Itoa(min(len(elements), 1)))
	before := "begin"
	for _, element := range elements {
		s.value(append(at[:len(at):len(at)], "[]"), element)
		if at.has(schemaMembers) || at.last(0) == "tools" {
			continue
		}
		kind := element.Get("type").Str + "/" + element.Get("role").Str
		s.add(where, before, kind)
		before = kind
	}
	if len(elements) > 0 && before != "begin" {
		s.add(where, before, "end")
	}
}

// text returns what of a string makes a shape: the words of the API, or of what kind a text is.
func (s *shape) text(at place, text string) string {
	member := at.last(0)
	if member == "[]" {
		member = at.last(1)
	}

	switch {
	case enumMembers[member] || strings.HasPrefix(member, "enable_"):
		return text
	case text == "":
		return "empty"
	case strings.TrimSpace(text) == "":
		return "white space"
	case strings.HasPrefix(text, "data:"):
		return "data"
	case at.has(schemaMembers):
		return "text"
	case strings.HasPrefix(text, "{") && gjson.Valid(text):
		return "JSON"
	}

	// Ids are all of one shape, but for what they are of.
	if match := reference.FindStringSubmatch(text); match != nil {
		return "given " + match[2]
	}
	if kind := idKind.FindString(text); kind != "" && isID(text) {
		return "id " + kind
	}
	return "text"
}

// enumMembers are the members whose values are words of an API.
var enumMembers = set(`type role status phase effort summary format detail verbosity tool_choice include truncation
	service_tier display mode ttl reasoning_effort stream_options encoding_format execution syntax prompt_cache_retention
	media_type context_management purpose object user_location search_context_size`)

// follows returns the rows whose replies a row refers to.
func (r *row) follows() (numbers []int) {
	for _, text := range []string{r.Path, string(r.Body)} {
		for _, match := range reference.FindAllStringSubmatch(text, -1) {
			if n, err := strconv.Atoi(match[1]); err == nil && !slices.Contains(numbers, n) {
				numbers = append(numbers, n)
			}
		}
	}
	return numbers
}

// conversations returns the references to conversations in a row.
func (r *row) conversations() (references []string) {
	for _, match := range reference.FindAllStringSubmatch(r.Path+string(r.Body), -1) {
		if match[2] == "conv_" {
			references = append(references, match[0])
		}
	}
	return references
}

// rename changes the numbers of rows in a row, its own too.
func (r *row) rename(names map[int]int) {
	change := func(text string) string {
		return reference.ReplaceAllStringFunc(text, func(of string) string {
			match := reference.FindStringSubmatch(of)
			n, _ := strconv.Atoi(match[1])
			return "@" + strconv.Itoa(names[n]) + " " + match[2] + " " + match[3]
		})
	}
	r.Number, r.Socket = names[r.Number], names[r.Socket]
	r.Path, r.Body = change(r.Path), json.RawMessage(change(string(r.Body)))
}
