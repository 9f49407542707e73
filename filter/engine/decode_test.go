package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

var update = flag.Bool("update", false, "write the golden files")

// joined is a decoded reply with its chunks joined.
type joined struct {
	Tokens      map[int][]harmony.Token
	Finish      map[int]Finish
	Logprobs    map[int][]Logprob
	Usage       Usage
	Fingerprint string
	Err         string
}

// reply is a recorded reply: the body and, for gRPC, the trailers.
type reply struct {
	body            []byte
	status, message string // grpc-status and grpc-message
	choices         int    // the request's number of choices
	logprobs        bool   // the request asks for log probabilities, with three most likely tokens per position
}

func (r reply) request() *Request {
	if r.logprobs {
		return &Request{N: r.choices, Logprobs: true, TopLogprobs: 3}
	}
	return &Request{N: r.choices}
}

func (r reply) trailer(name string) string {
	return map[string]string{"grpc-status": r.status, "grpc-message": r.message}[name]
}

// decode decodes a reply to a request for n choices.
func decode(t testing.TB, kind string, n int, pieces ...[]byte) joined {
	t.Helper()
	return reply{choices: n}.decode(t, kind, pieces...)
}

// decode decodes the reply from pieces of its body.
func (r reply) decode(t testing.TB, kind string, pieces ...[]byte) joined {
	t.Helper()
	dialect, ok := ByKind(kind)
	if !ok {
		t.Fatalf("no dialect %q", kind)
	}
	j := joined{Tokens: map[int][]harmony.Token{}, Finish: map[int]Finish{}, Logprobs: map[int][]Logprob{}, Usage: Usage{CachedTokens: Unknown}}
	d := dialect.NewDecoder(r.request())
	var err *apierror.Error
	var chunks []Chunk
	for _, p := range pieces {
		if chunks, err = d.Feed(p, chunks[:0]); j.add(chunks, err) {
			return j
		}
	}
	if err = d.Trailers(r.trailer); j.add(nil, err) {
		return j
	}
	chunks, err = d.End(chunks[:0])
	j.add(chunks, err)
	return j
}

func (j *joined) add(chunks []Chunk, err *apierror.Error) (failed bool) {
	for _, c := range chunks {
		j.Tokens[c.Index] = append(j.Tokens[c.Index], c.Tokens...)
		for _, p := range c.Logprobs { // valid until the decoder's next call
			p.Top = slices.Clone(p.Top)
			j.Logprobs[c.Index] = append(j.Logprobs[c.Index], p)
		}
		if c.Finish != FinishNone {
			j.Finish[c.Index] = c.Finish
		}
		if c.Usage != nil {
			j.Usage = *c.Usage
		}
		if c.Fingerprint != "" {
			j.Fingerprint = c.Fingerprint
		}
	}
	if err != nil {
		j.Err = err.Error()
	}
	return err != nil
}

func (j joined) String() string {
	var b strings.Builder
	for i := range j.Tokens {
		if _, ok := j.Finish[i]; !ok {
			j.Finish[i] = FinishNone
		}
	}
	for i := range len(j.Finish) {
		fmt.Fprintf(&b, "choice %d: %v, finish %q\n", i, j.Tokens[i], j.Finish[i])
	}
	for i := range len(j.Logprobs) {
		for place, p := range j.Logprobs[i] {
			fmt.Fprintf(&b, "%d: %v %v\n", j.Tokens[i][place], p.Value, p.Top)
		}
	}
	fmt.Fprintf(&b, "cached %d\n", j.Usage.CachedTokens)
	if j.Fingerprint != "" {
		fmt.Fprintf(&b, "fingerprint: %s\n", j.Fingerprint)
	}
	if j.Err != "" {
		fmt.Fprintf(&b, "error: %s\n", j.Err)
	}
	return b.String()
}

