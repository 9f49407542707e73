package read

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/seal"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// A client that sends the whole conversation sends items of built-in tools without what the tools
// returned. As long as the turn has no answer the model needs that: it is in the carriers of the
// turn, or kept under the ids of the calls. See package write.

// hostedItems are the types of the items of tools that the filter runs. true: without what the
// model saw such an item says nothing to the model.
var hostedItems = map[string]bool{
	"web_search_call": true, "file_search_call": true, "image_generation_call": true, "code_interpreter_call": true,
	"mcp_call": false,
}

// foundSteps is what has been found of the steps of an input's unfinished turn.
type foundSteps struct {
	// What the model sees in the place of elements of the input, by their index.
	views map[int]gjson.Result
	// The steps whose items the client has left out, by the index of the element before which they
	// belong.
	left map[int][]item.Item
}

// element is what finding steps needs of an element of an input.
type element struct {
	index int
	role  elementRole
	kind  string
	id    string
	// Of a carrier.
	encrypted string
	// Of a hosted one: its tool has not ended.
	cut bool
}

// elementRole is what an element is to the steps of a turn.
type elementRole uint8

const (
	ofOthers elementRole = iota // the output of a client's tool, or a message that is not the model's
	ofText                      // reasoning, or a message of the model
	ofCall                      // a call of a client's tool, or what may be one, or a search for tools
	ofHosted                    // a call of a tool that the filter runs
	ofCarrier
)

// inReply reports whether the element belongs to the reply of which a carrier behind it has the steps.
func (r elementRole) inReply() bool { return r == ofText || r == ofCall || r == ofHosted }

// readElement reads an element. answer reports that it is an answer, and maybe that it is one unless
// a call follows.
func readElement(index int, v gjson.Result) (e element, answer, maybe bool) {
	e = element{index: index, kind: v.Get("type").Str, id: v.Get("id").Str}
	// Looking for a member takes as long as the element: outputs of tools have none.
	role := ""
	if e.kind == "" || e.kind == "message" {
		role = v.Get("role").Str
	}

	_, isHosted := hostedItems[e.kind]
	switch {
	case isHosted:
		e.role = ofHosted
		status := v.Get("status").Str
		e.cut = status == item.StatusIncomplete || status == item.StatusInProgress
	case e.kind == "reasoning":
		e.role = ofText
		if e.encrypted = v.Get("encrypted_content").Str; item.IsCarrier(e.encrypted) {
			e.role = ofCarrier
		}
	case role == "assistant":
		e.role = ofText
		phase := v.Get("phase").Str
		said := phase != "commentary" && saysText(v.Get("content"))
		answer, maybe = said && phase != "", said && phase == ""
	// A search that the filter has run names no call.
	case e.kind == "tool_search_output" && v.Get("call_id").Str == "",
		item.RoleOf(e.kind) == item.ToolCall, e.kind == "tool_search_call", item.IsReference(v):
		e.role = ofCall
	}
	return e, answer, maybe
}

// saysText reports whether the content of a message has text.
func saysText(content gjson.Result) bool {
	if !content.IsArray() {
		return content.Str != ""
	}
	says := false
	content.ForEach(func(_, part gjson.Result) bool {
		says = part.Get("text").Str != "" || part.Get("refusal").Str != ""
		return !says
	})
	return says
}

// mayHaveSteps reports whether an input can have hosted items or carriers at all: nearly none has, and
// the elements of others take no memory.
func mayHaveSteps(input jsontext.Field) bool {
	for kind := range hostedItems {
		if strings.Contains(input.Raw, kind) {
			return true
		}
	}
	return strings.Contains(input.Raw, item.CarrierContent(""))
}

// unansweredOf returns the elements of an input after its last answer. An input with more than most
// elements is refused when it is read: the rest is not worth a look.
func unansweredOf(input jsontext.Field, most int) []element {
	if !mayHaveSteps(input) {
		return nil
	}

	var open []element
	index := 0
	// Where in open a message stands that is an answer unless a call follows; -1: there is none.
	maybe := -1

	input.ForEach(func(_, v gjson.Result) bool {
		e, isAnswer, mayBe := readElement(index, v)
		index++

		switch e.role {
		case ofCall, ofHosted:
			maybe = -1
		case ofOthers:
			open, maybe = open[maybe+1:], -1
		}

		open = append(open, e)
		if isAnswer {
			open, maybe = open[:0], -1
		} else if mayBe {
			maybe = len(open) - 1
		}
		return index < most
	})
	return open[maybe+1:]
}

