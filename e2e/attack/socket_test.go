//go:build attack

package attack

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// Opcodes and bits of frames, RFC 6455.
const (
	opContinue = 0
	opText     = 1
	opBinary   = 2
	opClose    = 8
	opPing     = 9
	opPong     = 10

	last       = 0x80 // of a message
	compressed = 0x40 // permessage-deflate
)

// socket is a WebSocket connection of raw frames. Pings are answered while it is read.
type socket struct {
	net.Conn
	in *bufio.Reader
}

// clientFrame is a frame as clients have to write it, with a mask that changes nothing.
func clientFrame(first byte, payload string) []byte {
	return append(frameHead(first, uint64(len(payload))), payload...)
}

// frameHead is the beginning of such a frame, whose payload may never come.
func frameHead(first byte, length uint64) []byte {
	const masked = 0x80
	b := []byte{first}
	switch {
	case length < 126:
		b = append(b, masked|byte(length))
	case length < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, masked|126), uint16(length))
	default:
		b = binary.BigEndian.AppendUint64(append(b, masked|127), length)
	}
	return append(b, 0, 0, 0, 0)
}

// handshake is the head of an upgrade, with more lines.
func handshake(lines ...string) string {
	// The key is the example of RFC 6455.
	all := append([]string{
		"GET /v1/responses HTTP/1.1", "host: localhost", "connection: Upgrade", "upgrade: websocket",
		"sec-websocket-version: 13", "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
	}, lines...)
	return strings.Join(all, "\r\n") + "\r\n\r\n"
}

// upgrade asks for a connection with a head, and sends more after it at once. The connection is
// nil unless the status is 101.
func (a *attempt) upgrade(head string, more ...byte) (*socket, *http.Response) {
	a.Helper()
	conn := a.dial()
	a.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(2 * stack.Patience))
	if _, err := conn.Write(append([]byte(head), more...)); err != nil {
		a.Fatal(err)
	}

	s := &socket{conn, bufio.NewReader(conn)}
	resp, err := http.ReadResponse(s.in, nil)
	if err != nil {
		return nil, &http.Response{Header: http.Header{}}
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		_ = conn.Close()
		return nil, resp
	}
	return s, resp
}

// open opens a connection of a tenant.
func (a *attempt) open(tenant string) *socket {
	a.Helper()
	s, resp := a.upgrade(handshake("x-tenant: " + tenant))
	if s == nil {
		a.Fatalf("no connection: %d", resp.StatusCode)
	}
	return s
}

// event sends an event.
func (s *socket) event(text string) { _, _ = s.Write(clientFrame(last|opText, text)) }

// closed is the end of a connection: the code of the close frame, 0 if there was none.
type closed int

func (c closed) Error() string { return fmt.Sprintf("closed with %d", int(c)) }

// frame reads a frame.
func (s *socket) frame() (op byte, payload []byte, err error) {
	head := make([]byte, 2)
	if _, err := io.ReadFull(s.in, head); err != nil {
		return 0, nil, closed(0)
	}

	n := uint64(head[1] & 0x7f)
	if wide := map[uint64]int{126: 2, 127: 8}[n]; wide > 0 {
		length := make([]byte, 8)
		if _, err := io.ReadFull(s.in, length[8-wide:]); err != nil {
			return 0, nil, closed(0)
		}
		n = binary.BigEndian.Uint64(length)
	}
	payload = make([]byte, n)
	if _, err := io.ReadFull(s.in, payload); err != nil {
		return 0, nil, closed(0)
	}
	return head[0] & 0xf, payload, nil
}

// next returns the next event.
func (s *socket) next() (gjson.Result, error) {
	for {
		op, payload, err := s.frame()
		switch {
		case err != nil:
			return gjson.Result{}, err
		case op == opText:
			return gjson.ParseBytes(payload), nil
		case op == opPing:
			_, _ = s.Write(clientFrame(last|opPong, string(payload)))
		case op == opClose && len(payload) >= 2:
			return gjson.Result{}, closed(binary.BigEndian.Uint16(payload))
		case op == opClose:
			return gjson.Result{}, closed(0)
		}
	}
}