// replies returns the replies in testdata: testdata/<kind>/<case>.sse, or .grpc
// and .trailer for gRPC.
func replies(t testing.TB, kind string) map[string]reply {
	t.Helper()
	extension := ".sse"
	if IsGRPC(kind) {
		extension = ".grpc"
	}
	files, err := filepath.Glob(filepath.Join("testdata", kind, "*"+extension))
	if err != nil || len(files) == 0 {
		t.Fatalf("no replies of %s: go test ./cmd/engine-sim/internal/enginesim -run TestWire -update writes them (%v)", kind, err)
	}
	found := map[string]reply{}
	for _, f := range files {
		r := reply{choices: 1}
		if r.body, err = os.ReadFile(f); err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(f, extension)
		r.logprobs = strings.Contains(name, "logprobs")
		if strings.Contains(name, "n2") {
			r.choices = 2
		}
		if IsGRPC(kind) {
			trailer, err := os.ReadFile(name + ".trailer")
			if err != nil {
				t.Fatal(err)
			}
			r.status, r.message, _ = strings.Cut(strings.TrimSuffix(string(trailer), "\n"), "\n")
		}
		found[name] = r
	}
	return found
}

func TestDecode(t *testing.T) {
	for _, kind := range Kinds() {
		for name, r := range replies(t, kind) {
			t.Run(name, func(t *testing.T) {
				got := r.decode(t, kind, r.body).String()
				golden := name + ".want"
				if *update {
					if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(golden)
				if err != nil {
					t.Fatalf("%v; after a check, write it with -update", err)
				}
				if diff := cmp.Diff(string(want), got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		}
	}
}

// stride returns the distance of the tested positions in body: 1 for a short
// body, more for a long one, whose events are all alike.
func stride(body []byte) int { return 1 + len(body)/2500*3 }

// TestDecodePieces cuts every reply at each position, at all positions and at
// random ones. The result must not change.
func TestDecodePieces(t *testing.T) {
	for _, kind := range Kinds() {
		for name, r := range replies(t, kind) {
			t.Run(name, func(t *testing.T) {
				body := r.body
				want := r.decode(t, kind, body)
				check := func(name string, pieces ...[]byte) {
					t.Helper()
					if got := r.decode(t, kind, pieces...); !reflect.DeepEqual(want, got) {
						t.Fatalf("%s (-want +got):\n%s", name, cmp.Diff(want, got))
					}
				}
				for i := 0; i < len(body); i += stride(body) {
					check(fmt.Sprintf("cut at %d", i), body[:i], body[i:])
				}
				check("one byte a piece", slices.Collect(slices.Chunk(body, 1))...)
				random := rand.New(rand.NewPCG(1, 2))
				for range 50 {
					var pieces [][]byte
					for rest := body; len(rest) > 0; {
						k := min(len(rest), 1+random.IntN(1+random.IntN(300)))
						pieces, rest = append(pieces, rest[:k]), rest[k:]
					}
					check("random cuts", pieces...)
				}
				if IsGRPC(kind) {
					return
				}
				plain := bytes.ReplaceAll(body, []byte("\r\n"), []byte("\n"))
				check(`lines end in \n`, plain)
				check(`lines end in \r\n`, bytes.ReplaceAll(plain, []byte("\n"), []byte("\r\n")))
				check("comments between", bytes.ReplaceAll(plain, []byte("\n\n"), []byte("\n\n: keep-alive\n\n")))
				check("no space", bytes.ReplaceAll(body, []byte("data: "), []byte("data:")))
			})
		}
	}
}

// TestTruncatedReply truncates every reply at each position. The output before
// that position is returned, and the end is an error until all choices have
// finished.
func TestTruncatedReply(t *testing.T) {
	for _, kind := range Kinds() {
		for name, r := range replies(t, kind) {
			t.Run(name, func(t *testing.T) {
				whole := r.decode(t, kind, r.body)
				truncated := reply{choices: r.choices} // without trailers
				for i := 0; i < len(r.body); i += stride(r.body) {
					got := truncated.decode(t, kind, r.body[:i])
					if got.Err == "" && len(got.Finish) < r.choices {
						t.Fatalf("%d bytes: %d of %d choices finished, and no error", i, len(got.Finish), r.choices)
					}
					for c, ids := range got.Tokens {
						if len(ids) > len(whole.Tokens[c]) || !slices.Equal(ids, whole.Tokens[c][:len(ids)]) {
							t.Fatalf("%d bytes: choice %d is no prefix", i, c)
						}
					}
				}
			})
		}
	}
}

func TestDecodeErrors(t *testing.T) {
	event := func(s string) string { return "data: " + s + "\n\n" }
	for _, c := range []struct{ name, kind, body string }{
		{"nothing", "vllm", ""},
		{"not a stream", "vllm", `{"choices":[]}`},
		{"html", "sglang", "<html>\n<body>\n"},
		{"not JSON", "vllm", event("{")},
		{"a string", "vllm", event(`"choices"`)},
		{"no choices", "vllm", event("{}")},
		{"no ids", "vllm", event(`{"choices":[{"index":0,"text":"x","finish_reason":null}]}`)},
		{"null for ids", "vllm", event(`{"choices":[{"index":0,"text":"x","token_ids":null,"finish_reason":"stop"}]}`)},
		{"ids are text", "vllm", event(`{"choices":[{"index":0,"token_ids":["a"],"finish_reason":null}]}`)},
		{"negative id", "sglang", event(`{"output_ids":[-1],"meta_info":{}}`)},
		{"id over 32 bits", "sglang", event(`{"output_ids":[4294967296],"meta_info":{}}`)},
		{"a choice that was not requested", "vllm", event(`{"choices":[{"index":1,"token_ids":[1],"finish_reason":null}]}`)},
		{"a negative choice", "vllm", event(`{"choices":[{"index":-1,"token_ids":[1],"finish_reason":null}]}`)},
		{"text after the event", "sglang", event(`{"output_ids":[1],"meta_info":{}} x`)},
		{"missing comma", "sglang", event(`{"output_ids":[1] "meta_info":{}}`)},
		{"done too early", "sglang", event(`{"output_ids":[1],"meta_info":{"completion_tokens":1}}`) + event("[DONE]")},
		{"truncated in an event", "sglang", event(`{"output_ids":[1],"meta_info":{"completion_tokens":1}}`) + `data: {"output_`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := decode(t, c.kind, 1, []byte(c.body))
			if !strings.HasPrefix(got.Err, "502 ") {
				t.Errorf("error %q, want a 502", got.Err)
			}
		})
	}
}

// TestLongLine checks that a line without an end is an error once it is too
// long.
func TestLongLine(t *testing.T) {
	for _, begin := range []string{"data: [", ": ", "x"} {
		d := vllm{}.NewDecoder(&Request{N: 1})
		piece := bytes.Repeat([]byte("1,"), 32<<10)
		_, err := d.Feed([]byte(begin), nil)
		for fed := 0; err == nil; fed += len(piece) {
			if fed > maxLine+len(piece) {
				t.Fatalf("%q: %d bytes of one line taken", begin, fed)
			}
			_, err = d.Feed(piece, nil)
		}
		if err.Status != 502 {
			t.Errorf("%q: %v", begin, err)
		}
		if chunks, err := d.Feed([]byte("\ndata: [DONE]\n\n"), nil); len(chunks) > 0 || err != nil {
			t.Errorf("%q: after the error: %v, %v", begin, chunks, err)
		}
	}
}

// TestFirstEventWithPrompt decodes an event that contains the ids of a full
// context before the first token.
func TestFirstEventWithPrompt(t *testing.T) {
	prompt := strings.TrimSuffix(strings.Repeat("199999,", 131072), ",")
	body := `data: {"choices":[{"index":0,"finish_reason":"stop","prompt_token_ids":[` + prompt + `],"token_ids":[200002]}]}` + "\n\ndata: [DONE]\n\n"
	got := decode(t, "vllm", 1, slices.Collect(slices.Chunk([]byte(body), 62000))...)
	if got.Err != "" || !slices.Equal(got.Tokens[0], []harmony.Token{200002}) {
		t.Errorf("got %v", got)
	}
}

// TestSGLangOutputIDs checks how cumulative ids are distinguished from new
// ones.
func TestSGLangOutputIDs(t *testing.T) {
	event := func(ids string, completion int, finish string) string {
		return fmt.Sprintf(`data: {"output_ids":[%s],"meta_info":{"finish_reason":%s,"completion_tokens":%d}}`+"\n\n", ids, finish, completion)
	}
	noCount := func(ids string) string {
		return fmt.Sprintf(`data: {"output_ids":[%s],"meta_info":{"finish_reason":{"type":"length","length":3}}}`+"\n\n", ids)
	}
	const stop, abort = `{"type":"stop","matched":200002}`, `{"type":"abort","message":"x","status_code":null}`
	for _, c := range []struct {
		name   string
		events []string
		want   []harmony.Token
		advice bool
	}{
		{"cumulative", []string{event("1", 1, "null"), event("1,2", 2, "null"), event("1,2,3,4", 4, stop)}, []harmony.Token{1, 2, 3, 4}, true},
		{"new ids", []string{event("1", 1, "null"), event("2", 2, "null"), event("3, 4", 4, stop)}, []harmony.Token{1, 2, 3, 4}, false},
		{"new ids, as many as before", []string{event("1,2", 2, "null"), event("3,4", 4, stop)}, []harmony.Token{1, 2, 3, 4}, false},
		{"abort repeats the last", []string{event("1,2", 2, "null"), event("2", 2, abort)}, []harmony.Token{1, 2}, false},
		{"abort repeats the only one", []string{event("1", 1, "null"), event("1", 1, abort)}, []harmony.Token{1}, false},
		{"abort repeats all", []string{event("1,2", 2, "null"), event("1,2", 2, abort)}, []harmony.Token{1, 2}, false},
		{"nothing new", []string{event("1", 1, "null"), event("", 1, "null"), event("2", 2, stop)}, []harmony.Token{1, 2}, false},
		{"cumulative, the same again", []string{event("1,2", 2, "null"), event("1,2", 2, "null"), event("1,2,3", 3, stop)}, []harmony.Token{1, 2, 3}, true},
		{"cumulative, cut after the stop", []string{event("1,2,3", 3, "null"), event("1,2,3,4", 6, stop)}, []harmony.Token{1, 2, 3, 4}, true},
		{"new ids, cut after the stop", []string{event("1,2,3", 3, "null"), event("4", 6, stop)}, []harmony.Token{1, 2, 3, 4}, false},
		{"all at once", []string{event("1,2,3", 3, stop)}, []harmony.Token{1, 2, 3}, false},
		{"cumulative, count ahead of the ids", []string{event("5", 1, "null"), event("5,6", 2, "null"), event("5,6,7", 9, "null"), event("5,6,7,8", 12, stop)}, []harmony.Token{5, 6, 7, 8}, true},
		{"cumulative, count ahead from the second event on", []string{event("5", 1, "null"), event("5,6", 8, "null"), event("5,6,7", 9, stop)}, []harmony.Token{5, 6, 7}, true},
		{"cumulative, without a count", []string{event("5", 1, "null"), event("5,6", 2, "null"), noCount("5,6,7")}, []harmony.Token{5, 6, 7}, true},
		{"cumulative, the same first id twice", []string{event("5", 1, "null"), event("5,5", 8, stop)}, []harmony.Token{5, 5}, true},
		{"new ids, count ahead of the ids", []string{event("5", 1, "null"), event("6,7", 8, "null"), event("8,9", 10, stop)}, []harmony.Token{5, 6, 7, 8, 9}, false},
		{"new ids that begin with the first id", []string{event("5", 1, "null"), event("5,6", 3, stop)}, []harmony.Token{5, 5, 6}, false},
		{"cumulative, aborted", []string{event("5", 1, "null"), event("5,6", 2, "null"), event("6", 2, abort)}, []harmony.Token{5, 6}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := sglang{}.NewDecoder(&Request{N: 1})
			var got joined
			got.Tokens, got.Finish = map[int][]harmony.Token{}, map[int]Finish{}
			chunks, err := d.Feed([]byte(strings.Join(c.events, "")), nil)
			got.add(chunks, err)
			chunks, err = d.End(nil)
			got.add(chunks, err)
			if diff := cmp.Diff(c.want, got.Tokens[0]); diff != "" || got.Err != "" {
				t.Errorf("error %q (-want +got):\n%s", got.Err, diff)
			}
			if advice := d.Advice(); (advice != "") != c.advice {
				t.Errorf("advice %q", advice)
			}
		})
	}
}

// TestSGLangChoicesIndependent checks that a choice with repeated ids does not
// change how the ids of another choice are decoded.
func TestSGLangChoicesIndependent(t *testing.T) {
	got := decode(t, "sglang", 2, []byte(`data: {"output_ids":[1],"meta_info":{"finish_reason":null,"completion_tokens":1},"index":0}

data: {"output_ids":[1],"meta_info":{"finish_reason":{"type":"stop"},"completion_tokens":1},"index":0}

data: {"output_ids":[2,3],"meta_info":{"finish_reason":null,"completion_tokens":2},"index":1}

data: {"output_ids":[4],"meta_info":{"finish_reason":{"type":"stop"},"completion_tokens":3},"index":1}

`))
	want := map[int][]harmony.Token{0: {1}, 1: {2, 3, 4}}
	if diff := cmp.Diff(want, got.Tokens); diff != "" || got.Err != "" {
		t.Errorf("error %q (-want +got):\n%s", got.Err, diff)
	}
}

// TestErrorAfterTheEnd checks that errors after all choices have finished are
// ignored.
func TestErrorAfterTheEnd(t *testing.T) {
	ends := map[string]string{
		"sglang":        `{"output_ids":[%d],"meta_info":{"finish_reason":{"type":"stop","matched":200002},"completion_tokens":1},"index":%d}`,
		"vllm":          `{"choices":[{"token_ids":[%d],"finish_reason":"stop","index":%d}]}`,
		"vllm-generate": `{"choices":[{"token_ids":[%d],"finish_reason":"stop","index":%d}]}`,
		"llamacpp":      `{"content":"","tokens":[%d],"stop":false,"tokens_predicted":1,"index":%d}`,
	}
	for _, kind := range Kinds() {
		if IsGRPC(kind) {
			continue
		}
		choices, end := 2, ofKind(t, ends, kind)
		if kind == "llamacpp" {
			choices = 1
		}
		for _, failure := range []string{`{"error":{"message":"boom","code":500}}`, `{"nothing`} {
			events := make([]string, 0, choices+2)
			for i := range choices {
				events = append(events, fmt.Sprintf(end, harmony.TokenReturn, i))
			}
			events = append(events, failure, doneMark)
			got := decode(t, kind, choices, []byte("data: "+strings.Join(events, "\n\ndata: ")+"\n\n"))
			if got.Err != "" || len(got.Finish) != choices || got.Finish[choices-1] != FinishStop {
				t.Errorf("%s, %s after the end: %v", kind, failure, got)
			}
			got = decode(t, kind, choices, []byte("data: "+strings.Join(events[choices-1:], "\n\ndata: ")+"\n\n"))
			if choices > 1 && (got.Err == "" || got.Err == unfinished().Error()) {
				t.Errorf("%s, %s before the last choice finished: %v", kind, failure, got)
			}
		}
	}
	got := decode(t, "vllm", 1, []byte(`data: {"choices":[{"token_ids":[200002],"finish_reason":"stop","index":0}],"error":{"code":503}}`+"\n\n"))
	if !strings.HasPrefix(got.Err, "503 ") {
		t.Errorf("an event with an end and an error: %v", got)
	}
}

// TestRefusedInStream: vLLM checks some parameters only when it has begun to stream. The error of
// its event is the client's then, as with a status.
func TestRefusedInStream(t *testing.T) {
	for _, tt := range []struct{ message, param, wantParam, wantCode string }{
		{message: "Token id 300000 is out of vocabulary"},
		{
			message: "Requested sample logprobs of 21, which is greater than max allowed: 20 (parameter=logprobs, value=21)",
			param:   "logprobs", wantParam: "top_logprobs",
		},
		{
			message: "token_id(s) [300000] in logit_bias contain out-of-vocab token ids. Vocabulary size: 201088 (parameter=logit_bias, value=[300000])",
			param:   "logit_bias", wantParam: "logit_bias",
		},
		{
			message:   "The decoder prompt (length 8192) plus the number of requested output tokens (at least 1) is longer than the maximum model length of 8192. Make sure that `max_model_len` is no smaller than the number of text tokens (prompt + requested output tokens).",
			wantParam: "messages", wantCode: "context_length_exceeded",
		},
		{message: "Invalid grammar specification: 'triggers'"},
	} {
		for _, kind := range []string{"vllm", "vllm-generate"} {
			param := "null"
			if tt.param != "" {
				param = strconv.Quote(tt.param)
			}
			event := fmt.Sprintf(`data: {"error":{"message":%q,"type":"BadRequestError","param":%s,"code":400}}`+"\n\ndata: [DONE]\n\n", tt.message, param)
			dialect, _ := ByKind(kind)
			chunks, err := dialect.NewDecoder(reply{choices: 1}.request()).Feed([]byte(event), nil)
			if len(chunks) > 0 || err == nil || err.Status != http.StatusBadRequest || err.Param != tt.wantParam || err.Code != tt.wantCode {
				t.Errorf("%s: %q: %d chunks and %+v, want a 400 about %q with the code %q", kind, tt.message, len(chunks), err, tt.wantParam, tt.wantCode)
			}
			var cause *Cause
			if !errors.As(err, &cause) || cause.Grammar != strings.Contains(tt.message, "grammar") {
				t.Errorf("%s: %q: the cause is %+v", kind, tt.message, cause)
			}
		}
	}
}

// frame returns a gRPC frame with the message m.
func frame(m []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(m))), m...)
}

