package engine

import (
	"bytes"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/filter/retention"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

var someHints = &retention.Hints{Scope: `a "session"`, Directives: []retention.Directive{
	{Start: 0, End: 6000, Priority: 90, Keep: 10 * time.Minute},
	{Start: 6000, End: 9000, Priority: 69, Keep: 12500 * time.Millisecond},
	{Output: true, Priority: retention.Released},
}}

const writtenHints = `{"protocol_version":"0.1","message_id":"5feceb66-1-r","actions":[{"action_id":"retain",` +
	`"action_type":"kv.retain","action_version":"1.0","payload":{"scope":"a \"session\"","directives":[` +
	`{"start":0,"end":6000,"priority":90,"duration":600},{"start":6000,"end":9000,"priority":69,"duration":12.5},` +
	`{"covers_output":true,"priority":0}]}}]}`

// TestKVHints requires the form of vLLM's source, in the requests of all kinds that take hints and in no other.
func TestKVHints(t *testing.T) {
	t.Parallel()
	for _, d := range dialects {
		with, err := d.Encode(asking(Request{Retention: someHints}))
		if err != nil {
			t.Fatal(err)
		}
		without, _ := d.Encode(asking(Request{}))
		if !d.Traits().KVHints {
			if !reflect.DeepEqual(with, without) {
				t.Errorf("%s takes no hints, and its request has some", d.Kind())
			}
			continue
		}
		if got := gjson.GetBytes(with.Body, "kv_hints").Raw; got != writtenHints {
			t.Errorf("%s: %s", d.Kind(), got)
		}
		if bytes.Contains(without.Body, []byte("hints")) {
			t.Errorf("%s: a request without hints is %s", d.Kind(), without.Body)
		}
	}
	if got := KVHinted(); !slices.Equal(got, []string{"vllm", "vllm-generate"}) {
		t.Errorf("hints are for %v", got)
	}
}

// TestKVHintsChangeNothingElse requires of any request with hints the same request without them, but for that
// member, and the same reading of the reply: what is not in a request cannot change the output.
func TestKVHintsChangeNothingElse(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 9))
	names := slices.Sorted(maps.Keys(asked))
	for range 2000 {
		// Any of the parameters together, as long as they go together.
		request, fields := Request{}, reflect.ValueOf(&Request{}).Elem()
		for _, name := range names {
			if r.IntN(2) == 0 && name != "StopTokens" && name != "Constraint" {
				fields.FieldByName(name).Set(reflect.ValueOf(asked[name]).FieldByName(name))
			}
		}
		request = fields.Interface().(Request)
		if r.IntN(2) == 0 {
			request.Constraint, request.MinTokens = constraint.Text("x"), 0
		}
		request.Logprobs = request.Logprobs || request.TopLogprobs > 0
		if r.IntN(4) == 0 {
			request.Disaggregation = &Disaggregation{KVTransferParams: []byte(`{"a":1}`), Unstreamed: r.IntN(2) == 0}
		}

		hinted := request
		hinted.Retention = someHints
		for _, kind := range KVHinted() {
			d, _ := ByKind(kind)
			without, err := d.Encode(asking(request))
			with, errWith := d.Encode(asking(hinted))
			if err != nil || errWith != nil {
				t.Fatal(kind, err, errWith)
			}
			if with.Path != without.Path || !slices.Equal(with.Header, without.Header) {
				t.Fatalf("%s: %s %v and %s %v", kind, with.Path, with.Header, without.Path, without.Header)
			}
			if got := withoutHints(t, with.Body); !reflect.DeepEqual(got, withoutHints(t, without.Body)) {
				t.Fatalf("%s: %s\n%s", kind, with.Body, without.Body)
			}
			if a, b := d.NewDecoder(asking(hinted)), d.NewDecoder(asking(request)); !reflect.DeepEqual(readOf(a), readOf(b)) {
				t.Fatalf("%s reads a reply to a request with hints in another way", kind)
			}
		}
	}
}

// withoutHints returns the members of a request.
func withoutHints(t *testing.T, body []byte) (members map[string]json.RawMessage) {
	t.Helper()
	if err := json.Unmarshal(body, &members); err != nil {
		t.Fatal(err)
	}
	delete(members, "kv_hints")
	return members
}

// readOf returns what a decoder makes of a reply.
func readOf(d Decoder) []Chunk {
	chunks, _ := d.Feed([]byte(`data: {"choices":[{"index":0,"token_ids":[5,6],"finish_reason":"stop"}]}`+"\n\n"), nil)
	for i := range chunks {
		chunks[i] = chunks[i].Clone()
	}
	return chunks
}

// TestKVHintsOfLaterRequests: a continuation, and the requests of disaggregated serving, have the hints of the
// request that they are made of.
func TestKVHintsOfLaterRequests(t *testing.T) {
	t.Parallel()
	r := asking(Request{Retention: someHints})
	if next := r.Continued(nil, []harmony.Token{1, 2}); next == nil || next.Retention != someHints {
		t.Errorf("a continuation has %+v", next)
	}
	prefill, err := vllm{}.PrefillRequest(r, nil)
	if err != nil || prefill.Retention != someHints {
		t.Errorf("a prefill request has %+v, %v", prefill, err)
	}
}
