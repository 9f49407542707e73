package responses

import (
	"encoding/json"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/write"
)

// FuzzCodex sends arbitrary input to a turn that waits for its tools, twice. It
// is refused, or the turn goes on, once.
func FuzzCodex(f *testing.F) {
	begin := func(t testing.TB) (*server, gjson.Result) {
		s := codexServer()
		request, err := s.decodeCodex(`,"input":"go"`)
		if err != nil {
			t.Fatal(err)
		}
		return s, gjson.Parse(run(t, request, apitest.Said(callsTwo).Chunks(apitest.Size(9))))
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
			o := s.codexOutcome(members)
			switch {
			case o.Err != nil:
				if err := o.Err; err.Status < 400 || err.Status > 499 || !json.Valid(err.JSON()) {
					t.Fatalf("not a refusal: %v", err)
				}
				if goneOn {
					t.Fatalf("the request again: %v", o.Err)
				}
			case o.Request == nil:
				repeated(t, o)
			case goneOn:
				t.Fatal("the turn goes on again")
			default:
				request := o.Request.(*write.Request)
				run(t, request, apitest.Said(said).Chunks(apitest.Size(9)))
				goneOn = request.Continues()
			}
		}
	})
}
