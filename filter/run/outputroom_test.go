package run

import (
	"net/http"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// TestOutputRoom shows that room for output is taken before the reply has it, in few steps,
// by the length of the texts and not by that of the engine's event.
func TestOutputRoom(t *testing.T) {
	const spaces128 = 72056
	full := apierror.New(http.StatusServiceUnavailable, "overloaded", "", "full")
	limit, taken, times := 64<<20, 0, 0
	o := outputRoom{keeps: true, left: outputStep, take: func(n int) *apierror.Error {
		if taken+n > limit {
			return full
		}
		taken, times = taken+n, times+1
		return nil
	}}
	chunk := &engine.Chunk{Tokens: []harmony.Token{spaces128, spaces128}}
	const each = 2 * 128
	written := 0
	var err *apierror.Error
	for err == nil {
		if err = o.grow(chunk); err == nil {
			written += each
		}
		if written*outputFactor > taken+outputStep {
			t.Fatalf("%d bytes are written for %d that are taken", written, taken)
		}
	}
	if err != full || written < (limit-outputStep)/outputFactor || times > limit/outputStep {
		t.Errorf("%v after %d bytes, taken in %d steps", err, written, times)
	}
	if allocations := testing.AllocsPerRun(100, func() { _ = o.grow(&engine.Chunk{}) }); allocations > 0 {
		t.Errorf("%v allocations", allocations)
	}
}

// TestMessagesTakeRoom shows that a message of a few tokens takes room for what is kept of it
// beside its text.
func TestMessagesTakeRoom(t *testing.T) {
	t.Parallel()
	taken := 0
	o := outputRoom{keeps: true, take: func(n int) *apierror.Error {
		taken += n
		return nil
	}}
	const messages = 10_000
	for range messages {
		message := []harmony.Token{harmony.TokenStart, harmony.TokenMessage, 64, harmony.TokenEnd}
		if err := o.grow(&engine.Chunk{Tokens: message}); err != nil {
			t.Fatal(err)
		}
	}
	if taken < messages*messageBytes {
		t.Errorf("%d bytes for %d messages", taken, messages)
	}
}

// TestHeldOutputTakesRoom shows that output which waits for its check takes room as it comes,
// also in a stream, which keeps nothing else.
func TestHeldOutputTakesRoom(t *testing.T) {
	t.Parallel()
	for fields, want := range map[string]bool{
		`,"stream":true`: false,
		`,"stream":true,"response_format":{"type":"json_object"}`: true,
	} {
		request := chatRequest(t, fields, true)
		r := newTestRun(t, request, api.Loop, "llamacpp")
		taken := 0
		r.output.take = func(n int) *apierror.Error {
			taken += n
			return nil
		}
		r.output.left = 0
		r.Start()
		answer := llamacppAnswer(`<|channel|>final<|message|>{"a":"many words"}<|return|>`, "eos")
		r.feed(answer[:len(answer)-2]...)
		if (taken > 0) != want {
			t.Errorf("%s: %d bytes are taken", fields, taken)
		}
	}
}
