package responses

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// A client does not write the tools of its MCP servers. So what would be an error
// of a function is no error of theirs: a tool that breaks a limit is left out, and
// one whose name equals another's for the model, where all but letters, digits, _
// and - are _, gets a number behind its name.

// fitTools returns the tools that can be offered to a model, and why others cannot;
// nil if all can.
func fitTools(listed []tools.Tool, limits turn.Limits) (fit []tools.Tool, odd error) {
	var why []string
	names := make(map[string]bool, len(listed))
	var check harmony.ToolCheck
	for i := range listed {
		t := &listed[i]
		offered := harmony.Tool{Name: t.Name, Parameters: t.InputSchema}
		if err := limits.CheckTool(offered); err != nil {
			why = append(why, fmt.Sprintf("%q: %s", item.Clip(t.Name), err.Message))
			continue
		}
		if err := check.Check(offered); err != nil {
			why = append(why, fmt.Sprintf("%q: %s.", item.Clip(t.Name), err))
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
	const most = 8
	if more := len(why) - most; more > 0 {
		why = append(why[:most], fmt.Sprintf("and %d others", more))
	}
	return fit, fmt.Errorf("tools are left out: %s", strings.Join(why, "; "))
}

// numberedBytes bounds a name before its number, so that both together are still a
// valid name.
const numberedBytes = 200

// numbered returns, for the tools of a server whose names would be the same to the
// model, the names that they have instead. They follow from the list alone, so that
// a conversation that continues with it has the same names.
func numbered(listed []tools.Tool) map[string]string {
	taken := make(map[string]bool, len(listed))
	var late []string
	for i := range listed {
		name := listed[i].Name
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
	for _, name := range late {
		seen := turn.ModelName(name)
		begin := seen[:min(len(seen), numberedBytes)] + "_"
		for n := 2; taken[seen]; n++ {
			seen = begin + strconv.Itoa(n)
		}
		taken[seen], names[name] = true, seen
	}
	return names
}

// offer takes the tools that the server has. Tools that cannot be offered are left
// out; the error, for the operator, names them.
func (h *hosted) offer(listed []tools.Tool, limits turn.Limits) error {
	h.known = true
	if h.server.AllowedTools != nil {
		listed = slices.DeleteFunc(slices.Clone(listed), func(t tools.Tool) bool { return !slices.Contains(h.server.AllowedTools, t.Name) })
	}
	var odd error
	h.listed, odd = fitTools(listed, limits)
	h.numbered = numbered(h.listed)
	for i := range h.listed {
		if t := &h.listed[i]; h.allowed == nil || h.allowed.fits(t) {
			h.tools = append(h.tools, *t)
		}
	}
	return odd
}

// imported takes the tools that the server has listed for this request: only those
// that the request allows. The reply lists no others.
func (h *hosted) imported(listed []tools.Tool, limits turn.Limits) error {
	if h.allowed != nil {
		listed = slices.DeleteFunc(slices.Clone(listed), func(t tools.Tool) bool { return !h.allowed.fits(&t) })
	}
	return h.offer(listed, limits)
}

// covers reports whether a list has every tool that the request allows by its name.
func (h *hosted) covers(listed []tools.Tool) bool {
	if h.allowed == nil {
		return true
	}
	for name := range h.allowed.names {
		if !slices.ContainsFunc(listed, func(t tools.Tool) bool { return t.Name == name }) {
			return false
		}
	}
	return true
}

// toModel is a tool's name as the model sees it.
func (h *hosted) toModel(name string) string {
	if seen, ok := h.numbered[name]; ok {
		return seen
	}
	return name
}

// fromModel is the server's name of a tool that the model calls.
func (h *hosted) fromModel(seen string) string {
	for name, numbered := range h.numbered {
		if numbered == seen {
			return name
		}
	}
	return seen
}

// named is a call of one of the server's tools under the server's name.
func (h *hosted) named(call *turn.CalledTool) *turn.CalledTool {
	name := h.fromModel(call.Name)
	if name == call.Name {
		return call
	}
	c := *call
	c.Name = name
	return &c
}