// findSteps finds what the model saw of the steps of the input's unfinished turn. What has been lost
// is ignored, and listed.
func (r *itemReader) findSteps(ctx context.Context, input jsontext.Field) (foundSteps, *apierror.Error) {
	f := &stepFinder{
		items: r, open: unansweredOf(input, 2*r.rc.Limits.Items), named: map[string]*element{},
		found: foundSteps{views: map[int]gjson.Result{}, left: map[int][]item.Item{}},
	}
	// Of several elements with one id the last one is meant: what a few bytes name stands in the
	// prompt once.
	for i := range f.open {
		if e := &f.open[i]; e.id != "" {
			f.named[e.id] = e
		}
	}

	for at := range f.open {
		if f.open[at].role != ofCarrier {
			continue
		}
		if err := f.takeCarrier(at); err != nil {
			return f.found, err
		}
	}
	return f.found, f.takeKept(ctx)
}

// stepFinder finds steps. named are the elements that have an id, by it.
type stepFinder struct {
	items *itemReader
	open  []element
	named map[string]*element
	found foundSteps
}

// takeCarrier takes the steps of a carrier. The items of some are in the input, and the others belong
// behind what the model said before them.
func (f *stepFinder) takeCarrier(at int) *apierror.Error {
	path := "input[" + strconv.Itoa(f.open[at].index) + "].encrypted_content"
	steps, err := f.openCarrier(&f.open[at], path)
	if err != nil {
		return err
	}

	// Back from the carrier, over the model's own items that follow the step.
	place, later := at, 0
	for i := len(steps) - 1; i >= 0; i-- {
		it, err := item.ReadStored(steps[i].Item, path)
		if err != nil {
			return err
		}
		if e := f.named[it.ID]; e != nil {
			if it.ModelView.Exists() && e.role == ofHosted {
				f.found.views[e.index] = it.ModelView
			}
			continue
		}
		// A carrier that is sent twice has them once.
		f.named[it.ID] = &f.open[at]
		// It was too long for the carrier.
		if !it.ModelView.Exists() && (hostedItems[it.Kind] || it.Server == "") {
			f.items.ignore(it.Kind)
			continue
		}

		for later < steps[i].Later && place > 0 && f.open[place-1].role.inReply() {
			place--
			if f.open[place].role != ofHosted {
				later++
			}
		}
		index := f.open[place].index
		f.found.left[index] = append([]item.Item{it}, f.found.left[index]...)
	}
	return nil
}

// openCarrier opens a carrier. As of reasoning, one that no key opens is as if it were not there, and
// one for another tenant is refused.
func (f *stepFinder) openCarrier(e *element, path string) ([]item.Step, *apierror.Error) {
	r := f.items
	if r.reader.Sealer == nil {
		r.ignored.Add(path)
		return nil, nil
	}

	// The text, the steps of it, and what the prompt is made of.
	if err := r.rc.Room(madeOfStored * len(e.encrypted)); err != nil {
		return nil, err
	}
	if err := r.rc.Spend(path, 1+len(e.encrypted)/stepBytes); err != nil {
		return nil, err
	}

	text, err := r.reader.Sealer.Open(seal.Steps, r.rc.Tenant, item.CarriedSteps(e.encrypted))
	switch {
	case err == nil:
		return item.ReadSteps(text), nil
	case errors.Is(err, seal.ErrTenant):
		return nil, otherTenant(path, err)
	}
	r.ignored.Add(path)
	return nil, nil
}

// maxKeptViews bounds the calls for which the store is read: the last ones.
const maxKeptViews = 1024

// takeKept takes what is kept of calls that no carrier has, and lists those that nobody has.
func (f *stepFinder) takeKept(ctx context.Context) *apierror.Error {
	var lost []*element
	var calls []string
	named := map[string]*element{}
	for i := range f.open {
		e := &f.open[i]
		if _, ok := f.found.views[e.index]; ok || e.role != ofHosted || e.cut {
			continue
		}
		lost = append(lost, e)
		if f.named[e.id] == e {
			call := item.HostedCallID(e.id)
			calls, named[call] = append(calls, call), e
		}
	}

	// As of reasoning, the prompt goes on without what the store does not return now.
	r := f.items
	calls = calls[max(0, len(calls)-maxKeptViews):]
	err := turn.KeptResults(ctx, r.rc, calls, func(call, view string) *apierror.Error {
		if err := r.bringIn("input", len(view)); err != nil {
			return err
		}
		f.found.views[named[call].index] = gjson.Parse(view)
		return nil
	})
	if err != nil {
		return err
	}

	for _, e := range lost {
		if _, ok := f.found.views[e.index]; !ok && hostedItems[e.kind] {
			r.ignore(e.kind)
		}
	}
	return nil
}
