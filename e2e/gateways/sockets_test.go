package gateways

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// Other users of the machine cannot connect to the loopback listener, by which all
// engines can be used.
func TestLoopbackSocketIsNotForOthers(t *testing.T) {
	log := stack.LogOf(t)
	path := filepath.Join(stack.SocketDir(t), "loopback")
	p := stack.ServeProgram(t, log, "--engine", "vllm="+stack.StartSim(t, log), "--set", "loopback=unix://"+path)
	p.Envoy(t, p.Bootstrap(t))
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode != 0o660 {
		t.Errorf("the socket has mode %o", mode)
	}
}
