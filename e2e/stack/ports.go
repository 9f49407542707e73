package stack

import (
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// nextPort is the port after the last one that FreePort returned. Ports of listeners
// that other processes open later are below those that the kernel uses for outgoing
// connections, one of which could take the port before the listener is open. Packages
// run side by side: each process begins at ports of its own, a hundred for each id.
var nextPort atomic.Uint32

// FreePort returns a port that no process listens at, and that no other test gets.
func FreePort(t *testing.T) string {
	t.Helper()
	nextPort.CompareAndSwap(0, 15_000+uint32(os.Getpid())*101%10_000)
	for range 1000 {
		port := strconv.Itoa(int(nextPort.Add(1)))
		// Another program of the machine may be there.
		if l, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return ""
}

// AwaitPort waits until a process listens at a port.
func AwaitPort(t *testing.T, port string) {
	t.Helper()
	for deadline := time.Now().Add(Patience); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			conn.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}
