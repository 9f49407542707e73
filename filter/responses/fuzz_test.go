package responses

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// FuzzResponses decodes arbitrary bodies and, where one is a request, plays
// arbitrary tokens into its reply, which must be well-formed and end.
func FuzzResponses(f *testing.F) {
	files, err := filepath.Glob("testdata/*/request.json")
	if err != nil {
		f.Fatal(err)
	}
	var ids []byte
	for _, token := range tokens("<|channel|>analysis<|message|>x<|end|><|start|>assistant to=functions.apply_patch<|channel|>commentary json<|message|>{\"input\":\"\\ud83d\"}<|call|>") {
		ids = binary.LittleEndian.AppendUint32(ids, token)
	}
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body, ids, uint8(3), false)
	}
	f.Add([]byte(ask(mixedTools+`,"stream":true,"reasoning":{"summary":"auto"}`)), ids, uint8(1), true)
	f.Fuzz(func(t *testing.T, body, raw []byte, size uint8, length bool) {
		call, apiErr := (&API{}).Decode(context.Background(), body, newScope())
		if apiErr != nil {
			if !json.Valid(apiErr.JSON()) || apiErr.Status != 400 {
				t.Fatalf("not a refusal: %v", apiErr)
			}
			return
		}
		var out []harmony.Token
		for ; len(raw) >= 4; raw = raw[4:] {
			out = append(out, binary.LittleEndian.Uint32(raw)%201_100)
		}
		finish := engine.FinishStop
		if length {
			finish = engine.FinishLength
		}
		run(t, call, chunks(output{out, finish}, func() int { return int(size) + 1 }))
	})
}

// FuzzCodex sends arbitrary input to a turn that waits for its tools, twice. It
// is refused, or the turn goes on, once.
func FuzzCodex(f *testing.F) {
	begin := func(t testing.TB) (*server, gjson.Result) {
		s := codexServer()
		call, err := s.decodeCodex(`,"input":"go"`)
		if err != nil {
			t.Fatal(err)
		}
		return s, gjson.Parse(run(t, call, chunks(outputOf(callsTwo), func() int { return 9 })))
	}
	_, first := begin(f) // ids count, so that it has the same ones each time
	a, b := first.Get("output.1"), first.Get("output.2")
	for _, input := range []string{
		outputs("x")(a) + "," + outputs("x")(b),
		echoed(a) + "," + echoed(b),
		first.Get("output.0").Raw + "," + a.Raw + "," + outputs("x")(a) + "," + echoed(b) + `,{"role":"user","content":"and"}`,
		`{"type":"item_reference","id":"` + a.Get("id").Str + `"},` + outputs("y")(b),
		`{"role":"user","content":[]},{"type":"function_call","call_id":"c","name":"f","status":"completed"}`,
	} {
		f.Add("["+input+"]", false)
	}
	f.Fuzz(func(t *testing.T, input string, stream bool) {
		s, first := begin(t)
		members := previous(first) + `,"input":` + input
		if stream {
			members += `,"stream":true`
		}
		goneOn := false
		for range 2 {
			call, err := s.decodeCodex(members)
			if err != nil {
				if err.Status < 400 || err.Status > 499 || !json.Valid(err.JSON()) {
					t.Fatalf("not a refusal: %v", err)
				}
				if goneOn {
					t.Fatalf("the request again: %v", err)
				}
				continue
			}
			object, replay, again := call.Again()
			switch {
			case replay != nil:
				sse, _, _ := replay.Next(context.Background())
				final(t, call, string(sse))
			case again:
				final(t, call, string(object))
			case goneOn:
				t.Fatal("the turn goes on again")
			default:
				run(t, call, chunks(outputOf(said), func() int { return 9 }))
				goneOn = call.Continues()
			}
		}
	})
}
