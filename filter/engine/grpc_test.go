package engine

import (
	"bytes"
	"encoding/binary"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

var grpcDialects = []*grpcDialect{vllmGRPC.grpcDialect, sglangGRPC.grpcDialect, trtllmGRPC}

// chunks returns the description of a Chunk.
func (d *grpcDialect) chunks() replyMessage { return d.chunk }

func (d *grpcDialect) chunkFrame(index int, ids ...harmony.Token) []byte {
	return d.frameOf(&d.chunk, index, "", ids)
}

func (d *grpcDialect) completeFrame(index int, finish string, ids ...harmony.Token) []byte {
	return d.frameOf(&d.complete, index, finish, ids)
}

func (d *grpcDialect) frameOf(f *replyMessage, index int, finish string, ids []harmony.Token) []byte {
	var m message
	m.inner(f.field, func(m *message) {
		m.ids(f.ids, ids)
		m.integer(f.index, int64(index))
		if f.finish != 0 {
			m.text(f.finish, finish)
		}
	})
	return frame(m.b)
}

// TestGRPCCompleteRepeats checks a Complete that repeats the ids of the last
// Chunk or all ids of the choice, or whose choice has no Chunk.
func TestGRPCCompleteRepeats(t *testing.T) {
	for _, d := range grpcDialects {
		for name, frames := range map[string][][]byte{
			"repeats the last":             {d.chunkFrame(0, 1), d.chunkFrame(0, 2, 3), d.completeFrame(0, "stop", 2, 3)},
			"repeats all":                  {d.chunkFrame(0, 1), d.chunkFrame(0, 2, 3), d.completeFrame(0, "stop", 1, 2, 3)},
			"repeats all and has new ones": {d.chunkFrame(0, 1), d.completeFrame(0, "stop", 1, 2, 3)},
			"no chunks":                    {d.completeFrame(0, "stop", 1, 2, 3)},
			"none":                         {d.chunkFrame(0, 1, 2), d.chunkFrame(0, 3), d.completeFrame(0, "stop")},
			"a chunk after the end":        {d.chunkFrame(0, 1, 2, 3), d.completeFrame(0, "stop", 3), d.chunkFrame(0, 4)},
		} {
			got := reply{choices: 1, status: "0"}.decode(t, d.kind, slices.Concat(frames...))
			if got.Err != "" || !slices.Equal(got.Tokens[0], []harmony.Token{1, 2, 3}) || got.Finish[0] != FinishStop {
				t.Errorf("%s, %s: %v", d.kind, name, got)
			}
		}
	}
}

func TestGRPCFinish(t *testing.T) {
	for reason, want := range map[string]Finish{"stop": FinishStop, "stop_word": FinishStop, "length": FinishLength, "abort": FinishAbort, "cancelled": FinishAbort, "timeout": FinishAbort} {
		got := decode(t, "trtllm-grpc", 1, trtllmGRPC.completeFrame(0, reason, 1))
		if got.Err != "" || got.Finish[0] != want {
			t.Errorf("%s: %v", reason, got)
		}
	}
	if got := decode(t, "vllm-grpc", 1, vllmGRPC.completeFrame(0, "error")); !strings.HasPrefix(got.Err, "502 ") {
		t.Errorf("error: %v", got)
	}
}

// TensorRT-LLM has a finish reason for the choice that ends last only. The others were cut
// if they have as many tokens as the request allows, and do not end with a stop token.
func TestGRPCFinishUnknown(t *testing.T) {
	for name, c := range map[string]struct {
		ids  []harmony.Token
		want Finish
	}{
		"cut":                   {[]harmony.Token{1, 2, 3}, FinishLength},
		"stopped":               {[]harmony.Token{1, 200012}, FinishStop},
		"stopped at the limit":  {[]harmony.Token{1, 2, 200002}, FinishStop},
		"stopped by the user's": {[]harmony.Token{1, 2, 7}, FinishStop},
		"stop token left out":   {[]harmony.Token{1, 2}, FinishStop},
		"nothing":               {nil, FinishStop},
	} {
		d := trtllmGRPC.NewDecoder(&Request{N: 2, MaxTokens: 3, StopTokens: []harmony.Token{7}})
		body := slices.Concat(trtllmGRPC.chunkFrame(0, c.ids...), trtllmGRPC.completeFrame(0, "", c.ids...))
		chunks, err := d.Feed(body, nil)
		if err != nil || len(chunks) == 0 || chunks[len(chunks)-1].Finish != c.want {
			t.Errorf("%s: %v, %v", name, chunks, err)
		}
	}
}

// TestGRPCUnpacked decodes a repeated field of ids that is not packed.
func TestGRPCUnpacked(t *testing.T) {
	var m message
	m.inner(vllmGRPC.complete.field, func(m *message) {
		for _, id := range []int64{200005, 1, 200002} {
			m.integer(vllmGRPC.complete.ids, id)
		}
	})
	got := decode(t, "vllm-grpc", 1, frame(m.b))
	if got.Err != "" || !slices.Equal(got.Tokens[0], []harmony.Token{200005, 1, 200002}) {
		t.Errorf("%v", got)
	}
}

func TestGRPCErrors(t *testing.T) {
	compressed := frame([]byte{1, 2, 3})
	compressed[0] = 1
	long := binary.BigEndian.AppendUint32([]byte{0}, maxLine+1)
	for _, d := range grpcDialects {
		for name, body := range map[string][]byte{
			"nothing":                         {},
			"html":                            []byte("<html>502</html>"),
			"compressed":                      compressed,
			"too long":                        long,
			"not protobuf":                    frame([]byte{0x0f}),
			"submessage not protobuf":         frame([]byte{byte(d.chunk.field)<<3 | 2, 1, 0x0f}),
			"a choice that was not requested": d.chunkFrame(1, 1),
			"truncated frame":                 d.completeFrame(0, "stop", 1)[:7],
			"an empty message":                frame(nil),
			"a newer message only":            frame([]byte{15 << 3, 1}),
		} {
			got := reply{choices: 1, status: "0"}.decode(t, d.kind, body)
			if !strings.HasPrefix(got.Err, "502 ") {
				t.Errorf("%s, %s: error %q, want a 502", d.kind, name, got.Err)
			}
		}
	}
}

// TestGRPCLongMessage decodes a long message from small pieces.
func TestGRPCLongMessage(t *testing.T) {
	ids := make([]harmony.Token, 1<<17)
	for i := range ids {
		ids[i] = harmony.Token(200000)
	}
	body := vllmGRPC.completeFrame(0, "length", ids...)
	got := decode(t, "vllm-grpc", 1, slices.Collect(slices.Chunk(body, 999))...)
	if got.Err != "" || len(got.Tokens[0]) != len(ids) {
		t.Errorf("%d ids, %s", len(got.Tokens[0]), got.Err)
	}
}

// TestGRPCStatus checks the errors for gRPC statuses, in trailers and in
// replies that consist of headers only.
func TestGRPCStatus(t *testing.T) {
	for _, c := range []struct {
		code, message string
		status        int
		param         string
	}{
		{"1", "cancelled", 502, ""},
		{"2", "boom", 502, ""},
		{"3", "temperature must be non-negative, got -1.0. (parameter=temperature, value=-1.0)", 400, "temperature"},
		{"3", "The%20decoder%20prompt%20(length%204100)%20is%20longer%20than%20the%20maximum%20model%20length%20of%204096.", 400, "messages"},
		{"3", "Token id 300000 is out of vocabulary", 400, ""},
		{"4", "", 504, ""},
		{"5", "model not found", 404, "model"},
		{"7", "", 502, ""},
		{"8", "queue is full", 429, ""},
		{"8", "Received message larger than max (5000000 vs. 4194304)", 413, ""},
		{"12", "Method not found!", 502, ""},
		{"13", "EngineCore", 502, ""},
		{"14", "upstream connect error or disconnect/reset before headers. 10.1.2.3:8000", 503, ""},
		{"16", "", 502, ""},
		{"99", "", 502, ""},
		{"x", "%zz", 502, ""},
	} {
		fields := func(name string) string {
			return map[string]string{"grpc-status": c.code, "grpc-message": c.message, "retry-after": "3"}[name]
		}
		d := vllmGRPC.NewDecoder(&Request{N: 1})
		err := d.Trailers(fields)
		if err == nil || err.Status != c.status || err.Param != c.param || err.RetryAfter != 3*time.Second {
			t.Errorf("%s %q: %+v", c.code, c.message, err)
			continue
		}
		for _, secret := range []string{"300000", "10.1.2.3", "%20"} {
			if strings.Contains(err.Message, secret) || strings.Contains(err.Cause.Error(), secret) {
				t.Errorf("%q shows in %q or %q", secret, err.Message, err.Cause)
			}
		}
		if chunks, err := d.End(nil); len(chunks) > 0 || err != nil {
			t.Errorf("after the error: %v, %v", chunks, err)
		}
		if got := vllmGRPC.ReadError(http.StatusServiceUnavailable, fields, nil); got.Status != c.status {
			t.Errorf("%s in a reply that is not a 200: %+v", c.code, got)
		}
	}
	// After all choices have finished, the status is ignored.
	got := reply{choices: 1, status: "13"}.decode(t, "vllm-grpc", vllmGRPC.completeFrame(0, "stop", 1))
	if got.Err != "" {
		t.Errorf("after the end: %v", got)
	}
}

func TestTRTLLMRefuses(t *testing.T) {
	_, err := trtllmGRPC.Encode(&Request{Prompt: []harmony.Token{1}, MaxTokens: 1, LogitBias: map[harmony.Token]float64{1: 2}})
	if err == nil || err.Param != "logit_bias" {
		t.Errorf("%v", err)
	}
	_, err = llamacpp{}.Encode(&Request{Prompt: []harmony.Token{1}, MaxTokens: 1, N: 2})
	if err == nil || err.Param != "n" {
		t.Errorf("%v", err)
	}
	_, err = llamacpp{}.Encode(&Request{Prompt: []harmony.Token{1}, MaxTokens: 2, MinTokens: 1})
	if err == nil || err.Param != "min_tokens" {
		t.Errorf("%v", err)
	}
	got, err := llamacpp{}.Encode(&Request{Prompt: []harmony.Token{1}, MaxTokens: 2, MinTokens: 2})
	if err != nil || !bytes.Contains(got.Body, []byte(`"ignore_eos":true`)) {
		t.Errorf("as many tokens as there may be: %+v, %v", got, err)
	}
}

func TestIgnores(t *testing.T) {
	r := &Request{Seed: ptr(int64(1)), CacheSalt: "x", Priority: ptr(1)}
	ignored := map[string]string{
		"sglang": "", "vllm": "", "vllm-generate": "", "sglang-grpc": "seed cache_salt priority",
		"vllm-grpc": "cache_salt priority", "trtllm-grpc": "priority", "llamacpp": "cache_salt priority",
	}
	for _, kind := range Kinds() {
		d, _ := ByKind(kind)
		if got := strings.Join(d.Ignores(r), " "); got != ofKind(t, ignored, kind) {
			t.Errorf("%s ignores %q", kind, got)
		}
		if got := d.Ignores(&Request{}); len(got) > 0 {
			t.Errorf("%s ignores %q of nothing", kind, got)
		}
	}
}
