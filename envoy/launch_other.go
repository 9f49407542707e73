//go:build !linux

package envoy

import "syscall"

// processAttributes put Envoy into a process group of its own, so that a
// terminal's Ctrl-C reaches only the parent, which drains first.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
