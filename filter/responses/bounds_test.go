package responses

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/stored"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// takenForStored is how many bytes of memory the filter takes for each byte of stored items, beside
// what the store takes for reading them.
const takenForStored = 2

// newLargeServer is a server with room for large items.
func newLargeServer() *server {
	s := newServer()
	s.Store = store.NewMemory(store.Options{ResponseBytes: 1 << 30, ResponseTTL: time.Hour, Now: s.rc.Now})
	return s
}

// reserved counts the bytes that a server's requests reserve, of at most so many.
func (s *server) reserved(limit int) *int {
	taken := 0
	s.rc.Reserve = func(bytes int) *apierror.Error {
		if taken+bytes > limit {
			return apierror.New(http.StatusServiceUnavailable, "overloaded", "", "no room")
		}
		taken += bytes
		return nil
	}
	return &taken
}

// message is a user's message of so many bytes, in words of a common kind.
func message(size int) string {
	return `{"role":"user","content":"` + strings.Repeat("large ", size/6) + `"}`
}

// references are so many references to an item.
func references(id string, n int) string {
	return `,"input":[` + strings.TrimSuffix(strings.Repeat(`{"type":"item_reference","id":"`+id+`"},`, n), ",") + `]`
}

// inputOf is the id of the first input item of a stored response.
func (s *server) inputOf(t *testing.T, id string) string {
	t.Helper()
	r, err := s.Store.Get(t.Context(), s.rc.Tenant, id)
	if err != nil {
		t.Fatal(err)
	}
	return r.Input[0].ID
}

// decoded decodes a request and says what that allocates.
func (s *server) decoded(members string) (bytes int, err *apierror.Error) {
	body := []byte(`{"model":"gpt-oss-20b"` + members + `}`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = s.decode(body, s.rc)
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc-before.TotalAlloc) - len(body), err
}

func refusedAsTooLarge(err *apierror.Error, param string) bool {
	return err != nil && err.Status == 400 && err.Code == "conversation_too_large" && err.Param == param && strings.Contains(err.Message, "limits.max_conversation_bytes")
}

const answer = "<|channel|>final<|message|>answer<|return|>"

// TestManyReferences refers to one item very often.
func TestManyReferences(t *testing.T) {
	const size = 480_000
	s := newLargeServer()
	s.rc.Model.ContextLength = 1 << 20
	id := s.inputOf(t, s.create(t, `,"input":[`+message(size)+`]`, answer).Get("id").Str)
	s.rc.Model.ContextLength = 0
	taken := s.reserved(1 << 30)
	n, err := s.decoded(references(id, 19_900))
	if !refusedAsTooLarge(err, "input") || *taken != 0 {
		t.Errorf("19900 references: %v; %d bytes are reserved", err, *taken)
	}
	if n > 16<<20 {
		t.Errorf("19900 references: %d bytes are allocated", n)
	}
	n, err = s.decoded(references(id, 60))
	if err == nil || err.Code != "context_length_exceeded" || !strings.Contains(err.Message, "at least") {
		t.Errorf("60 references: %v", err)
	}
	if *taken < takenForStored*60*size || *taken > takenForStored*61*size {
		t.Errorf("60 references: %d bytes are reserved", *taken)
	}
	if n > *taken/takenForStored/2 {
		t.Errorf("60 references: %d bytes are allocated for %d of text", n, *taken)
	}
}

// TestRepeatedReference stores each reference, and shows the model each.
func TestRepeatedReference(t *testing.T) {
	s := newServer()
	id := s.inputOf(t, s.create(t, `,"input":[{"role":"user","content":[{"type":"input_text","text":"one "},{"type":"input_text","text":"two"}]}]`, answer).Get("id").Str)
	prompt := s.prompt(t, references(id, 3))
	if n := strings.Count(prompt, "<|start|>user<|message|>one two<|end|>"); n != 3 {
		t.Errorf("the item is %d times in %s", n, prompt)
	}
	made := s.create(t, references(id, 3), answer).Get("id").Str
	r, err := s.Store.Get(t.Context(), s.rc.Tenant, made)
	if err != nil || len(r.Input) != 3 || string(r.Input[2].JSON) != string(r.Input[0].JSON) || r.Input[1].ID != id {
		t.Errorf("%v, %v", r, err)
	}
}

