package chat

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// FuzzChat decodes arbitrary bodies and, where one is a request, plays
// arbitrary tokens into its reply, which must be well-formed and end.
func FuzzChat(f *testing.F) {
	files, err := filepath.Glob("testdata/*/request.json")
	if err != nil {
		f.Fatal(err)
	}
	var ids []byte
	for _, token := range tokens("<|channel|>analysis<|message|>x<|end|><|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}<|call|>") {
		ids = binary.LittleEndian.AppendUint32(ids, token)
	}
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body, ids, uint8(3), false)
	}
	f.Add([]byte(ask(weatherTool+`,"stream":true,"n":2,"stop":"a"`)), ids, uint8(1), true)
	f.Fuzz(func(t *testing.T, body, raw []byte, size uint8, length bool) {
		call, apiErr := Decode(context.Background(), body, newScope())
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
		n := call.Engine().N
		outputs := make([]output, 0, n)
		for i := range n {
			outputs = append(outputs, output{i, out, finish})
		}
		got := run(t, call, chunks(outputs, func() int { return int(size) + 1 }))
		if call.Stream() {
			fold(t, got, n)
			return
		}
		parseObject(t, got)
	})
}
