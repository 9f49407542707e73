package engine_test

import (
	"fmt"
	"log"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// A model call: the request for the engine, and the token ids of the reply, which
// may arrive in pieces of any size.
func Example() {
	dialect, _ := engine.ByKind("sglang")
	request := &engine.Request{ID: engine.CallID{Request: "chatcmpl-1"}, N: 1, MaxTokens: 16, Prompt: harmony.AppendEncodeSpecial(nil, "<|start|>user<|message|>Hi<|end|><|start|>assistant")}
	httpRequest, err := dialect.Encode(request)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("POST", httpRequest.Path)

	decoder := dialect.NewDecoder(request)
	var chunks []engine.Chunk
	for _, piece := range []string{
		`data: {"output_ids":[200005,17196],"meta_info":{"completion_tokens":2,"cached_tokens":0,"finish_reason":null}}` + "\n\nda",
		`ta: {"output_ids":[200008,13225,200002],"meta_info":{"completion_tokens":5,"finish_reason":{"type":"stop","matched":200002}}}` + "\n\n",
	} {
		if chunks, err = decoder.Feed([]byte(piece), chunks[:0]); err != nil {
			log.Fatal(err)
		}
		for _, c := range chunks {
			fmt.Printf("%d %q\n", c.Tokens, c.Finish)
		}
	}
	if _, err = decoder.End(nil); err != nil {
		log.Fatal(err)
	}
	// Output:
	// POST /generate
	// [200005 17196] ""
	// [200008 13225 200002] "stop"
}
