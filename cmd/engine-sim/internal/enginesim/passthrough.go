package enginesim

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"net/http"
	"slices"
)

// This file answers requests that are not for gpt-oss, which the filter must pass
// through unchanged.

// recorded records a request that is not for gpt-oss: the size and the SHA-256 of
// the body that the handler read.
func (s *Sim) recorded(h func(http.ResponseWriter, *http.Request, *Record)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		rec := s.begin(r)
		body := &hashedBody{ReadCloser: r.Body, hash: sha256.New()}
		r.Body = body
		status := &statusWriter{ResponseWriter: w, status: http.StatusOK}

		h(status, r, rec)
		// The hash is of what the handler has read, which is the whole body only if it has read to the end.
		s.change(rec, func(rec *Record) {
			rec.BodyBytes, rec.BodySHA256 = body.size, hex.EncodeToString(body.hash.Sum(nil))
		})

		state := StateFinished
		if r.Context().Err() != nil {
			state = StateCancelled
		}
		s.end(rec, state, status.status)
	}
}

// hashedBody is a body whose bytes are counted and hashed as they are read.
type hashedBody struct {
	io.ReadCloser
	hash hash.Hash
	size int64
}

func (b *hashedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	_, _ = b.hash.Write(p[:n]) // never fails
	b.size += int64(n)
	return n, err
}

// statusWriter keeps the status of a response.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap returns the inner writer to http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// echo sends the body back as it arrives.
func (s *Sim) echo(w http.ResponseWriter, r *http.Request, _ *Record) {
	rc := http.NewResponseController(w)
	_ = rc.EnableFullDuplex() // fails on HTTP/2, which is always full duplex
	w.Header().Set("content-type", r.Header.Get("content-type"))
	_, _ = io.Copy(w, r.Body) // the client may have disconnected
}

// embeddings returns the first bytes of the input's SHA-256 as an embedding.
func (s *Sim) embeddings(w http.ResponseWriter, r *http.Request, rec *Record) {
	var body struct {
		Model string          `json:"model"`
		Input json.RawMessage `json:"input"`
	}
	if !s.readJSON(w, r, rec, &body) {
		return
	}
	sum := sha256.Sum256(body.Input)
	writeJSON(w, http.StatusOK, fmt.Appendf(nil, `{"object":"list","data":[{"object":"embedding","index":0,`+
		`"embedding":[%.4f,%.4f,%.4f]}],"model":%s,"usage":{"prompt_tokens":1,"total_tokens":1}}`,
		float64(sum[0])/256, float64(sum[1])/256, float64(sum[2])/256, quote(body.Model)))
}

// otherModelChunks is the number of chunks in the stream of another model.
const otherModelChunks = 20

// otherModels are the names of models that are not gpt-oss. The lists of models do not have them.
var otherModels = []string{"another-model", "some-other-model"}

// otherModelChat is a chat completion of a model that is not gpt-oss. Directives of
// Options and x-engine-sim apply, except faults. gpt-oss answers so too, where the filter is
// told to keep out; a name that nobody serves is an error, as at vLLM.
func (s *Sim) otherModelChat(w http.ResponseWriter, r *http.Request, rec *Record) {
	var body struct {
		Model  string `json:"model"`
		Stream bool   `json:"stream"`
	}
	if !s.readJSON(w, r, rec, &body) {
		return
	}

	// vLLM takes a request that names no model.
	if body.Model != "" && !s.serves(body.Model) && !slices.Contains(otherModels, body.Model) {
		unknown := s.unknownModel(body.Model)
		writeJSON(w, unknown.status, appendError(nil, unknown))
		return
	}

	behavior, err := s.options.Behavior.With(r.Header.Get("x-engine-sim"))
	if err != nil {
		writeJSON(w, http.StatusBadRequest, appendError(nil, badRequest("", "x-engine-sim: "+err.Error())))
		return
	}

	sleep(r.Context().Done(), behavior.First)
	if behavior.Status != 0 {
		writeStatus(w, behavior)
		return
	}

	head := fmt.Sprintf(`{"id":"chatcmpl-foreign","created":%d,"model":%s,`, s.now().Unix(), quote(body.Model))
	if !body.Stream {
		writeJSON(w, http.StatusOK, []byte(head+`"object":"chat.completion","choices":[{"index":0,`+
			`"message":{"role":"assistant","content":"I am another model."},"finish_reason":"stop"}]}`))
		return
	}

	o := newWire(w, formEvents, behavior)
	if o.begin() != nil {
		return
	}

	// The text spells a special token, which the filter must not touch in the answer of another model.
	for i := range otherModelChunks {
		sleep(r.Context().Done(), behavior.Delay)
		if o.event(func(b []byte) []byte {
			return fmt.Appendf(b, `%s"object":"chat.completion.chunk","choices":[{"index":0,`+
				`"delta":{"content":"word%d <|end|> "},"finish_reason":null}]}`, head, i)
		}) != nil {
			return
		}
	}
	_ = o.done() // the client may have disconnected
}

// readJSON reads a JSON body into v and stores it in the record. It returns false
// after it has answered with an error.
func (s *Sim) readJSON(w http.ResponseWriter, r *http.Request, rec *Record, v any) bool {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.options.MaxBody))
	if err != nil || json.Unmarshal(body, v) != nil {
		writeJSON(w, http.StatusBadRequest, appendError(nil, bodyFault(body)))
		return false
	}
	s.change(rec, func(rec *Record) { rec.Params = body })
	return true
}
