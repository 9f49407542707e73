package replies

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
)

// chunkedText has characters of 1 to 4 bytes, and some that are several code points.
const chunkedText = "THINK Über 👩‍👩‍👧‍👦 und ẞ.\nSAY naïve 🙂 乌鲁木齐 क्षि end."

// However an engine's bytes are cut, through all of the stack, and however many
// tokens an event has, the client gets the same texts: for each kind of engine and
// each API.
func TestAnyChunkingOfEveryEngine(t *testing.T) {
	d := stack.Start(t, stack.Options{Quiet: true, Config: stack.EveryEngine})
	random := rand.New(rand.NewPCG(7, 15))

	for _, kind := range engine.Kinds() {
		t.Run(kind, func(t *testing.T) {
			for _, a := range stack.FaultAPIs {
				const want = `["Über 👩‍👩‍👧‍👦 und ẞ.","naïve 🙂 乌鲁木齐 क्षि end."]`
				for i := range 6 {
					how := fmt.Sprintf("cut=random:%d tokens-per-event=random:%d seed=%d crlf=%t comments=%t", 1+random.IntN(40), 1+random.IntN(9), random.Uint32(), i%2 == 1, i%3 == 1)
					if i == 0 {
						how = "cut=1"
					}

					resp := d.Do(t, http.MethodPost, a.Path, "application/json", strings.NewReader(a.Body(stack.ModelOf(kind), chunkedText, true)), "x-engine-sim", how)
					text, message, err := a.Read(resp.Body)
					if err != nil || message != "" {
						t.Fatalf("%s, %s: %v, %s, in\n%s", a.Name, how, err, message, text)
					}

					if diff := cmp.Diff(want, a.Texts(text)); diff != "" {
						t.Errorf("%s, %s (-want +got):\n%s", a.Name, how, diff)
					}
				}
			}
		})
	}
}

// damaging is an engine whose answers are damaged as a request's header says:
// "x-damage: KIND@BYTE".
func damaging(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var kind string
		var at int
		if _, err := fmt.Sscanf(strings.Replace(r.Header.Get("x-damage"), "@", " ", 1), "%s %d", &kind, &at); err != nil {
			next.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(&damagedWriter{ResponseWriter: w, kind: kind, left: at}, r)
	})
}

// damagedWriter damages one byte of an answer, or what follows it.
type damagedWriter struct {
	http.ResponseWriter
	kind string
	left int // bytes until the damage; -1: it is done
}

func (w *damagedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *damagedWriter) Write(p []byte) (int, error) {
	if w.left < 0 || w.left >= len(p) {
		if w.left >= 0 {
			w.left -= len(p)
		}
		return w.ResponseWriter.Write(p)
	}

	at := w.left
	w.left = -1
	switch w.kind {
	case "cut": // the connection breaks
		_, _ = w.ResponseWriter.Write(p[:at])
		_ = http.NewResponseController(w.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	case "flip":
		q := append([]byte(nil), p...)
		q[at] ^= 0x55
		return w.ResponseWriter.Write(q)
	case "zero":
		q := append(append([]byte(nil), p[:at]...), make([]byte, len(p)-at)...)
		return w.ResponseWriter.Write(q)
	case "insert":
		_, err := w.ResponseWriter.Write(append(append(append([]byte(nil), p[:at]...), "\n\n\xff\x00{]data: data:\n\n"...), p[at:]...))
		return len(p), err
	case "drop":
		_, err := w.ResponseWriter.Write(append(append([]byte(nil), p[:at]...), p[at+1:]...))
		return len(p), err
	}
	return w.ResponseWriter.Write(p)
}

// Whatever byte of an engine's answer is missing, wrong or the last one, the client
// gets a reply with an end: what could be read, or an error of its API. And the next
// request works.
func TestDamagedAnswersOfEveryEngine(t *testing.T) {
	d := stack.Start(t, stack.Options{Quiet: true, Config: stack.EveryEngine, Engine: damaging})
	random := rand.New(rand.NewPCG(15, 7))
	failed := 0

	for _, kind := range engine.Kinds() {
		if engine.IsGRPC(kind) {
			continue // the proxy in front of the engine speaks HTTP/1.1
		}

		t.Run(kind, func(t *testing.T) {
			for i := range 60 {
				a := stack.FaultAPIs[i%len(stack.FaultAPIs)]
				how := fmt.Sprintf("%s@%d", []string{"cut", "flip", "zero", "insert", "drop"}[i%5], random.IntN(1500))
				stream := i%2 == 0
				resp := d.Do(t, http.MethodPost, a.Path, "application/json", strings.NewReader(a.Body(stack.ModelOf(kind), chunkedText, stream)), "x-damage", how)

				switch {
				case stream && resp.StatusCode == http.StatusOK:
					text, message, err := a.Read(resp.Body)
					if err != nil {
						t.Errorf("%s, %s: %v in\n%s", a.Name, how, err, text)
					}
					if message != "" {
						failed++
					}
				default:
					text, err := io.ReadAll(resp.Body)
					if err != nil || !gjson.ValidBytes(text) || (resp.StatusCode == http.StatusOK) == gjson.GetBytes(text, "error.message").Exists() {
						t.Errorf("%s, %s: status %d, %v, %s", a.Name, how, resp.StatusCode, err, text)
					}
					if resp.StatusCode != http.StatusOK {
						failed++
					}
				}
			}

			d.Works(t, stack.ModelOf(kind))
		})
	}

	if failed < 30 {
		t.Errorf("only %d replies failed: the answers are not damaged", failed)
	}
}