// TestConversationBound fills a conversation: what it has no room for is refused
// before it is stored, and before a response is made.
func TestConversationBound(t *testing.T) {
	s := newLargeServer()
	s.rc.Limits.Bytes = 10_000
	if _, err := s.ask("POST", stored.ConversationsPath, `{"items":[`+message(10_000)+`]}`); !refusedAsTooLarge(err, "items") {
		t.Errorf("a new one: %v", err)
	}
	id, path := s.conversation(t, `{"items":[`+message(4_000)+`,`+message(4_000)+`]}`)
	if _, err := s.ask("POST", path+"/items", `{"items":[`+message(2_000)+`]}`); !refusedAsTooLarge(err, "items") {
		t.Errorf("another item: %v", err)
	}
	taken := s.reserved(1 << 20)
	if err := s.fails(t, `,"conversation":"`+id+`","input":[`+message(2_000)+`]`); !refusedAsTooLarge(err, "conversation") {
		t.Errorf("a response: %v", err)
	}
	if *taken < takenForStored*8_000 || *taken > takenForStored*9_000 {
		t.Errorf("%d bytes are reserved", *taken)
	}
	if n := len(s.items(t, path)); n != 2 {
		t.Errorf("the conversation has %d items", n)
	}
	s.create(t, `,"conversation":"`+id+`","input":"short"`, answer) // it is not locked
	s.rc.Limits.Items = 5
	if _, err := s.ask("POST", path+"/items", `{"items":[`+message(6)+`,`+message(6)+`]}`); err == nil || err.Code != "conversation_too_large" || !strings.Contains(err.Message, "5 items") {
		t.Errorf("too many items: %v", err)
	}
	if err := s.fails(t, `,"conversation":"`+id+`","input":[`+message(6)+`,`+message(6)+`]`); err.Code != "conversation_too_large" {
		t.Errorf("a response with too many items: %v", err)
	}
}

// TestLargeConversation names conversations that are larger than they can be.
func TestLargeConversation(t *testing.T) {
	s := newLargeServer()
	s.rc.Limits.Bytes = 1 << 30
	id, _ := s.conversation(t, `{"items":[`+message(8<<20)+`,`+message(8<<20)+`,`+message(8<<20)+`]}`)
	request := `,"conversation":"` + id + `","input":"Hi"`
	s.rc.Limits.Bytes = 16 << 20
	for _, members := range []string{request, request + `,"truncation":"auto"`, request + `,"store":false`} {
		if n, err := s.decoded(members); !refusedAsTooLarge(err, "conversation") || n > 1<<20 {
			t.Errorf("%s: %v, %d bytes are allocated", members, err, n)
		}
	}
	if _, err := s.ask("POST", InputTokensPath, `{"model":"gpt-oss-20b"`+request+`}`); !refusedAsTooLarge(err, "conversation") {
		t.Errorf("input_tokens: %v", err)
	}
	s.rc.Limits.Bytes = 32 << 20
	if _, err := s.decoded(request); err == nil || err.Code != "context_length_exceeded" {
		t.Errorf("within the bound: %v", err)
	}
	taken := s.reserved(16 << 20)
	if n, err := s.decoded(request); err == nil || err.Status != 503 || *taken != 0 || n > 1<<20 {
		t.Errorf("no room: %v, %d bytes are reserved, %d allocated", err, *taken, n)
	}
}

