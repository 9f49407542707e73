package tools

import (
	"context"
	"net/http"
	"time"
)

// Control returns the error of connecting to an address for a request.
func Control(c *Client, network, address string) error {
	return c.control(context.Background(), network, address, nil)
}

// Transports returns the transports of the client.
func Transports(c *Client) []*http.Transport { return []*http.Transport{c.trusted, c.limited} }

// Inflight returns the number of bytes in flight.
func Inflight(c *Client) int64 { return c.inflight.bytes.Load() }

// SetCallTimeout changes Options.CallTimeout between jobs.
func SetCallTimeout(c *Client, timeout time.Duration) { c.o.CallTimeout = timeout }
