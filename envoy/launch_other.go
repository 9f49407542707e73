//go:build !linux

package envoy

import "syscall"

// processAttributes puts Envoy into its own process group, so that Ctrl-C in a
// terminal reaches only the parent, which drains first.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
