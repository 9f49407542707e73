package e2e

import (
	"os"
	"path/filepath"
	"testing"
)

// Other users of the machine cannot connect to the loopback listener, by which all
// engines can be used.
func TestLoopbackSocketIsNotForOthers(t *testing.T) {
	log := logOf(t)
	path := filepath.Join(socketDir(t), "loopback")
	p := serveProgram(t, log, "--engine", "vllm="+startSim(t, log), "--set", "loopback=unix://"+path)
	p.envoy(t, p.bootstrap(t))
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode != 0o660 {
		t.Errorf("the socket has mode %o", mode)
	}
}