// until returns the next event whose type is one of the kinds, or an error of the server.
func (s *socket) until(kinds ...string) (gjson.Result, error) {
	kinds = append(kinds, "error", "response.failed")
	for {
		e, err := s.next()
		if err != nil {
			return e, err
		}
		for _, kind := range kinds {
			if e.Get("type").Str == kind {
				return e, nil
			}
		}
	}
}

// ends reads until the connection ends, and returns with which code.
func (s *socket) ends() closed {
	for {
		if _, err := s.next(); err != nil {
			var code closed
			_ = errors.As(err, &code)
			return code
		}
	}
}

// create is an event that makes a response.
func create(input, more string) string {
	return `{"type":"response.create",` + responsesBody(input, more)[1:]
}

// asked sends an event and returns what answers it.
func (s *socket) asked(event string) answerOf {
	s.event(event)
	return s.answer()
}

// answer is the end of the next response, or the next error, as an answer over HTTP.
func (s *socket) answer() answerOf {
	e, err := s.until("response.completed", "response.incomplete", "response.cancelled",
		"response.cancel.failed", "response.steer.failed", "response.steer.accepted", "response.steer.pending")
	r := answerOf{status: http.StatusOK, text: e.Raw, header: http.Header{}}
	switch kind := e.Get("type").Str; {
	case err != nil:
		r.status, r.text = 0, err.Error()
	case kind == "error":
		r.status = int(e.Get("status").Int())
	case kind == "response.cancel.failed", kind == "response.steer.failed":
		r.status = http.StatusBadRequest
	case kind == "response.failed":
		r.status = http.StatusInternalServerError
	}
	return r
}

// works makes a response on a connection.
func (a *attempt) works(s *socket) {
	a.Helper()
	if r := s.asked(create(simple, `,"store":false`)); r.status != http.StatusOK {
		a.Errorf("the connection does not work: %s", r.brief())
	}
}

// noSockets waits until the connections have ended.
func (a *attempt) noSockets() {
	a.Helper()
	stack.Eventually(a.T, "the end of the connections", func() bool { return a.program.Metric(a.T, "harmony_websocket_connections") == 0 })
}

// socketAttack is an attack with the connections that run opens, after which none is left.
func socketAttack(name, want string, run func(a *attempt)) attack {
	return attack{name: name, want: want, grow: 128 << 20, run: func(a *attempt) {
		// Connections of the attack before may still be on their way out, and take places.
		a.noSockets()
		run(a)
	}}
}

// withSockets configures the listener, with few places and little memory.
func withSockets(t *testing.T, c *stackConfig) {
	c.set("websocket.listen", "unix://"+filepath.Join(stack.SocketDir(t), "websocket"))
	c.set("websocket.max_connections", 40)
	c.set("limits.max_inflight_bytes", 512<<20)
	c.set("drain_delay", "0s")
	c.set("drain_timeout", "5s")
}

// socketArea attacks the listener of WebSockets through Envoy.
func socketArea() area {
	var all []attack
	add := func(more ...attack) { all = append(all, more...) }
	for _, make := range []func() []attack{frameAttacks, upgradeAttacks, eventAttacks, foreignAttacks, floodAttacks} {
		add(make()...)
	}
	return area{name: "sockets", config: withSockets, attacks: all}
}

