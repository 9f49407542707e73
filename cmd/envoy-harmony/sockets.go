package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// upgradeTimeout bounds how long Envoy takes to send the headers of an upgrade.
const upgradeTimeout = 10 * time.Second

// sockets is the listener of WebSocket connections.
type sockets struct {
	listener net.Listener
	server   *http.Server
}

// listenSockets listens at an address; "": there is no listener, and the result is nil.
func listenSockets(ctx context.Context, address string, handler http.Handler) (*sockets, error) {
	if address == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	l, err := listenAt(ctx, "websocket.listen", address)
	if err != nil {
		return nil, err
	}
	return &sockets{l, &http.Server{Handler: handler, ReadHeaderTimeout: upgradeTimeout}}, nil
}

// serve serves until close.
func (s *sockets) serve() error {
	if err := s.server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve WebSocket connections: %w", err)
	}
	return nil
}

// close takes no more connections. Those that are open are the filter's to end. s may be nil.
func (s *sockets) close() error {
	if s == nil {
		return nil
	}
	// The listener is not closed by a server that has not served yet.
	return errors.Join(s.server.Close(), ignoreClosed(s.listener.Close()))
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