// oneToken are typical events with one token of the HTTP engines. SGLang counts the tokens so far.
var oneToken = map[string]string{
	"vllm":          `{"id":"cmpl-1","object":"text_completion","created":1,"model":"gpt-oss-20b","choices":[{"index":0,"text":" \"a\\n","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":[26192]}]}`,
	"vllm-generate": `{"request_id":"generate-tokens-1","usage":null,"output_mode":"tokens","choices":[{"index":0,"finish_reason":null,"stop_reason":null,"token_ids":[26192],"routed_experts":null,"sampling_mask":null,"weight_versions":null,"logprobs":null}]}`,
	"llamacpp":      `{"index":0,"content":" \"a\\n","tokens":[26192],"stop":false,"id_slot":-1,"tokens_predicted":1,"tokens_evaluated":7}`,
	"sglang":        `{"text":" \"a\\n","output_ids":[26192],"meta_info":{"id":"1","finish_reason":null,"prompt_tokens":90,"weight_version":"v1","num_retractions":0,"completion_tokens":COUNT,"cached_tokens":64}}`,
}

// oneTokenEvents returns typical events of a stream with one token each.
func oneTokenEvents(t testing.TB, kind string) (first, next []byte) {
	t.Helper()
	if !IsGRPC(kind) {
		event := "data: " + ofKind(t, oneToken, kind) + "\n\n"
		return []byte(strings.Replace(event, "COUNT", "1", 1)), []byte(strings.Replace(event, "COUNT", "1099511627776", 1))
	}
	dialect, _ := ByKind(kind)
	chunk := dialect.(interface{ chunks() replyMessage }).chunks()
	var inner, outer message
	inner.ids(chunk.ids, []harmony.Token{26192})
	inner.integer(chunk.cached, 64)
	outer.text(1, "chatcmpl-1")
	if chunk.field == 1 {
		outer = message{}
	}
	outer.inner(chunk.field, func(m *message) { m.b = inner.b })
	return frame(outer.b), frame(outer.b)
}