// frameAttacks have frames that are wrong. Each ends its connection.
func frameAttacks() (all []attack) {
	unmasked := func(first byte, text string) []byte { return append([]byte{first, byte(len(text))}, text...) }
	two := func(a, b []byte) []byte { return append(a, b...) }
	for _, f := range []struct {
		name, want string
		bytes      []byte
	}{
		{"a frame without a mask", "1002 closed", unmasked(last|opText, "{}")},
		{"a bit of compression that was not agreed", "1002", clientFrame(last|compressed|opText, "{}")},
		{"an opcode that does not exist", "1002", clientFrame(last|3, "{}")},
		{"a continuation of nothing", "1002", clientFrame(last|opContinue, "{}")},
		{"a message inside a message", "1002", two(clientFrame(opText, "{"), clientFrame(last|opText, "}"))},
		{"a ping of 126 bytes", "1002", clientFrame(last|opPing, strings.Repeat("x", 126))},
		{"a ping in pieces", "1002", clientFrame(opPing, "x")},
		{"a length of 2^63", "1002 closed", frameHead(last|opText, 1<<63)},
		{"a binary message", "1003", clientFrame(last|opBinary, "{}")},
		{"a close of one byte", "1002 closed", clientFrame(last|opClose, "x")},
		{"a close with a code that nobody may send", "1002 closed", clientFrame(last|opClose, "\x03\xed")},
		{"what is no frame", "1002 closed", []byte("GET / HTTP/1.1\r\nhost: x\r\n\r\n")},
	} {
		all = append(all, socketAttack(f.name, f.want, func(a *attempt) {
			s := a.open("attacker")
			_, _ = s.Write(f.bytes)
			a.check(answerOf{status: int(s.ends()), header: http.Header{}})
		}))
	}

	// Small frames are read no faster than 1,000 a second, and a message has its time.
	for name, f := range map[string]struct {
		size int
		want string
	}{
		"a message in fragments of a byte":       {500, "200"},
		"a large message in fragments of a byte": {50_000, "closed"},
	} {
		all = append(all, socketAttack(name, f.want, func(a *attempt) {
			s := a.open("attacker")
			event, first := create(jsonText(strings.Repeat("x", f.size)+"\nNOTHINK\nSAY hi"), ""), byte(opText)
			frames := make([]byte, 0, 8*len(event))
			for i := range len(event) {
				frames = append(frames, clientFrame(first, event[i:i+1])...)
				first = opContinue
			}
			_, _ = s.Write(append(frames, clientFrame(last|opContinue, "")...))
			a.check(s.answer())
		}))
	}

	return append(all,
		socketAttack("fragments without end", "1009", func(a *attempt) {
			s := a.open("attacker")
			go func() {
				first := byte(opText)
				for {
					if _, err := s.Write(clientFrame(first, strings.Repeat(" ", 1<<20))); err != nil {
						return
					}
					first = opContinue
				}
			}()
			a.check(answerOf{status: int(s.ends()), header: http.Header{}})
		}),
		socketAttack("a close, and events after it", "1000 closed", func(a *attempt) {
			s := a.open("attacker")
			_, _ = s.Write(append(clientFrame(last|opClose, "\x03\xe8"), clientFrame(last|opText, create(simple, ""))...))
			a.check(answerOf{status: int(s.ends()), header: http.Header{}})
		}),
	)
}

// upgradeAttacks have upgrades that are wrong, or say what only others may.
func upgradeAttacks() (all []attack) {
	add := func(name, want, head string, more ...byte) {
		all = append(all, socketAttack(name, want, func(a *attempt) {
			s, resp := a.upgrade(head, more...)
			if s == nil {
				a.check(answerOf{status: resp.StatusCode, header: resp.Header})
				return
			}
			if v := resp.Header.Get("Sec-Websocket-Extensions"); v != "" {
				a.Errorf("the extensions %q were agreed", v)
			}
			a.check(s.asked(create(simple, "")))
		}))
	}

	const tenant = "x-tenant: attacker"
	add("permessage-deflate", "200", handshake(tenant, "sec-websocket-extensions: permessage-deflate; client_max_window_bits"))
	add("an event at once, before the answer", "200", handshake(tenant), clientFrame(last|opPing, "x")...)
	add("no tenant", "401", handshake())
	add("another origin", "403", handshake(tenant, "origin: https://evil.example"))
	add("no origin of a page", "403", handshake(tenant, "origin: null"))
	add("an origin with another port", "403", handshake(tenant, "origin: http://localhost:8080"))
	add("the same origin", "200", handshake(tenant, "origin: http://localhost"))
	add("a version that does not exist", "4xx", strings.Replace(handshake(tenant), "version: 13", "version: 8", 1))
	add("no key", "4xx", strings.Replace(handshake(tenant), "sec-websocket-key", "x-key", 1))
	add("a POST", "4xx", strings.Replace(handshake(tenant), "GET", "POST", 1))
	add("another path", "4xx", strings.Replace(handshake(tenant), "/v1/responses", "/v1/responses/../conversations", 1))
	add("a slash more", "4xx", strings.Replace(handshake(tenant), "/v1/responses", "/v1/responses/", 1))
	add("a length of a body", "400", handshake(tenant, "content-length: 5"))
	add("a body in chunks", "200 400", handshake(tenant, "transfer-encoding: chunked"))
	// 100 headers are Envoy's own limit of a request.
	add("1000 headers", "431", handshake(tenant, strings.TrimSuffix(strings.Repeat("x-more: y\r\n", 1000), "\r\n")))
	for _, name := range []string{"x-harmony-engine", "x-harmony-prefill", "x-harmony-upstream", "x-gateway-destination-endpoint", "x-harmony-prefix", "x-harmony-filled"} {
		add("its own "+name, "200", handshake(tenant, name+": 127.0.0.1:1"))
	}
	add("x-envoy-harmony: off", "200", handshake(tenant, "x-envoy-harmony: off"))
	add("the tenant as a header of the connection", "200 401", strings.Replace(handshake(tenant), "connection: Upgrade", "connection: Upgrade, x-tenant", 1))

	return all
}

