package toolset

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// New returns the toolset of a request: its own tools, those that have joined in
// the conversation, and those that are deferred.
func New(
	rc *request.Context, in *request.Input, joined []*item.JoinedTools,
) (*Set, *apierror.Error) {
	set, err := newSet(in.Tools, in.Builtins, rc.Limits)
	if err == nil && rc.Model.ToolArguments == request.ArgumentsRetry {
		set.keepSchemas()
	}
	if err != nil {
		return nil, err
	}
	set.asIs, set.enforced, set.withdrawn = in.AsIs, in.Strict, in.Withdrawn
	if err := request.RoomForSchemas(rc, in.Tools); err != nil {
		return nil, err
	}

	if len(joined)+len(in.Deferred) == 0 {
		return set, nil
	}

	set.strict = map[item.ToolName]bool{}
	set.joined = &joinedSet{at: map[string]int{}}
	if err := SpendJoins(rc, joined, 1); err != nil {
		return nil, err
	}

	// Deferred tools join first, so that what a search has found replaces them.
	if err := set.join(in.Deferred, rc.Limits); err != nil {
		return nil, err
	}
	for _, j := range joined {
		if err := set.join(j.Namespaces, rc.Limits); err != nil {
			return nil, err
		}
		if err := request.RoomForSchemas(rc, j.Namespaces); err != nil {
			return nil, err
		}
		maps.Copy(set.strict, j.Strict)
	}
	return set, nil
}

// joinSteps is how many steps of the request's work it takes to have a tool join. A stored
// item that a few bytes name can bring hundreds of tools, and be named again and again.
const joinSteps = 20

// SpendJoins takes the steps of having tools join so many times.
func SpendJoins(rc *request.Context, joined []*item.JoinedTools, times int) *apierror.Error {
	n := 0
	for _, j := range joined {
		for i := range j.Namespaces {
			n += 1 + len(j.Namespaces[i].Tools)
		}
	}

	return rc.Spend("", joinSteps*n*times)
}

// joinedSet are the tools of a toolset that are not in the request's own namespaces.
type joinedSet struct {
	tools []joinedTool
	// The index of a tool, by recipient.
	at map[string]int
}

// joinedTool is one of them. Its parameters replace those of the request's own tool
// of the same recipient.
type joinedTool struct {
	recipient  string
	parameters json.RawMessage
	// The request has a tool of its own with this recipient.
	replaces bool
}

// join adds the tools of namespaces, or replaces their definitions.
func (s *Set) join(namespaces []harmony.Namespace, limits request.Limits) *apierror.Error {
	for i := range namespaces {
		for _, t := range namespaces[i].Tools {
			if err := limits.CheckTool(t); err != nil {
				return err
			}

			name := item.ToolName{Namespace: strings.Clone(namespaces[i].Name), Name: strings.Clone(t.Name)}
			if err := s.joinTool(name, t.Parameters); err != nil {
				return err
			}
			if len(s.byRecipient) > limits.Tools {
				return apierror.Invalid("tools",
					"The request has more than %d tools, with those that a tool search has found.", limits.Tools)
			}
		}
	}
	return nil
}

func (s *Set) joinTool(client item.ToolName, parameters json.RawMessage) *apierror.Error {
	recipient := item.Recipient(client)
	known, replaces := s.byRecipient[recipient]
	if replaces && known != client {
		return sameNames([]string{client.Name})
	}

	// Its definition is replaced, where it stands.
	if i, ok := s.joined.at[recipient]; ok {
		s.joined.tools[i].parameters = parameters
		return nil
	}

	s.joined.at[recipient] = len(s.joined.tools)
	s.joined.tools = append(s.joined.tools, joinedTool{recipient, parameters, replaces})
	if replaces {
		return nil
	}

	// A tool that nobody had joins all tables by which calls find their tools.
	s.byRecipient[recipient] = client
	name := item.ModelName(client.Name)
	// The client's own tools take precedence over built-in ones.
	own := slices.DeleteFunc(slices.Clone(s.byName[name]), func(t item.ToolName) bool { return t.Builtin })
	s.byName[name] = append(own, client)
	s.spellings = nil
	return nil
}

// IsStrict reports whether the arguments of a tool must follow its schema.
func (s *Set) IsStrict(in *request.Input, name item.ToolName) bool {
	if strict, joined := s.strict[name]; joined {
		return strict
	}
	return in.Strict[name]
}

// saidLoose reports whether the client says that the arguments of a tool need not follow its schema.
func (s *Set) saidLoose(in *request.Input, name item.ToolName) bool {
	strict, said := s.strict[name]
	if !said {
		strict, said = in.Strict[name]
	}
	return said && !strict
}

// parameters returns the parameters of one of the request's own tools, or those that
// have replaced them.
func (s *Set) parameters(recipient string, own json.RawMessage) json.RawMessage {
	if s.joined != nil {
		if i, ok := s.joined.at[recipient]; ok {
			return s.joined.tools[i].parameters
		}
	}
	return own
}

// eachJoined calls visit with every tool that is not one of the request's own.
func (s *Set) eachJoined(visit func(recipient string, parameters json.RawMessage) *apierror.Error) *apierror.Error {
	if s.joined == nil {
		return nil
	}

	for _, t := range s.joined.tools {
		if t.replaces {
			continue
		}
		if err := visit(t.recipient, t.parameters); err != nil {
			return err
		}
	}
	return nil
}

// DropDefinitions drops the definitions of the tools, once they are in the prompt: the reply does not
// need them.
func (s *Set) DropDefinitions() { s.Namespaces, s.Builtins, s.joined = nil, nil, nil }
