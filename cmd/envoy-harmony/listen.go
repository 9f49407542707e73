package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// listenAt listens at host:port or unix:///path. It replaces a socket file without
// a listener. key is what sets the address, for the error, which says what to change.
func listenAt(ctx context.Context, key, address string) (net.Listener, error) {
	path, isUnix := strings.CutPrefix(address, "unix://")
	if isUnix {
		return listenAtPath(ctx, key, path)
	}

	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, listenFault(key, address, err)
	}
	return l, nil
}

// listenFault is the error of an address at which nothing can listen.
func listenFault(key, address string, err error) error {
	_, port, _ := net.SplitHostPort(address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%s: another process listens at %s: "+
			"stop it (ss -ltnp names it), or set %[1]s to another port", key, address)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%s: this machine has no address %s: "+
			"set %[1]s to one of its own, or to 0.0.0.0:%[3]s for all", key, address, port)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("%s: this user may not listen at %s: set %[1]s to a port from 1024 on", key, address)
	}
	return fmt.Errorf("%s: %w", key, err)
}

func listenAtPath(ctx context.Context, key, path string) (net.Listener, error) {
	if folder := filepath.Dir(path); !isFolder(folder) {
		return nil, fmt.Errorf(
			"%s: the folder %s does not exist: create it, or set %[1]s to another address", key, folder)
	}

	// A process that was killed has left its socket file, at which nobody answers.
	if conn, err := net.Dial("unix", path); err == nil {
		return nil, errors.Join(fmt.Errorf(
			"%s: another process listens at %s: stop it, or set %[1]s to another address", key, path), conn.Close())
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s: replace the old socket: %w", key, err)
	}

	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	// Envoy often runs as another user of the same group.
	if err := os.Chmod(path, 0o660); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", key, err), l.Close())
	}
	return l, nil
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
