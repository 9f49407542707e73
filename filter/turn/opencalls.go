package turn

// OpenCalls returns the calls of the prefix that have no output, in order. Their
// texts are left out.
func (p *Prefix) OpenCalls() []Item {
	if p == nil {
		return nil
	}
	calls := append([]Item(nil), p.open...)
	for i := range p.pending {
		if call := &p.pending[i]; call.Kind == Call {
			calls = append(calls, Item{Kind: Call, CallID: call.CallID, Namespace: call.Namespace, Name: call.Name, Builtin: call.Builtin, Path: call.Path})
		}
	}
	return calls
}
