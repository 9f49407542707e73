package envoy

import "syscall"

// processAttributes puts Envoy into its own process group, so that Ctrl-C in a
// terminal reaches only the parent, which drains first. The kernel kills Envoy if
// the parent dies.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