// eventAttacks have events that are wrong. The connection goes on.
func eventAttacks() (all []attack) {
	lane := func(name string) string { return create(simple, `,"stream_id":`+jsonText(name)) }

	for _, e := range []struct{ name, want, event string }{
		{"no JSON", "400", "{"},
		{"no UTF-8", "400", create(`"`+"\xff\xfe"+`"`, "")},
		{"an empty message", "400", ""},
		{"10,000 levels", "400", create(strings.Repeat("[", 10_000)+strings.Repeat("]", 10_000), "")},
		{"a number of 1 MB", "400", create(strings.Repeat("9", million), "")},
		{"a type of 1 MB", "400", `{"type":` + jsonText(strings.Repeat("x", million)) + `}`},
		{"10,000 members", "400", create(simple, strings.Repeat(`,"x":0`, 10_000))},
		{"5000 members of different names", "400", create(simple, manyMembers(5000))},
		{"the input twice", "400", create(simple, `,"input":"x"`)},
		{"the type twice, the second escaped", "400", create(simple, `,"typ\u0065":"response.cancel"`)},
		{"the lane twice", "400", create(simple, `,"stream_id":"a","stream_id":"b"`)},
		{"a lane of 1 MB", "400", lane(strings.Repeat("x", million))},
		{"a lane that would end the JSON", "400", lane(`a","type":"x`)},
		{"a lane with control characters", "400", lane("a\n\x00")},
		{"a lane that is an object", "400", create(simple, `,"stream_id":{}`)},
		{"background", "400", create(simple, `,"background":true`)},
		{"100,000 messages that steer", "400", `{"type":"response.steer","previous_response_id":"resp_1","input":[` + strings.Repeat(`{"role":"user","content":"x"},`, 99_999) + `{"role":"user","content":"x"}]}`},
		{"20 MB of text", "400", create(jsonText(strings.Repeat("word ", 4*million)), "")},
		{"33 MB of spaces", "413", create(simple, strings.Repeat(" ", 33<<20))},
	} {
		a := socketAttack(e.name, e.want, func(a *attempt) {
			s := a.open("attacker")
			a.check(s.asked(e.event))
			if e.want != "413" { // which ends the connection
				a.works(s)
			}
		})
		a.grow = 512 << 20
		all = append(all, a)
	}
	return all
}

// manyMembers are members that no API knows.
func manyMembers(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(`,"x` + strconv.Itoa(i) + `":0`)
	}
	return b.String()
}

