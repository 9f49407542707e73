package tools

import (
	"context"
	"net/http"
)

// Control asks whether requests may reach an address.
func Control(c *Client, network, address string) error {
	return c.control(context.Background(), network, address, nil)
}

// Transports are what connections are made with.
func Transports(c *Client) []*http.Transport { return []*http.Transport{c.trusted, c.guarded} }

// Inflight is how many bytes of answers are held.
func Inflight(c *Client) int64 { return c.inflight.bytes.Load() }
