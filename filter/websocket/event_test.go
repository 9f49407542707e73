package websocket

import (
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

// FuzzEvent reads arbitrary events. What is made of one that is accepted is JSON, with the members
// that the server sets.
func FuzzEvent(f *testing.F) {
	f.Add(`{"type":"response.create","model":"m","input":[{"role":"user","content":"x"}],"stream":false}`)
	f.Add(`{"type":"response.create","stream_id":"a","\u0069nput":"x","previous_response_id":null}`)
	f.Add(`{"type":"response.steer","previous_response_id":"r","input":[{"role":"user","content":[]},{"role":"user"}]}`)
	f.Add(`{"type":"response.cancel","response_id":"r"}`)
	f.Add(`{"type":"response.create","input":"a","input":[1,2]} x`)
	f.Fuzz(func(t *testing.T, text string) {
		e, err := readEvent([]byte(text))
		if err != nil {
			return
		}
		settings, err := e.settings()
		if err != nil {
			return
		}

		turn := e.turn()
		for _, steers := range [][]steer{nil, {{input: `"more"`}, {input: `[{"role":"user"}]`}}} {
			if steers != nil {
				turn.input = joined(steers, turn.input)
			}
			body := turn.appendTo(settings)
			// A member that is there twice would be refused in a POST, and must not be hidden here.
			root := jsontext.Field{Result: gjson.ParseBytes(body)}
			unique := root.Entries(func(string, jsontext.Field) *apierror.Error { return nil }) == nil
			if !unique || !gjson.ValidBytes(body) || gjson.GetBytes(body, "stream").Raw != "true" || gjson.GetBytes(body, "stream_id").Exists() {
				t.Errorf("%q becomes %q", text, body)
			}
		}

		checkSteer(&e)
	})
}