func TestDecodeOneTokenAllocs(t *testing.T) {
	for _, kind := range Kinds() {
		dialect, _ := ByKind(kind)
		d := dialect.NewDecoder(&Request{N: 1})
		first, next := oneTokenEvents(t, kind)
		chunks, err := d.Feed(first, nil)
		if err != nil || len(chunks) != 1 {
			t.Fatal(chunks, err)
		}
		halves := func() {
			chunks, err = d.Feed(next[:len(next)/3], chunks[:0])
			if err == nil {
				chunks, err = d.Feed(next[len(next)/3:], chunks[:0])
			}
		}
		halves()
		if n := testing.AllocsPerRun(100, halves); n != 0 || err != nil || len(chunks) != 1 {
			t.Errorf("%s: %v allocations an event, %d chunks, %v", kind, n, len(chunks), err)
		}
	}
}

func BenchmarkDecodeOneToken(b *testing.B) {
	for _, kind := range Kinds() {
		b.Run(kind, func(b *testing.B) {
			dialect, _ := ByKind(kind)
			d := dialect.NewDecoder(&Request{N: 1})
			first, next := oneTokenEvents(b, kind)
			chunks, err := d.Feed(first, nil)
			b.SetBytes(int64(len(next)))
			b.ReportAllocs()
			for b.Loop() {
				chunks, err = d.Feed(next, chunks[:0])
			}
			if err != nil {
				b.Fatal(err)
			}
		})
	}
}

