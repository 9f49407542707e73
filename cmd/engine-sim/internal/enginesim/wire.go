package enginesim

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// form is the framing of messages in a response body.
type form int

const (
	formEvents     form = iota // server-sent events that end with [DONE]
	formOpenEvents             // server-sent events without [DONE]
	formFrames                 // gRPC messages, with the status in the trailers
)

// wire writes a response body in chunks as Behavior says.
type wire struct {
	w      http.ResponseWriter
	form   form
	flush  func() error
	b      Behavior
	random *rand.Rand
	buf    []byte
}

func newWire(w http.ResponseWriter, f form, b Behavior) *wire {
	return &wire{
		w: w, form: f, flush: http.NewResponseController(w).Flush, b: b, random: rand.New(rand.NewPCG(b.Seed, 1)),
	}
}

// begin sends the headers of a stream at once, like engines do.
func (o *wire) begin() error {
	h := o.w.Header()
	switch o.form {
	case formFrames:
		h.Set("content-type", "application/grpc")
	case formOpenEvents:
		h.Set("content-type", "text/event-stream")
		h.Set("server", "llama.cpp")
	default:
		h.Set("content-type", "text/event-stream; charset=utf-8")
		h.Set("server", "uvicorn")
	}
	o.w.WriteHeader(http.StatusOK)
	return o.flush()
}

// event sends the message that write appends. An empty message is not sent.
func (o *wire) event(write func([]byte) []byte) error {
	o.buf = o.buf[:0]
	if o.form == formFrames {
		// The length is known only after the message, so its place is kept.
		o.buf = write(append(o.buf, 0, 0, 0, 0, 0))
		binary.BigEndian.PutUint32(o.buf[1:], uint32(len(o.buf)-framePrefix)) //nolint:gosec // a message's size
		if len(o.buf) == framePrefix {
			return nil
		}
		return o.send(o.buf)
	}

	end := "\n\n"
	if o.b.CRLF {
		end = "\r\n\r\n"
	}
	// vLLM sends such comments with --sse-keep-alive-interval.
	if o.b.Comments {
		o.buf = append(append(o.buf, ": keep-alive"...), end...)
	}

	o.buf = append(o.buf, "data: "...)
	head := len(o.buf)
	if o.buf = write(o.buf); len(o.buf) == head {
		return nil
	}
	return o.send(append(o.buf, end...))
}

// done ends a stream.
func (o *wire) done() error {
	switch o.form {
	case formOpenEvents:
		// llama.cpp ends the body without a mark.
		return nil
	case formFrames:
		setGRPCStatus(o.w.Header(), http.TrailerPrefix, 0, "")
		return nil
	}
	return o.event(func(b []byte) []byte { return append(b, "[DONE]"...) })
}

// sendError ends a stream with an error.
func (o *wire) sendError(err *apiError) error {
	if o.form == formFrames {
		setGRPCStatus(o.w.Header(), http.TrailerPrefix, grpcCode(err.status), err.message)
		return nil
	}
	if err := o.event(func(b []byte) []byte { return appendError(b, err) }); err != nil {
		return err
	}
	return o.done()
}

