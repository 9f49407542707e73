package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
)

// row is a request of a client: a line of its file.
type row struct {
	// Number is the row's name in its file. It never changes.
	Number int `json:"row"`
	// Versions of the client that are known to send this.
	Versions []string `json:"versions"`
	// Test is the one that made the client send it.
	Test string `json:"test"`

	// Socket is the row that opened the connection over which this is a message. 0: it came over HTTP.
	Socket int               `json:"socket,omitempty"`
	Method string            `json:"method,omitempty"`
	Path   string            `json:"path,omitempty"`
	Header map[string]string `json:"header,omitempty"`
	Body   json.RawMessage   `json:"body,omitempty"`
	// Text is a body that is no JSON.
	Text string `json:"text,omitempty"`

	// Recorded is the status of the reply when it was recorded, from which the client went on.
	Recorded int `json:"recorded,omitempty"`
	// Output is what the model answers, with special tokens spelled. Later rows have ids of the
	// reply to it, as references. Empty: it says that it is done.
	Output string `json:"output,omitempty"`
}

// sharedLine is a value that several rows of a file have, in place of which they have
// {"$shared": name}.
type sharedLine struct {
	Name  string          `json:"shared"`
	Value json.RawMessage `json:"value"`
}

// sharedBytes is how large a value is at least that is shared.
const sharedBytes = 150

func rowsFile(folder, client string) string { return filepath.Join(folder, client+".jsonl") }

// readRows returns the rows of a client, in their order; none if it has no file.
func readRows(folder, client string) (rows []*row, err error) {
	text, err := os.ReadFile(rowsFile(folder, client))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}

	shared := map[string]json.RawMessage{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		line := lines.Bytes()
		if gjson.GetBytes(line, "shared").Exists() {
			var s sharedLine
			if err := json.Unmarshal(line, &s); err != nil {
				return nil, fmt.Errorf("%s: %w", client, err)
			}
			shared[s.Name] = s.Value
			continue
		}

		var r row
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("%s: %w", client, err)
		}
		r.Body = whole(r.Body, shared)
		rows = append(rows, &r)
	}
	return rows, lines.Err()
}

// whole returns a body with the values that it shares in their places.
func whole(body json.RawMessage, shared map[string]json.RawMessage) json.RawMessage {
	return eachValue(body, func(value string) string {
		if of := gjson.Get(value, "$shared"); of.Exists() {
			return string(whole(shared[of.Str], shared))
		}
		return value
	})
}

// eachValue returns an object or a list with the values that change returns of those in it. Those in a
// list of an object come before the list.
func eachValue(body json.RawMessage, change func(value string) string) json.RawMessage {
	outer := gjson.ParseBytes(body)
	switch {
	case outer.IsObject():
		return eachMember(body, func(_ string, value gjson.Result) string {
			if value.IsArray() {
				return change(string(eachValue(json.RawMessage(value.Raw), change)))
			}
			return change(value.Raw)
		})
	case outer.IsArray():
		var elements []string
		for _, element := range outer.Array() {
			elements = append(elements, change(element.Raw))
		}
		return json.RawMessage("[" + strings.Join(elements, ",") + "]")
	}
	return body
}

// eachMember returns an object with the values that change returns. Anything else stays.
func eachMember(body json.RawMessage, change func(name string, value gjson.Result) string) json.RawMessage {
	object := gjson.ParseBytes(body)
	if !object.IsObject() {
		return body
	}

	var members []string
	object.ForEach(func(name, value gjson.Result) bool {
		members = append(members, name.Raw+":"+change(name.Str, value))
		return true
	})
	return json.RawMessage("{" + strings.Join(members, ",") + "}")
}

// sharing finds what bodies share. Tools and messages are shared one by one, and lists of the same
// ones as a whole.
type sharing struct {
	times map[string]int
	names map[string]string
	lines []sharedLine
}

// share returns a body with the names of values in their places, if they are there twice.
func (s *sharing) share(body json.RawMessage) json.RawMessage {
	return eachValue(body, func(value string) string {
		if s.times[value] < 2 {
			return value
		}
		if s.names[value] == "" {
			s.names[value] = strconv.Itoa(len(s.names) + 1)
			s.lines = append(s.lines, sharedLine{s.names[value], json.RawMessage(value)})
		}
		return `{"$shared":"` + s.names[value] + `"}`
	})
}

// count counts the values of a body.
func (s *sharing) count(body json.RawMessage) {
	eachValue(body, func(value string) string {
		if len(value) >= sharedBytes {
			s.times[value]++
		}
		return value
	})
}

// writeRows writes the rows of a client. Values that several of them have stand before them, once.
func writeRows(folder, client string, rows []*row) error {
	bodies := make([]json.RawMessage, len(rows))
	for i, r := range rows {
		bodies[i] = r.Body
	}

	// The second time lists have names of what is in them, and are shared if these are the same.
	s := &sharing{names: map[string]string{}}
	for range 2 {
		s.times = map[string]int{}
		for _, body := range bodies {
			s.count(body)
		}
		for i, body := range bodies {
			bodies[i] = s.share(body)
		}
	}

	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	for _, line := range s.lines {
		if err := e.Encode(line); err != nil {
			return err
		}
	}
	for i, r := range rows {
		written := *r
		written.Body = bodies[i]
		if err := e.Encode(&written); err != nil {
			return err
		}
	}
	return os.WriteFile(rowsFile(folder, client), text.Bytes(), 0o600)
}

// clientsOf returns the clients that have rows.
func clientsOf(folder string) (clients []string, err error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.jsonl"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		clients = append(clients, strings.TrimSuffix(filepath.Base(file), ".jsonl"))
	}
	slices.Sort(clients)
	return clients, nil
}
