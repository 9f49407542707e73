package hosted

import "github.com/envoy-harmony/envoy-harmony/filter/tools"

// Approval says which calls the client has to approve.
type Approval struct {
	All           bool    // except those that never need it
	Always, Never *Filter // nil: none
}

// approvalOf is what holds for calls of a server. They need approval unless the request or the
// operator says otherwise.
func approvalOf(asked *Approval, server *tools.Server) Approval {
	switch {
	// A request cannot undo what the operator asks for.
	case server.Trusted && server.Approval:
		return Approval{All: true}
	case asked != nil:
		return *asked
	// The operator has said nothing about a server of the request's own.
	case !server.Trusted:
		return Approval{All: true}
	}
	return Approval{}
}

func (a *Approval) needed(t *tools.Tool) bool {
	switch {
	case a.Never != nil && a.Never.Fits(t):
		return false
	case a.Always != nil && a.Always.Fits(t):
		return true
	}
	return a.All
}

// NeedsApproval reports whether the client has to approve a call.
func (s *Server) NeedsApproval(name string) bool {
	if s.Builtin != nil {
		return false
	}
	t := s.Tool(name)
	return t == nil || s.Approval.needed(t)
}
