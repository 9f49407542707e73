package prompt

import (
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
)

// OpenCalls returns the calls of the prefix that have no output, in order. Their
// texts are left out.
func (p *Prefix) OpenCalls() []item.Item {
	if p == nil {
		return nil
	}

	calls := append([]item.Item(nil), p.open...)
	for i := range p.pending {
		switch it := &p.pending[i]; it.Kind {
		case item.Call:
			calls = append(calls, item.Item{
				Kind: item.Call, CallID: it.CallID, Namespace: it.Namespace, Name: it.Name, Builtin: it.Builtin,
				Path: it.Path,
			})
		case item.Result:
			calls = slices.DeleteFunc(calls, func(call item.Item) bool { return call.CallID == it.CallID })
		}
	}
	return calls
}