// TestChainBound continues a chain until it is too large, whether or not it is
// remembered.
func TestChainBound(t *testing.T) {
	s := newLargeServer()
	s.rc.Limits.Bytes = 10_000
	previous := s.create(t, `,"input":[`+message(3_000)+`]`, answer).Get("id").Str
	for range 2 {
		previous = s.create(t, `,"previous_response_id":"`+previous+`","input":[`+message(3_000)+`]`, answer).Get("id").Str
	}
	fresh, _ := s.replica()
	for name, s := range map[string]*server{"remembered": s, "read": fresh} {
		taken := s.reserved(1 << 20)
		s.create(t, `,"store":false,"previous_response_id":"`+previous+`","input":"Hi"`, answer)
		if read := name == "read"; read != (*taken > 0) {
			t.Errorf("%s: %d bytes are reserved", name, *taken)
		}
	}
	last := s.create(t, `,"previous_response_id":"`+previous+`","input":[`+message(3_000)+`]`, answer).Get("id").Str
	for name, s := range map[string]*server{"remembered": s, "read": fresh} {
		if err := s.fails(t, `,"previous_response_id":"`+last+`","input":"Hi"`); !refusedAsTooLarge(err, "previous_response_id") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// largeRequests are requests of about so many bytes that no context has room
// for, by name.
func (s *server) largeRequests(t testing.TB, size int) map[string]string {
	t.Helper()
	made, err := s.ask("POST", stored.ConversationsPath, `{"items":[`+message(size)+`]}`)
	if err != nil {
		t.Fatal(err)
	}
	escaped := strings.Repeat(`a\n\"b\"`, size/8)
	part := `{"type":"input_text","text":"` + escaped[:size/2] + `"}`
	return map[string]string{
		"text":         `,"input":"` + strings.Repeat("large ", size/6) + `"`,
		"escaped":      `,"input":"` + escaped + `"`,
		"message":      `,"input":[` + message(size) + `]`,
		"parts":        `,"input":[{"role":"user","content":[` + part + `,` + part + `]}]`,
		"not stored":   `,"store":false,"input":[` + message(size) + `]`,
		"truncated":    `,"truncation":"auto","input":[` + message(size) + `]`,
		"conversation": fmt.Sprintf(`,"conversation":%q,"input":"Hi"`, made.Get("id").Str),
	}
}

// raceDetector reports whether the race detector is on, which allocates itself.
var raceDetector bool

// TestLargeRequest bounds what requests allocate beside their bodies for each
// byte that is counted for them: of the body, and of the stored items that it
// brings in.
func TestLargeRequest(t *testing.T) {
	s := newLargeServer()
	for name, members := range s.largeRequests(t, 8<<20) {
		s.rc.Renderer = harmony.NewRenderer()
		taken := s.reserved(1 << 30)
		n, err := s.decoded(members)
		if err == nil || err.Code != "context_length_exceeded" {
			t.Errorf("%s: %v", name, err)
		}
		if counted := len(members) + *taken; n > 7*counted/2 && !raceDetector {
			t.Errorf("%s: %d bytes are allocated for %d", name, n, counted)
		}
	}
}

// BenchmarkLargeRequest reports what TestLargeRequest bounds.
func BenchmarkLargeRequest(b *testing.B) {
	s := newLargeServer()
	for name, members := range s.largeRequests(b, 8<<20) {
		b.Run(name, func(b *testing.B) {
			taken := s.reserved(1 << 40)
			ratio := 0.0
			for b.Loop() {
				*taken = 0
				n, err := s.decoded(members)
				if err == nil {
					b.Fatal("no error")
				}
				ratio = float64(n) / float64(len(members)+*taken)
			}
			b.ReportMetric(ratio, "allocated/byte")
		})
	}
}

// TestNestedTexts shows that JSON in a string nests as deeply as a client likes.
func TestNestedTexts(t *testing.T) {
	s := newLargeServer()
	_, err := s.decoded(`,"input":[` + message(6) + `,{"type":"mcp_call","id":"mcp_1","server_label":"s","name":"f","status":"incomplete","arguments":"` + strings.Repeat("[", 20<<20) + `"}]`)
	if err != nil {
		t.Error(err)
	}
}