func (o *wire) send(p []byte) error {
	for len(p) > 0 {
		n := len(p)
		if o.b.Cut.N > 0 {
			n = min(n, o.b.Cut.next(o.random))
		}
		if _, err := o.w.Write(p[:n]); err != nil {
			return err
		}
		// Each piece is flushed, so that a client may receive it alone.
		if err := o.flush(); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

func (c Count) next(random *rand.Rand) int {
	if c.Random {
		return 1 + random.IntN(c.N)
	}
	return c.N
}

// apiError is an error response of an engine.
type apiError struct {
	status  int
	message string
	kind    string
	param   string
	// The findings of a validation error, of which the message is the text.
	found []finding
	// vLLM finds it when it has begun to stream.
	late bool
	// Lengths of a prompt that llama.cpp does not take.
	prompt, context int
	// SGLang: what it answers before it knows whether the request is for a stream; nil: it knows.
	body []byte
	// SGLang: the one that is refused, where the answer has its members.
	request *modelRequest
	// Why SGLang does not take the request's grammar, with the place in xgrammar's own source;
	// "": that is not the error.
	grammar string
}

func (r *apiError) Error() string { return r.message }

func badRequest(param, message string) *apiError {
	return &apiError{status: http.StatusBadRequest, message: message, kind: "BadRequestError", param: param}
}

// invalidTag is the message of a structural tag that no engine takes.
const invalidTag = "Invalid structural tag specification."

// notCompiled is how SGLang begins to say that a grammar does not compile.
const notCompiled = "Failed to compile structural_tag grammar: "

// badTag is the error of a structural tag that is none.
func badTag() *apiError {
	err := badRequest("", invalidTag)
	err.grammar = notCompiled + "Grammar compilation failed: "
	return err
}

// badGrammar is the error of a grammar that does not compile. vLLM keeps the reason to itself.
func badGrammar(place string, reason error) *apiError {
	err := badRequest("", invalidTag)
	err.grammar = notCompiled + "[12:00:00] /project/cpp/" + place + ": " + reason.Error() + "\n"
	return err
}

// writeJSON sends a complete response.
func writeJSON(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("server", "uvicorn")
	writeJSONAs(w, "application/json", status, body)
}

// writeLlamacpp sends a complete response of llama.cpp.
func writeLlamacpp(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("server", "llama.cpp")
	writeJSONAs(w, "application/json; charset=utf-8", status, body)
}

func writeJSONAs(w http.ResponseWriter, contentType string, status int, body []byte) {
	w.Header().Set("content-type", contentType)
	w.Header().Set("content-length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may have disconnected
}

// appendError appends the error object of vLLM and, in streams, of SGLang.
func appendError(b []byte, r *apiError) []byte {
	b = append(b, `{"error":{"message":`...)
	b = appendQuoted(b, r.message)
	b = append(b, `,"type":`...)
	b = appendQuoted(b, r.kind)
	b = append(b, `,"param":`...)
	if r.param == "" {
		b = append(b, "null"...)
	} else {
		b = appendQuoted(b, r.param)
	}
	b = append(b, `,"code":`...)
	b = strconv.AppendInt(b, int64(r.status), 10)
	return append(b, "}}"...)
}

// writeStatus sends the response of a status directive.
func writeStatus(w http.ResponseWriter, b Behavior) {
	if b.RetryAfter > 0 {
		w.Header().Set("retry-after", strconv.Itoa(b.RetryAfter))
	}
	switch b.Body {
	case "detail":
		writeJSON(w, b.Status, append(appendQuoted([]byte(`{"detail":`), http.StatusText(b.Status)), '}'))
	case "envoy":
		writeText(w, b.Status, "text/plain", envoyReply(b.Status))
	case "html":
		writeText(w, b.Status, "text/html", "<html><body><h1>"+http.StatusText(b.Status)+"</h1></body></html>\n")
	case "empty":
		w.Header().Set("content-length", "0")
		w.WriteHeader(b.Status)
	default:
		writeJSON(w, b.Status, appendError(nil, &apiError{
			status: b.Status, message: "The simulated engine fails because of a directive.", kind: "SimulatedError",
		}))
	}
}

func writeText(w http.ResponseWriter, status int, contentType, body string) {
	w.Header().Set("content-type", contentType)
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body)) // the client may have disconnected
}

// envoyReply returns the body of Envoy's local reply.
func envoyReply(status int) string {
	switch status {
	case http.StatusServiceUnavailable:
		return "upstream connect error or disconnect/reset before headers. reset reason: connection timeout"
	case http.StatusGatewayTimeout:
		return "upstream request timeout"
	case http.StatusTooManyRequests:
		return "local_rate_limited"
	}
	return http.StatusText(status)
}

// sleep waits for a duration or until done is closed.
func sleep(done <-chan struct{}, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-done:
	}
}

// appendIDs appends a JSON array of ids.
func appendIDs(b []byte, ids []uint32) []byte {
	b = append(b, '[')
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, uint64(id), 10)
	}
	return append(b, ']')
}

// parseIDs parses a JSON array of ids. bad is the index of the first invalid one,
// -1 if there is none.
func parseIDs(raw []byte) (ids []uint32, bad int) {
	raw = bytes.TrimSpace(raw)
	if len(raw) < 2 || raw[0] != '[' || raw[len(raw)-1] != ']' {
		return nil, 0
	}

	raw = bytes.TrimSpace(raw[1 : len(raw)-1])
	// Most ids have five digits, and a comma follows.
	ids = make([]uint32, 0, len(raw)/6)
	for len(raw) > 0 {
		var one []byte
		one, raw, _ = bytes.Cut(raw, []byte(","))
		id, err := strconv.ParseUint(string(bytes.TrimSpace(one)), 10, 32)
		if err != nil {
			return ids, len(ids)
		}
		ids = append(ids, uint32(id))
	}
	return ids, -1
}
