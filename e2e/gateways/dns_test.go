package gateways

import (
	"encoding/binary"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// nameServer answers every question for an IPv4 address with the same one, which
// can change. It answers others with nothing.
type nameServer struct {
	conn    net.PacketConn
	address atomic.Pointer[net.IP]
	asked   atomic.Int64
}

func serveNames(t *testing.T, address string) *nameServer {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	s := &nameServer{conn: conn}
	s.set(address)

	ended := make(chan struct{})
	go func() {
		defer close(ended)
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if reply := s.answer(buf[:n]); reply != nil {
				_, _ = conn.WriteTo(reply, from)
			}
		}
	}()

	t.Cleanup(func() {
		_ = conn.Close()
		<-ended
	})
	return s
}

func (s *nameServer) set(address string) {
	ip := net.ParseIP(address).To4()
	s.address.Store(&ip)
}

// answer makes the reply to a query with one question: RFC 1035, section 4.
func (s *nameServer) answer(query []byte) []byte {
	const header, a = 12, 1
	end := header
	for end < len(query) && query[end] != 0 {
		end += 1 + int(query[end])
	}
	if end += 5; end > len(query) {
		return nil
	}
	reply := append([]byte(nil), query[:end]...)
	reply[2], reply[3] = 0x81, 0x80                       // an answer, with recursion
	copy(reply[4:header], []byte{0, 1, 0, 0, 0, 0, 0, 0}) // one question
	if binary.BigEndian.Uint16(query[end-4:end-2]) != a {
		return reply
	}
	s.asked.Add(1)
	reply[7] = 1
	reply = append(reply, 0xc0, header, 0, a, 0, 1, 0, 0, 0, 1, 0, 4) // the question's name, a TTL of one second
	return append(reply, *s.address.Load()...)
}

// An engine whose name gets another address is found there, while its streams at the
// old one go on to their end.
func TestEngineMoves(t *testing.T) {
	if l, err := net.Listen("tcp", "127.0.0.2:0"); err != nil {
		t.Skipf("the machine has one loopback address only: %v", err)
	} else {
		l.Close()
	}
	log := stack.LogOf(t)
	port := stack.FreePort(t)
	first, old := stack.StartSimAs(t, log, "--listen", "127.0.0.1:"+port)
	names := serveNames(t, "127.0.0.1")
	p := stack.ServeProgram(t, log, "--engine", "vllm=http://engine.test:"+port, "--set", "loopback=unix://"+filepath.Join(stack.SocketDir(t), "loopback"))
	_, resolver, _ := net.SplitHostPort(names.conn.LocalAddr().String())
	const kind = "    type: STRICT_DNS\n"
	bootstrap := string(p.Bootstrap(t))
	cluster := strings.Index(bootstrap, "engine.test")
	at := strings.LastIndex(bootstrap[:cluster], kind)
	if at < 0 {
		t.Fatalf("the engine's cluster has no %s", kind)
	}
	bootstrap = bootstrap[:at] + kind + `    dns_refresh_rate: 0.1s
    typed_dns_resolver_config:
      name: envoy.network.dns_resolver.cares
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig
        resolvers: [{socket_address: {address: 127.0.0.1, port_value: ` + resolver + `}}]
        dns_resolver_options: {no_default_search_domain: true}
` + bootstrap[at+len(kind):]
	d := p.Envoy(t, []byte(bootstrap))
	d.Sim = first
	stack.Eventually(t, "the engine by its name", func() bool { return d.Status(t, stack.FaultAPIs[0], stack.VLLMModel) == 200 })
	running := d.Stream(t, stack.FaultAPIs[0], stack.VLLMModel, "NOTHINK\nWORDS 100 20")

	second, _ := stack.StartSimAs(t, log, "--listen", "127.0.0.2:"+port)
	names.set("127.0.0.2")
	stack.Eventually(t, "a request at the new address", func() bool {
		d.Status(t, stack.FaultAPIs[0], stack.VLLMModel)
		moved := &stack.Dataplane{Sim: second, Client: d.Client}
		return len(moved.AllEngineRequests(t)) > 0
	})
	d.Works(t, stack.VLLMModel)
	if text, message, err := running.End(); err != nil || message != "" || !strings.Contains(text, `"finish_reason":"stop"`) {
		t.Errorf("the stream at the old address: %v, %s, in\n%.2000s", err, message, text)
	}
	_ = old.Kill()
	d.Works(t, stack.VLLMModel)
}