// foreignAttacks ask for what belongs to another connection, or to another tenant.
func foreignAttacks() (all []attack) {
	add := func(name, want string, run func(a *attempt) answerOf) {
		all = append(all, socketAttack(name, want, func(a *attempt) { a.crossed(run(a)) }))
	}
	secret := jsonText("THINK " + secretOfVictim + "\nSAY " + secretOfVictim)

	for _, q := range []struct{ name, more string }{
		{"continuation", `,"previous_response_id":"ID"`},
		{"continuation that prepares", `,"generate":false,"previous_response_id":"ID"`},
		{"conversation", `,"conversation":"ID"`},
	} {
		add(q.name+" of another tenant's stored response", "4xx", func(a *attempt) answerOf {
			return a.open("attacker").asked(create(simple, strings.ReplaceAll(q.more, "ID", a.victim("").Get("id").Str)))
		})
		for _, tenant := range []string{"attacker", "victim"} {
			add(q.name+" of what a connection keeps, by another of the tenant "+tenant, "4xx", func(a *attempt) answerOf {
				kept := a.open("victim").asked(create(secret, `,"store":false`))
				return a.open(tenant).asked(create(simple, strings.ReplaceAll(q.more, "ID", gjson.Get(kept.text, "response.id").Str)))
			})
		}
	}
	for _, tenant := range []string{"attacker", "victim"} {
		add("an item of what a connection keeps, by another of the tenant "+tenant, "4xx", func(a *attempt) answerOf {
			kept := a.open("victim").asked(create(secret, `,"store":false`))
			item := gjson.Get(kept.text, "response.output.#(type==message).id")
			return a.open(tenant).asked(create(`[{"type":"item_reference","id":`+item.Raw+`},{"role":"user","content":`+simple+`}]`, ""))
		})
	}
	add("GET of what a connection keeps", "404", func(a *attempt) answerOf {
		kept := a.open("victim").asked(create(secret, `,"store":false`))
		return a.as("victim", http.MethodGet, "/v1/responses/"+gjson.Get(kept.text, "response.id").Str, "")
	})

	for _, event := range []string{
		`{"type":"response.steer","previous_response_id":"ID","input":"stop"}`,
		`{"type":"response.cancel","response_id":"ID"}`,
	} {
		for _, tenant := range []string{"attacker", "victim"} {
			add(gjson.Get(event, "type").Str+" at another connection, of the tenant "+tenant, "4xx", func(a *attempt) answerOf {
				victim := a.open("victim")
				victim.event(create(`"NOTHINK\nWORDS 20 20"`, `,"store":false`))
				created, err := victim.until("response.created")
				if err != nil {
					a.Fatal(err)
				}
				r := a.open(tenant).asked(strings.ReplaceAll(event, "ID", created.Get("response.id").Str))
				if end, err := victim.until("response.completed", "response.incomplete", "response.cancelled"); err != nil || end.Get("type").Str != "response.completed" {
					a.Errorf("the victim's response ends with %v, %v", end, err)
				}
				return r
			})
		}
	}

	for _, lines := range []string{"x-tenant: attacker\r\nx-tenant: victim", "x-tenant: victim\r\nx-tenant: attacker", "x-tenant: \r\nx-tenant: victim", "X_Tenant: victim", "x-tenant: victim, attacker"} {
		add(fmt.Sprintf("headers %.50q", lines), "4xx", func(a *attempt) answerOf {
			id := a.victim("").Get("id").Str
			s, resp := a.upgrade(handshake(lines))
			if s == nil {
				return answerOf{status: resp.StatusCode, header: resp.Header}
			}
			return s.asked(create(simple, `,"previous_response_id":"`+id+`"`))
		})
	}
	return all
}

