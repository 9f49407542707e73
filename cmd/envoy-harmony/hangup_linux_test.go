package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"
)

// openTerminal returns both ends of a terminal: people's, which closes it, and the process's.
func openTerminal(t *testing.T) (people, process *os.File) {
	t.Helper()
	people, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no terminals here:", err)
	}
	t.Cleanup(func() { _ = people.Close() })

	var locked, number int32
	for request, value := range map[uintptr]*int32{syscall.TIOCSPTLCK: &locked, syscall.TIOCGPTN: &number} {
		//nolint:gosec // the kernel wants a pointer
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, people.Fd(), request, uintptr(unsafe.Pointer(value))); errno != 0 {
			t.Skip("no terminals here:", errno)
		}
	}
	process, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no terminals here:", err)
	}
	t.Cleanup(func() { _ = process.Close() })
	return people, process
}

// At a terminal SIGHUP reads the configuration file, and ends the process in order when it
// comes because the terminal was closed.
func TestHangupOfTerminal(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	text := "engines: [{kind: vllm}]\nreload_interval: 0s\nlisten: 127.0.0.1:0\nadmin: 127.0.0.1:0\ndrain_delay: 1ms\nlog: {format: json}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	people, process := openTerminal(t)
	p := program{stdin: strings.NewReader(""), stdout: process, stderr: process, terminal: isTerminal(process)}
	ended := make(chan int, 1)
	go func() { ended <- p.main(t.Context(), []string{"serve", "--config", file}) }()

	read := ""
	await := func(mark string) {
		t.Helper()
		for buf := make([]byte, 4096); !strings.Contains(read, mark); {
			n, err := people.Read(buf)
			if read += string(buf[:n]); err != nil {
				t.Fatalf("%v after\n%s", err, read)
			}
		}
	}
	await(`"msg":"serving"`)
	hangUp(t)
	await("the configuration was reloaded")

	if err := people.Close(); err != nil {
		t.Fatal(err)
	}
	hangUp(t)
	if exit := <-ended; exit != 0 {
		t.Errorf("exit status %d", exit)
	}
}
