package turn

import "slices"

// OpenCalls returns the calls of the prefix that have no output, in order. Their
// texts are left out.
func (p *Prefix) OpenCalls() []Item {
	if p == nil {
		return nil
	}

	calls := append([]Item(nil), p.open...)
	for i := range p.pending {
		switch item := &p.pending[i]; item.Kind {
		case Call:
			calls = append(calls, Item{
				Kind: Call, CallID: item.CallID, Namespace: item.Namespace, Name: item.Name, Builtin: item.Builtin,
				Path: item.Path,
			})
		case Result:
			calls = slices.DeleteFunc(calls, func(call Item) bool { return call.CallID == item.CallID })
		}
	}
	return calls
}