// floodAttacks have much of what is allowed.
func floodAttacks() []attack {
	const slow = `"NOTHINK\nWORDS 1000 60000"`
	big := func(a attack, grow int64) attack { a.grow = grow; return a }

	return []attack{
		socketAttack("20,000 pings", "200", func(a *attempt) {
			s := a.open("attacker")
			go func() {
				ping := clientFrame(last|opPing, strings.Repeat("x", 100))
				for range 20_000 {
					if _, err := s.Write(ping); err != nil {
						return
					}
				}
				s.event(create(simple, ""))
			}()
			e, err := s.until("response.completed")
			if err != nil {
				a.Fatal(err)
			}
			a.check(answerOf{status: map[bool]int{true: http.StatusOK}[e.Get("type").Str == "response.completed"], header: http.Header{}})
		}),

		// What is taken at once and in a second is bounded, whatever the machine: it may only be slower.
		socketAttack("300 events that are none", "at most 100 and 20 a second", func(a *attempt) {
			s, begun := a.open("attacker"), time.Now()
			go func() {
				for range 300 {
					s.event(`{"type":"x"}`)
				}
			}()
			for i := range 300 {
				if _, err := s.next(); err != nil {
					a.Fatal(err)
				}
				if most := 101 + 20*time.Since(begun).Seconds(); float64(i) > most {
					a.Fatalf("%d answers after %s", i, time.Since(begun))
				}
			}
			a.see("300 answers")
			a.works(s)
		}),

		// The refusals wait for their turn in the lane.
		socketAttack("99 responses at once", "16 are taken", func(a *attempt) {
			s := a.open("attacker")
			for range 99 {
				s.event(create(simple, `,"store":false`))
			}
			inflight := a.program.Metric(a.T, "harmony_streams_inflight")

			refused := 0
			for ended := range 99 {
				e, err := s.until("response.completed")
				switch {
				case err != nil:
					a.Fatalf("after %d: %v", ended, err)
				case e.Get("error.code").Str == "websocket_response_limit_reached":
					refused++
				}
			}
			a.see("%d refused, %v in flight", refused, inflight)
			if inflight > 2 { // one of the lane, and the bystander
				a.Error(a.seen)
			}
		}),

		socketAttack("40 lanes", "32 are taken", func(a *attempt) {
			s, refused := a.open("attacker"), 0
			for i := range 40 {
				if r := s.asked(create(simple, fmt.Sprintf(`,"stream_id":"lane-%d"`, i))); strings.Contains(r.text, "websocket_stream_limit_reached") {
					refused++
				} else if r.status != http.StatusOK {
					a.Errorf("lane %d: %s", i, r.brief())
				}
			}
			a.see("%d refused", refused)
			if refused != 8 {
				a.Error(a.seen)
			}
			a.works(s)
		}),

		// While the model writes a call for the client, nothing interrupts it.
		socketAttack("60 inputs that steer one response", "16 wait", func(a *attempt) {
			s := a.open("attacker")
			s.event(create(jsonText(`NOTHINK`+"\n"+`CALL f {"a":"`+strings.Repeat("word ", 300)+`"}`+"\nSIM delay=50ms"),
				`,"store":false,"tools":[{"type":"function","name":"f","parameters":{}}]`))
			created, err := s.until("response.created")
			if err == nil {
				_, err = s.until("response.function_call_arguments.delta")
			}
			if err != nil {
				a.Fatal(err)
			}
			for range 60 {
				s.event(`{"type":"response.steer","previous_response_id":` + created.Get("response.id").Raw + `,"input":"more"}`)
			}
			waiting, refused := 0, 0
			for waiting+refused < 60 {
				e, err := s.until("response.steer.accepted", "response.steer.failed")
				switch {
				case err != nil:
					a.Fatal(err)
				case e.Get("error.code").Str == "too_many_pending_steers":
					refused++
				case e.Get("type").Str == "response.steer.accepted":
					waiting++
				default:
					a.Fatalf("%s", e.Raw)
				}
			}
			a.see("%d wait", waiting)
			if waiting != 16 {
				a.Error(a.seen)
			}
		}),

		socketAttack("100 connections of one tenant", "half of 40 places", func(a *attempt) {
			open, refused := 0, 0
			for range 100 {
				s, resp := a.upgrade(handshake("x-tenant: attacker"))
				switch {
				case s != nil:
					open++
				case resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") != "":
					refused++
				default:
					a.Errorf("status %d", resp.StatusCode)
				}
			}
			a.see("%d are open, %d refused", open, refused)
			if open != 20 || refused != 80 {
				a.Error(a.seen)
			}
			a.works(a.open("victim"))
		}),

		socketAttack("100 connections of 100 tenants", "40 places", func(a *attempt) {
			open := 0
			var first *socket
			for i := range 100 {
				if s, _ := a.upgrade(handshake(fmt.Sprintf("x-tenant: t%d", i))); s != nil {
					open++
					if first == nil {
						first = s
					}
				}
			}
			a.see("%d are open", open)
			if open != 40 {
				a.Error(a.seen)
			}
			a.works(first)
		}),

		// They are what has to make room, as the bodies of requests are that arrive.
		big(socketAttack("20 messages of 31 MB that are never whole", "200", func(a *attempt) {
			var all sync.WaitGroup
			part := append(frameHead(last|opText, 32<<20), strings.Repeat(" ", 31<<20)...)
			for i := range 20 {
				s := a.open(fmt.Sprintf("attacker-%d", i))
				all.Go(func() { _, _ = s.Write(part) })
			}
			all.Wait()
			a.check(a.as("victim", http.MethodPost, responsesPath, responsesBody(jsonText(strings.Repeat("word ", 20_000)+"\nNOTHINK\nSAY hi"), "")))
			a.works(a.open("victim"))
		}), 768<<20),

		big(socketAttack("80 responses of 1 MB that a connection keeps", "200", func(a *attempt) {
			s, last := a.open("attacker"), answerOf{}
			text := create(jsonText(strings.Repeat("x", million)+"\nNOTHINK\nSAY hi"), `,"store":false,"truncation":"auto"`)
			for range 80 {
				if last = s.asked(text); last.status != http.StatusOK {
					break
				}
			}
			a.check(last)
		}), 256<<20),

		socketAttack("200 connections that leave in the middle", "nothing is left", func(a *attempt) {
			goroutines := a.program.Metric(a.T, "go_goroutines")
			for i := range 200 {
				s, _ := a.upgrade(handshake("x-tenant: attacker"))
				if s == nil { // the places of those before are not free yet
					continue
				}
				s.event(create(slow, `,"store":false`))
				if i%2 == 0 {
					_, _ = s.until("response.created")
				}
				_ = s.Close()
			}
			a.noSockets()
			stack.Eventually(a.T, "goroutines as before", func() bool { return a.program.Metric(a.T, "go_goroutines") <= goroutines+20 })
			a.see("nothing is left")
		}),

		{name: "a drain under load", want: "each response has its end", alone: true, fresh: true, run: drainedSockets},
	}
}

