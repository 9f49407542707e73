//go:build !linux

package h2

import "net"

// newQuiet reports that there is no such socket here.
func newQuiet(net.Conn) (socket, bool, error) { return nil, false, nil }
