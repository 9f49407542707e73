package hosted

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// The bounds of what a request says about one MCP server.
const (
	MaxNames   = 4096 // tools that a filter names
	MaxHeaders = 64   // headers of the requests to it
)

// A client does not write the tools of its MCP servers. So what would be an error
// of a function is no error of theirs: a tool that breaks a limit is left out, and
// one whose name equals another's for the model, where all but letters of any script,
// digits, _ and - are _, gets a number after its name.

// schemaSteps is how many steps of a request's work a byte of a tool's schema takes, which
// is written as the model sees it: references can have it written many times.
const schemaSteps = 4

// fitTools returns the tools that can be offered to a model, and why others cannot;
// nil if all can. Where the request lacks the steps for one, the list ends, and the request is
// going to be refused.
func fitTools(rc *turn.RequestContext, listed []tools.Tool) (fit []tools.Tool, odd error) {
	var why []string
	names := make(map[string]bool, len(listed))
	var check harmony.ToolCheck
	for i := range listed {
		t := &listed[i]
		offered := harmony.Tool{Name: t.Name, Parameters: t.InputSchema}
		// The limits are cheap to check, and keep a tool that breaks them from taking steps.
		if err := rc.Limits.CheckTool(offered); err != nil {
			why = append(why, fmt.Sprintf("%q: %s", jsontext.Clip(t.Name), err.Message))
			continue
		}

		if err := rc.Work.Spend(1 + schemaSteps*len(t.InputSchema)); err != nil {
			return fit, fmt.Errorf("the tools from %q on are left out: their list %w", jsontext.Clip(t.Name), err)
		}
		if err := check.Check(offered); err != nil {
			why = append(why, fmt.Sprintf("%q: %s.", jsontext.Clip(t.Name), err))
			continue
		}

		if names[t.Name] {
			why = append(why, fmt.Sprintf("%q: It is listed twice.", t.Name))
			continue
		}
		names[t.Name] = true
		fit = append(fit, *t)
	}

	if len(why) == 0 {
		return fit, nil
	}
	// The error becomes a line of the log, and a server can list thousands of tools.
	const most = 8
	if more := len(why) - most; more > 0 {
		why = append(why[:most], fmt.Sprintf("and %d others", more))
	}
	return fit, fmt.Errorf("tools are left out: %s", strings.Join(why, "; "))
}

// numberedBytes bounds a name before its number, so that both together are still a
// valid name.
const numberedBytes = 200

// Numbered returns, for the tools of a server whose names would be the same to the
// model, the names that they have instead. They follow from the list alone, so that
// a conversation that continues with it has the same names.
func Numbered(listed []tools.Tool) map[string]string {
	taken := make(map[string]bool, len(listed))
	var late []string
	for i := range listed {
		name := listed[i].Name
		// The first tool of a name keeps it, so that most lists need no other names at all.
		if seen := turn.ModelName(name); taken[seen] {
			late = append(late, name)
		} else {
			taken[seen] = true
		}
	}
	if len(late) == 0 {
		return nil
	}

	names := make(map[string]string, len(late))
	// The number that a name was given last: a list can have one name many times, and counting
	// from the beginning would take a time that grows with the square.
	last := map[string]int{}
	for _, name := range late {
		seen := turn.ModelName(name)
		begin := strings.ToValidUTF8(seen[:min(len(seen), numberedBytes)], "") + "_"
		for n := max(last[begin]+1, 2); taken[seen]; n++ {
			seen, last[begin] = begin+strconv.Itoa(n), n
		}
		taken[seen], names[name] = true, seen
	}
	return names
}

// ToModel returns a tool's name as the model sees it.
func (s *Server) ToModel(name string) string {
	if seen, ok := s.Numbered[name]; ok {
		return seen
	}
	return name
}

// FromModel returns the server's name of a tool that the model calls.
func (s *Server) FromModel(seen string) string {
	for name, numbered := range s.Numbered {
		if numbered == seen {
			return name
		}
	}
	return seen
}

// Named returns a call of one of the server's tools under the server's name.
func (s *Server) Named(call *turn.CalledTool) *turn.CalledTool {
	name := s.FromModel(call.Name)
	if name == call.Name {
		return call
	}
	c := *call
	c.Name = name
	return &c
}