// drainedSockets ends the filter while connections make responses, ask for more, or do nothing.
func drainedSockets(a *attempt) {
	const each = 6 // connections of a kind
	var all sync.WaitGroup
	var mu sync.Mutex
	begun, ended := 0, 0
	codes := map[closed]int{}
	ready := make(chan struct{}, 3*each)

	client := func(s *socket, floods bool) {
		stop := make(chan struct{})
		if floods {
			go func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(20 * time.Millisecond):
						s.event(create(simple, `,"store":false`))
					}
				}
			}()
		}
		defer close(stop)

		ready <- struct{}{}
		for {
			e, err := s.next()
			mu.Lock()
			switch kind := e.Get("type").Str; {
			case err != nil:
				var code closed
				_ = errors.As(err, &code)
				codes[code]++
				mu.Unlock()
				return
			case kind == "response.created":
				begun++
			case kind == "response.completed", kind == "response.failed", kind == "response.incomplete":
				ended++
			}
			mu.Unlock()
		}
	}
	for kind := range 3 {
		for i := range each {
			s := a.open("attacker")
			if kind == 0 {
				// Two of them would take hours: they end with an error.
				words := "20 100"
				if i < 2 {
					words = "1000 60000"
				}
				s.event(create(jsonText("NOTHINK\nWORDS "+words), `,"store":false`))
				_, _ = s.until("response.output_item.added")
				mu.Lock()
				begun++
				mu.Unlock()
			}
			all.Go(func() { client(s, kind == 1) })
		}
	}
	for range 3 * each {
		<-ready
	}
	stack.Eventually(a.T, "responses of those that ask for more", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return ended >= each
	})

	if err := a.program.Process.Signal(syscall.SIGTERM); err != nil {
		a.Fatal(err)
	}
	all.Wait()
	<-a.program.Ended
	a.see("%d of %d ended, codes %v, exit %d", ended, begun, codes, a.program.Exit)
	if ended != begun || codes[1001] != 3*each || a.program.Exit != 0 {
		a.Error(a.seen)
	}
}

