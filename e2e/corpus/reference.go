package main

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
)

// A client sends back what a reply has given it: ids, and texts that it cannot read. A row has a
// reference in place of each, "@ROW KIND INDEX", and TestCorpus puts in what the filter gives now.

// idMembers are the members of replies whose ids clients send back, opaqueMembers those whose texts.
var (
	idMembers     = set(`id call_id response_id tool_use_id conversation approval_request_id`)
	opaqueMembers = set(`encrypted_content signature`)
)

// idKind matches the kind of an id: what stands before its first digits.
var idKind = regexp.MustCompile(`^[a-z]+[_-]`)

// given returns what a reply, an object or events, gives the client, by kind and in order.
func given(reply string) map[string][]string {
	found, seen := map[string][]string{}, map[string]bool{}
	for _, object := range objectsOf(reply) {
		eachString(object, func(name, value string) {
			// A list of models has ids, too, which are names.
			isGiven := idMembers[name] && isID(value) || opaqueMembers[name] && value != ""
			if !isGiven || seen[value] {
				return
			}
			kind := name
			if of := idKind.FindString(value); of != "" && idMembers[name] {
				kind = of
			}
			seen[value] = true
			found[kind] = append(found[kind], value)
		})
	}
	return found
}

// objectsOf returns the JSON of a reply: that of each event, or the whole.
func objectsOf(reply string) (objects []gjson.Result) {
	for line := range strings.Lines(reply) {
		text := strings.TrimPrefix(strings.TrimSpace(line), "data: ")
		if strings.HasPrefix(text, "{") && gjson.Valid(text) {
			objects = append(objects, gjson.Parse(text))
		}
	}
	if len(objects) == 0 && gjson.Valid(reply) {
		objects = append(objects, gjson.Parse(reply))
	}
	return objects
}

// eachString calls each for every string of a JSON value with the member that it is of.
func eachString(v gjson.Result, each func(name, value string)) {
	v.ForEach(func(name, value gjson.Result) bool {
		switch {
		case value.IsObject() || value.IsArray():
			eachString(value, each)
		case value.Type == gjson.String:
			each(name.String(), value.Str)
		}
		return true
	})
}

// addReferences adds the reference to everything that a row's reply has given first.
func addReferences(references map[string]string, number int, reply string) {
	for kind, values := range given(reply) {
		for i, value := range values {
			if references[value] == "" {
				references[value] = "@" + strconv.Itoa(number) + " " + kind + " " + strconv.Itoa(i)
			}
		}
	}
}

// reference matches a reference.
var reference = regexp.MustCompile(`@(\d+) ([a-z_-]+) (\d+)`)