// fuzzLogprobs is the bit in a fuzz target's n that requests log probabilities.
const fuzzLogprobs = 4

// fuzzDecoder checks a decoder with arbitrary bytes in arbitrary pieces: it
// returns only chunks of existing choices and at most one error.
func fuzzDecoder(f *testing.F, kind string) {
	for _, r := range replies(f, kind) {
		if len(r.body) < 4<<10 { // short seeds, because the mutator minimizes what it finds
			n := uint8(r.choices - 1)
			if r.logprobs {
				n |= fuzzLogprobs
			}
			f.Add(r.body, r.status, r.message, uint16(7), n)
		}
	}
	f.Fuzz(func(t *testing.T, body []byte, status, message string, cut uint16, n uint8) {
		r := reply{body, status, message, int(n%4) + 1, n&fuzzLogprobs != 0}
		got := r.decode(t, kind, slices.Collect(slices.Chunk(body, int(cut)+1))...)
		if got.Err == "" && len(got.Finish) != r.choices {
			t.Errorf("%d of %d choices finished, and no error", len(got.Finish), r.choices)
		}
		for i, p := range got.Logprobs {
			if len(p) != len(got.Tokens[i]) {
				t.Errorf("choice %d: %d log probabilities of %d tokens", i, len(p), len(got.Tokens[i]))
			}
		}
		for i := range got.Tokens {
			if i < 0 || i >= r.choices {
				t.Errorf("choice %d of %d", i, r.choices)
			}
		}
		if diff := cmp.Diff(r.decode(t, kind, body), got); diff != "" {
			t.Errorf("whole and cut differ (-whole +cut):\n%s", diff)
		}
		sizes := []byte{byte(cut), byte(cut >> 8), byte(cut>>4) & 15, 1} // pieces of no byte as well
		if diff := cmp.Diff(got, r.decode(t, kind, cutAt(body, sizes)...)); diff != "" {
			t.Errorf("pieces of one size and of different sizes differ (-one +different):\n%s", diff)
		}
		tokens := 0
		for _, ids := range got.Tokens {
			tokens += len(ids)
		}
		if tokens > len(body) { // an id takes at least a byte
			t.Errorf("%d tokens of %d bytes", tokens, len(body))
		}
	})
}

func FuzzSGLangDecoder(f *testing.F) { fuzzDecoder(f, "sglang") }

func FuzzVLLMDecoder(f *testing.F) { fuzzDecoder(f, "vllm") }

func FuzzVLLMGenerateDecoder(f *testing.F) { fuzzDecoder(f, "vllm-generate") }

func FuzzLlamacppDecoder(f *testing.F) { fuzzDecoder(f, "llamacpp") }

func FuzzVLLMGRPCDecoder(f *testing.F) { fuzzDecoder(f, "vllm-grpc") }

func FuzzSGLangGRPCDecoder(f *testing.F) { fuzzDecoder(f, "sglang-grpc") }

func FuzzTRTLLMGRPCDecoder(f *testing.F) { fuzzDecoder(f, "trtllm-grpc") }

// Each kind has a fuzz target.
func TestDecodersAreFuzzed(t *testing.T) {
	text, err := os.ReadFile("decode_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range Kinds() {
		if !bytes.Contains(text, []byte(`Decoder(f *testing.F) { fuzzDecoder(f, "`+kind+`") }`)) {
			t.Errorf("add to filter/engine/decode_test.go: func Fuzz…Decoder(f *testing.F) { fuzzDecoder(f, %q) }", kind)
		}
	}
}
