package tools

import "cmp"

// A session that has a job is in use, and keeps its place. So a tenant gets another
// one only while it has fewer in use than there are free places: it gets half of all
// at most, and there is a place for the next tenant, whatever the others do. Servers
// of requests have a count of their own beside the configured ones, because a client
// can name as many as it likes.

// places are the sessions of one kind, or all.
type places struct {
	most int
	of   func(*Server) bool
	// Of the configuration.
	key  string
	what string
}

func (c *Client) places(server *Server) []places {
	every := func(*Server) bool { return true }
	all := []places{{c.o.MaxSessions, every, "tools.max_sessions", "sessions with MCP servers"}}

	if server.isProcess() {
		all = append(all, places{
			c.o.MaxProcesses, (*Server).isProcess, "tools.max_processes", "processes of MCP servers",
		})
	}
	return all
}

// admitLocked returns a failure if a server must not get a session in use more,
// because those that may use it have their part of the places.
func (c *Client) admitLocked(server *Server) failure {
	if server.Trusted && server.Tenant == "" {
		// There are no other tenants.
		return failure{}
	}

	for _, kind := range c.places(server) {
		used, own := 0, 0
		for _, s := range c.sessions {
			if s.users == 0 || !kind.of(s.server) {
				continue
			}

			used++
			if s.server.Tenant == server.Tenant && s.server.Trusted == server.Trusted {
				own++
			}
		}

		// Without a free place the pool says so itself, by [Client.makeRoomLocked].
		if free := kind.most - used; own >= free && free > 0 {
			text := "Too many of your " + kind.what + " are in use at once (" + kind.key + "). Try again later."
			return failure{text: text}
		}
	}
	return failure{}
}

// makeRoomLocked makes room in the pool for a session with a server.
func (c *Client) makeRoomLocked(server *Server) failure {
	for _, kind := range c.places(server) {
		open := 0
		for _, s := range c.sessions {
			if kind.of(s.server) {
				open++
			}
		}

		if open >= kind.most && !c.evictLocked(kind.of) {
			return failure{text: "Too many " + kind.what + " are in use (" + kind.key + "). Try again later."}
		}
	}
	return failure{}
}

// evictLocked retires one unused session of an eligible server. It takes the least
// recently used session of the tenant with the most sessions. It returns false if
// all are in use.
func (c *Client) evictLocked(eligible func(*Server) bool) bool {
	sessionsOf := map[string]int{}
	for _, candidate := range c.sessions {
		if eligible(candidate.server) {
			sessionsOf[candidate.server.Tenant]++
		}
	}

	var first *session
	for _, candidate := range c.sessions {
		if candidate.users > 0 || !eligible(candidate.server) {
			continue
		}

		// The tenant with the most sessions loses one, and of these the one that was used least
		// recently.
		if first == nil || cmp.Or(sessionsOf[candidate.server.Tenant]-sessionsOf[first.server.Tenant],
			first.used.Compare(candidate.used)) > 0 {
			first = candidate
		}
	}

	if first != nil {
		c.removeLocked(first)
	}
	return first != nil
}