// slowSocketArea has clients that are slow, or gone, and short times for them.
func slowSocketArea() area {
	ended := func(name string, run func(a *attempt, s *socket)) attack {
		return socketAttack(name, "closed", func(a *attempt) {
			s := a.open("attacker")
			go run(a, s)
			a.check(answerOf{status: int(s.ends()), header: http.Header{}})
		})
	}
	// drip sends the same bytes until the connection has ended.
	drip := func(s *socket, pause time.Duration, first, then []byte) {
		if _, err := s.Write(first); err != nil {
			return
		}
		for {
			if _, err := s.Write(then); err != nil {
				return
			}
			time.Sleep(pause)
		}
	}

	return area{name: "slow sockets", config: func(t *testing.T, c *stackConfig) {
		withSockets(t, c)
		c.set("limits.body_timeout", "2s")
		c.set("limits.keep_alive", "1s")
		c.set("websocket.idle_timeout", "5s")
	}, attacks: []attack{
		ended("a frame whose content does not come", func(_ *attempt, s *socket) { _, _ = s.Write(append(frameHead(last|opText, 1<<20), "{"...)) }),
		ended("a frame of 2^62 bytes, by its head", func(_ *attempt, s *socket) { _, _ = s.Write(append(frameHead(last|opText, 1<<62), "{"...)) }),
		ended("a message that never ends, a byte at a time", func(_ *attempt, s *socket) {
			drip(s, 20*time.Millisecond, clientFrame(opText, "{"), clientFrame(opContinue, " "))
		}),
		ended("empty fragments without end", func(_ *attempt, s *socket) { drip(s, 0, clientFrame(opText, "{"), clientFrame(opContinue, "")) }),
		ended("pings inside a message without end", func(_ *attempt, s *socket) { drip(s, 0, clientFrame(opText, "{"), clientFrame(last|opPing, "x")) }),
		socketAttack("half a head of a frame, then nothing", "1000 closed", func(a *attempt) {
			s := a.open("attacker")
			_, _ = s.Write([]byte{last | opText})
			a.check(answerOf{status: int(s.ends()), header: http.Header{}})
		}),
		socketAttack("nothing but pings", "1000", func(a *attempt) {
			s := a.open("attacker")
			go drip(s, 50*time.Millisecond, nil, clientFrame(last|opPing, "x"))
			a.check(answerOf{status: int(s.ends()), header: http.Header{}})
		}),
		socketAttack("10 clients that are gone, 10 that do not read", "no place is held", unreadSockets),
	}}
}

// unreadSockets has clients that answer no ping, and some that do not read a reply.
func unreadSockets(a *attempt) {
	const each = 10
	ended := func(reason string) float64 {
		return a.program.Metric(a.T, `harmony_websocket_closed_total{reason="`+reason+`"}`)
	}
	goneBefore, slowBefore := ended("no_pong"), ended("slow_reader")
	for i := range 2 * each {
		s, words := a.open("attacker"), "1000 60000"
		if i >= each {
			// More than the buffers on its way take.
			_ = s.Conn.(*net.TCPConn).SetReadBuffer(4 << 10)
			words = "200000 0"
		}
		s.event(create(jsonText("NOTHINK\nWORDS "+words), `,"store":false`))
	}
	a.noSockets()

	gone, slow := ended("no_pong")-goneBefore, ended("slow_reader")-slowBefore
	a.see("%v gone, %v slow", gone, slow)
	// One that does not read answers no ping either: which is noticed first does not matter.
	if gone < each || gone+slow != 2*each {
		a.Error(a.seen)
	}
	a.awaitMetric("harmony_streams_inflight")
}
