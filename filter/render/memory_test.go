package render

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

// spaces128 is the token of 128 spaces.
const spaces128 = 72056

// repeated is a request about n tokens.
func repeated(token, n int) string {
	return `{"tokens":[` + strings.TrimSuffix(strings.Repeat(fmt.Sprint(token, ","), n), ",") + `]}`
}

// handled sends a request to an endpoint whose reservations go to reserve, and returns what
// was allocated meanwhile.
func handled(t *testing.T, path, body string, reserve func(bytes int) *apierror.Error) (o api.Outcome, allocated int) {
	t.Helper()
	e, ids := api.Match(service, http.MethodPost, path)
	rc := apitest.NewContext()
	rc.Reserve = reserve
	request := &api.HTTPRequest{IDs: ids, Path: path, Body: []byte(body), Context: rc}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	o = e.Handle(context.Background(), request)
	runtime.ReadMemStats(&after)
	return o, int(after.TotalAlloc - before.TotalAlloc)
}

// TestAnswersAreReservedFirst shows that what is larger than its request is made only if
// there is room for it, and takes no more than was reserved.
func TestAnswersAreReservedFirst(t *testing.T) { // not parallel: allocations are counted
	full := apierror.New(http.StatusServiceUnavailable, "overloaded", "", "full")
	for name, c := range map[string]struct {
		path, body string
		answer     int // bytes, about
	}{
		"spaces":  {DetokenizePath, repeated(spaces128, 100_000), 12_800_000},
		"escapes": {DetokenizePath, repeated(0xBC+1, 100_000), 600_000}, // a control character
		"texts":   {TokenizePath, `{"return_token_strs":true,"prompt":"` + strings.Repeat(` é\u0001`, 100_000) + `"}`, 3_000_000},
	} {
		t.Run(name, func(t *testing.T) {
			reserved := 0
			o, withRoom := handled(t, c.path, c.body, func(n int) *apierror.Error {
				reserved += n
				return nil
			})
			if n := len(o.Answer); o.Err != nil || n > reserved || reserved > n+n/4+1024 || cap(o.Answer) > reserved+reserved/4 || n < c.answer/2 {
				t.Errorf("%v: an answer of %d bytes, capacity %d, for %d", o.Err, n, cap(o.Answer), reserved)
			}

			// Without room the same is read, and the answer is not made.
			o, without := handled(t, c.path, c.body, func(int) *apierror.Error { return full })
			if o.Err != full || without > withRoom-c.answer*9/10 {
				t.Errorf("%v; %d bytes are allocated without room, %d with it", o.Err, without, withRoom)
			}
		})
	}
}

// TestTextThatIsTooLong shows that a text far longer than its request is refused by name.
func TestTextThatIsTooLong(t *testing.T) {
	o, allocated := handled(t, DetokenizePath, repeated(spaces128, 200_000), nil)
	if o.Err == nil || o.Err.Status != http.StatusRequestEntityTooLarge || o.Err.Param != "tokens" || !strings.Contains(o.Err.Message, "25600000 bytes") || allocated > 12<<20 {
		t.Errorf("%v; %d bytes are allocated", o.Err, allocated)
	}
}

// TestRepliesAreReservedFirst shows that the reply so far, of which a chunk has the tokens, is
// made again only if there is room for it, and takes no more than was reserved.
func TestRepliesAreReservedFirst(t *testing.T) { // not parallel: allocations are counted
	const n = 20_000
	state := fmt.Sprintf(`"stream_state":{"request_id":"a","created":1,"output_token_ids":[200005,17196,200008,%s],"output_chunk_lens":[3,%s]}`,
		strings.TrimSuffix(strings.Repeat(fmt.Sprint(spaces128, ","), n), ","), strings.TrimSuffix(strings.Repeat("1,", n), ","))
	for path, request := range map[string]string{
		"/v1/chat/completions/derender": `"chat_request":{"model":"m","messages":[{"role":"user","content":"x"}]}`,
		"/v1/responses/derender":        `"responses_request":{"model":"m","input":"x"}`,
		"/v1/messages/derender":         `"messages_request":{"model":"m","max_tokens":99999,"messages":[{"role":"user","content":"x"}]}`,
	} {
		t.Run(path, func(t *testing.T) {
			body := `{"model":"m","stream":true,` + state + `,"generate_chunk":{"choices":[{"index":0,"token_ids":[200002],"finish_reason":"stop"}]},` + request + `}`
			reserved := 4 * len(body) // of the body
			o, allocated := handled(t, path, body, func(n int) *apierror.Error {
				reserved += n
				return nil
			})
			if o.Err != nil || len(o.Answer) == 0 || allocated > 3*reserved { // what is copied while it grows counts each time
				t.Errorf("%v: %d bytes are allocated, %d reserved", o.Err, allocated, reserved)
			}

			full := apierror.New(http.StatusServiceUnavailable, "overloaded", "", "full")
			o, allocated = handled(t, path, body, func(n int) *apierror.Error {
				if n > len(body) {
					return full
				}
				return nil
			})
			if o.Err != full || allocated > 8<<20 {
				t.Errorf("%v: %d bytes are allocated without room", o.Err, allocated)
			}
		})
	}
}
