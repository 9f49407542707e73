package responses

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// messagesOf reads a list of messages of a response object.
func messagesOf(t *testing.T, object gjson.Result, member string) []harmony.Message {
	t.Helper()
	msgs, err := harmony.UnmarshalConversation([]byte(`{"messages":` + object.Get(member).Raw + `}`))
	if err != nil {
		t.Fatalf("%s: %v\n%s", member, err, object.Get(member).Raw)
	}
	return msgs
}

// TestInputMessages shows that the input messages of any request render to the
// tokens that the model got.
func TestInputMessages(t *testing.T) {
	t.Parallel()
	exact := harmony.NewRenderer(harmony.WithAnalysis(harmony.KeepAnalysis))
	for _, file := range apitest.GoldenRequests(t) {
		body := apitest.With(t, apitest.ReadFile(t, file), "enable_response_messages", true)
		if gjson.Get(body, "reasoning.effort").Str == "none" {
			continue
		}
		request := mustDecode(t, body)
		object := gjson.Parse(run(t, request, apitest.Said(said).Chunks(apitest.Size(2))))
		got, err := exact.AppendCompletion(nil, messagesOf(t, object, "input_messages"), harmony.RoleAssistant)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if diff := cmp.Diff(apitest.Spell(t, request.Engine().Prompt), apitest.Spell(t, got)); diff != "" {
			t.Errorf("%s (-prompt +input_messages):\n%s", file, diff)
		}
		want := []harmony.Message{{Role: harmony.RoleAssistant, Channel: harmony.ChannelFinal, Content: []harmony.Content{harmony.Text("answer")}}}
		if diff := cmp.Diff(want, messagesOf(t, object, "output_messages")); diff != "" {
			t.Errorf("%s: output_messages (-want +got):\n%s", file, diff)
		}
	}
}

// TestMessagesOfFailure shows that a stream that fails has its messages, and one
// that did not ask for them has none.
func TestMessagesOfFailure(t *testing.T) {
	t.Parallel()
	for _, asked := range []bool{true, false} {
		members := `,"stream":true`
		if asked {
			members += `,"enable_response_messages":true`
		}
		request := mustDecode(t, ask(members))
		r := newReply(request, api.SingleCall)
		out, err := r.Push(nil, &engine.Chunk{Tokens: apitest.Tokens("<|channel|>final<|message|>half")})
		if err != nil {
			t.Fatal(err)
		}
		object := gjson.Parse(final(t, request, string(fail(t, r, out, apierror.New(500, "", "", "Broken.")))))
		if got := object.Get("output_messages.0.content.0.text").Str; (got == "half") != asked || object.Get("input_messages").Exists() != asked {
			t.Errorf("asked %v: output_messages %s", asked, object.Get("output_messages").Raw)
		}
	}
}

func TestMessagesRefused(t *testing.T) {
	t.Parallel()
	s := newServer()
	err := s.fails(t, `,"input":"Hi","enable_response_messages":true,"reasoning":{"effort":"none"}`)
	if err.Param != "enable_response_messages" || !strings.Contains(err.Message, "hides") {
		t.Errorf("hidden reasoning: %v", err)
	}
	made := s.create(t, `,"input":"Hi","enable_response_messages":true`, said)
	stored, err := s.do("GET", "/v1/responses/"+made.Get("id").Str)
	if err != nil || !made.Get("input_messages").Exists() || gjson.Get(stored, "input_messages").Exists() {
		t.Errorf("messages are stored: %v %s", err, stored)
	}
}
