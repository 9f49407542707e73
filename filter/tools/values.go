package tools

import (
	"bytes"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/tidwall/gjson"
)

const (
	// maxValues bounds the values of an answer. A value of two bytes takes some hundred when
	// it is decoded.
	maxValues = 500_000
	// valueBytes is what a value counts among the bytes in flight, beside its text: half of what
	// most values take, which are not decoded at one time.
	valueBytes = 64
	// maxTools bounds the tools of a page: the SDK allocates 33 KB for each before anybody
	// can look at their number. It is far above tools.max_listed.
	maxTools = 4096
)

// bounded returns an answer, or an error in its place if there is too much in it to decode.
func bounded(answer *jsonrpc.Response) *jsonrpc.Response {
	what := ""
	switch {
	case answer.Error != nil:
	case valuesOf(answer.Result) > maxValues:
		what = "more than 500000 values"
	case toolsOf(answer.Result) > maxTools:
		what = "more than 4096 tools on a page"
	}
	if what == "" {
		return answer
	}

	return unread(answer, what)
}

// unread returns the error in place of an answer that has too much of something.
func unread(answer *jsonrpc.Response, what string) *jsonrpc.Response {
	return &jsonrpc.Response{
		ID:    answer.ID,
		Error: &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the answer has " + what + ", and is not read"},
	}
}

// valuesOf returns about how many values a JSON text has.
func valuesOf(text json.RawMessage) (n int) {
	for len(text) > 0 {
		quote := bytes.IndexByte(text, '"')
		outside := text
		if quote >= 0 {
			outside = text[:quote]
		}

		for _, c := range outside {
			if c == ',' || c == '[' || c == '{' {
				n++
			}
		}

		if quote < 0 {
			break
		}
		text = afterString(text[quote+1:])
	}
	return n
}

// afterString returns what is after a string whose first quote has been read.
func afterString(text json.RawMessage) json.RawMessage {
	for {
		i := bytes.IndexAny(text, `"\`)
		switch {
		case i < 0:
			return nil
		case text[i] == '"':
			return text[i+1:]
		}
		text = text[min(i+2, len(text)):]
	}
}

// toolsOf returns how many tools a page of a list has.
func toolsOf(result json.RawMessage) int { return int(gjson.GetBytes(result, "tools.#").Int()) }
