package stack

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"
)

// RecordedRequest is a request of a real client as it arrived, and the reply to it: a line of a
// recording, which e2e/corpus reads. Of a connection over WebSocket each message is a line.
type RecordedRequest struct {
	// Client is the client's name in e2e/clients, Test the test that ran it.
	Client  string `json:"client"`
	Version string `json:"version"`
	Test    string `json:"test"`

	// Number counts the requests of a recording as they arrived. Socket is that of the request
	// which opened the connection; 0: it came over HTTP.
	Number int `json:"number"`
	Socket int `json:"socket,omitempty"`

	Method string              `json:"method,omitempty"`
	Path   string              `json:"path,omitempty"` // with the query
	Header map[string][]string `json:"header,omitempty"`
	Body   string              `json:"body,omitempty"`

	// Status is 0 of messages over WebSocket, and of requests that had no reply.
	Status int    `json:"status,omitempty"`
	Reply  string `json:"reply,omitempty"`
}

// Recorded returns the URL of a relay to base, which records what a client sends into the folder
// E2E_REQUESTS. Without that it returns base.
//
// The filter's own records are no source for e2e/corpus: they have neither the members nor the
// headers that the filter does not know, and those are what clients differ in.
func Recorded(t testing.TB, base, client, version string) string {
	t.Helper()
	folder := os.Getenv("E2E_REQUESTS")
	if folder == "" {
		return base
	}
	target, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}

	test := strings.NewReplacer("/", "_", " ", "_").Replace(t.Name())
	file, err := os.OpenFile(filepath.Join(folder, test+".jsonl"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}

	relay := &recordingRelay{
		t: t, target: target, file: file,
		about: RecordedRequest{Client: client, Version: version, Test: t.Name()},
	}
	relay.proxy = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = target.Scheme, target.Host
		},
		FlushInterval: -1,
	}
	server := httptest.NewServer(FullDuplex(relay.serve))
	t.Cleanup(func() {
		server.Close()
		_ = file.Close()
	})
	return server.URL + target.Path
}

// recordingRelay passes requests on and writes them down.
type recordingRelay struct {
	t      testing.TB
	target *url.URL
	proxy  *httputil.ReverseProxy
	about  RecordedRequest

	mu     sync.Mutex
	number int
	file   *os.File
}

// arrived returns a line for a request that arrives now.
func (r *recordingRelay) arrived(socket int) *RecordedRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.number++
	line := r.about
	line.Number, line.Socket = r.number, socket
	return &line
}

// write writes a line.
func (r *recordingRelay) write(line *RecordedRequest) {
	text, err := json.Marshal(line)
	if err != nil {
		r.t.Errorf("record a request: %v", err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	// A request that outlives its test is of no account: its client was ended.
	_, _ = r.file.Write(append(text, '\n'))
}

func (r *recordingRelay) serve(w http.ResponseWriter, q *http.Request) {
	line := r.arrived(0)
	line.Method, line.Path, line.Header = q.Method, q.URL.RequestURI(), q.Header.Clone()
	if strings.EqualFold(q.Header.Get("Upgrade"), "websocket") {
		r.serveSocket(w, q, line)
		return
	}

	body, err := io.ReadAll(q.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	line.Body = string(body)
	q.Body = io.NopCloser(bytes.NewReader(body))

	reply := &keptReply{ResponseWriter: w}
	// A reply that breaks ends this goroutine by a panic, and is recorded all the same.
	defer func() {
		line.Status, line.Reply = reply.status, reply.body.String()
		r.write(line)
	}()
	r.proxy.ServeHTTP(reply, q)
}

// keptReply keeps what is written.
type keptReply struct {
	http.ResponseWriter

	status int
	body   bytes.Buffer
}

// WriteHeader implements [http.ResponseWriter].
func (w *keptReply) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (w *keptReply) Write(p []byte) (int, error) {
	w.body.Write(p)
	return w.ResponseWriter.Write(p)
}

// Unwrap returns the writer, for [http.ResponseController].
func (w *keptReply) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// serveSocket ends the client's connection and has one of its own, so that messages are seen
// whatever frames and compression they come in.
func (r *recordingRelay) serveSocket(w http.ResponseWriter, q *http.Request, line *RecordedRequest) {
	header := q.Header.Clone()
	for name := range header {
		if strings.HasPrefix(name, "Sec-Websocket-") || name == "Connection" || name == "Upgrade" {
			header.Del(name)
		}
	}

	address := url.URL{Scheme: "ws", Host: r.target.Host, Path: q.URL.Path, RawQuery: q.URL.RawQuery}
	up, resp, err := websocket.Dial(q.Context(), address.String(), &websocket.DialOptions{HTTPHeader: header})
	if resp != nil {
		line.Status = resp.StatusCode
	}
	r.write(line)
	if err != nil {
		refused(w, resp)
		return
	}
	defer func() { _ = up.CloseNow() }()

	down, err := websocket.Accept(w, q, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return
	}
	defer func() { _ = down.CloseNow() }()

	up.SetReadLimit(-1)
	down.SetReadLimit(-1)
	replies := make(chan struct{})
	go func() {
		defer close(replies)
		r.relay(q, up, down, func(reply string) {
			answered := r.arrived(line.Number)
			answered.Reply = reply
			r.write(answered)
		})
	}()
	r.relay(q, down, up, func(body string) {
		sent := r.arrived(line.Number)
		sent.Body = body
		r.write(sent)
	})
	<-replies
}

// refused passes an answer on that is no upgrade.
func refused(w http.ResponseWriter, resp *http.Response) {
	if resp == nil {
		http.Error(w, "no connection", http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	for name, values := range resp.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body)
}

// relay passes messages on until a side ends, and closes the other as that was closed.
func (r *recordingRelay) relay(q *http.Request, from, to *websocket.Conn, seen func(string)) {
	for {
		kind, message, err := from.Read(q.Context())
		if err != nil {
			status := websocket.CloseStatus(err)
			if status < websocket.StatusNormalClosure || status == websocket.StatusNoStatusRcvd {
				status = websocket.StatusNormalClosure
			}
			_ = to.Close(status, "")
			return
		}
		seen(string(message))
		if err := to.Write(q.Context(), kind, message); err != nil {
			_ = from.Close(websocket.StatusGoingAway, "")
			return
		}
	}
}
