package apitest

import (
	"encoding/binary"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Fuzz decodes arbitrary bodies. If one is a request, it pushes arbitrary tokens into
// the reply, which must be well-formed and complete. The seeds are an output with the
// golden requests, and with body.
func (a *API) Fuzz(f *testing.F, output, body string) {
	// The fuzzer mutates bytes: four of them are a token.
	var ids []byte
	for _, token := range Tokens(output) {
		ids = binary.LittleEndian.AppendUint32(ids, token)
	}
	for _, file := range GoldenRequests(f) {
		f.Add([]byte(ReadFile(f, file)), ids, uint8(3), false)
	}
	f.Add([]byte(body), ids, uint8(1), true)

	f.Fuzz(func(t *testing.T, body, raw []byte, size uint8, length bool) {
		request, err := a.Decode(body, NewContext())
		if err != nil {
			// Nothing but the body can be wrong here: another status would blame somebody else.
			if !json.Valid(err.JSON()) || err.Status != 400 {
				t.Fatalf("not a refusal: %v", err)
			}
			return
		}

		// Some of the tokens are not in the vocabulary.
		var tokens []harmony.Token
		for ; len(raw) >= 4; raw = raw[4:] {
			tokens = append(tokens, binary.LittleEndian.Uint32(raw)%201_100)
		}
		finish := engine.FinishStop
		if length {
			finish = engine.FinishLength
		}

		all := outputs(request, func() ([]harmony.Token, engine.Finish) { return tokens, finish })
		reply, err := play(t, request, a.Mode, Chunks(all, Size(int(size)+1)))
		switch {
		case err == nil:
			a.Read(t, request, reply)
		// An arbitrary output keeps no constraint of the body.
		case err.Status != http.StatusBadGateway || err.Code != "constraint_not_kept":
			t.Fatalf("not the engine's fault: %v", err)
		}
	})
}
