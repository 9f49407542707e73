package extproc

import (
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

// Holding is what something that outlives exchanges has taken of the memory budget, such as a
// connection with requests that wait. It makes no room for others. It is safe for concurrent
// use.
type Holding struct{ share *memoryShare }

// Arriving is what has been taken for something of the holding's owner that is still arriving. As
// the body of a request does, it makes room for others if it stalls, or is the largest.
type Arriving struct{ share *memoryShare }

// Hold opens a holding of the party whose requests have these headers.
func (s *Server) Hold(headers *extprocv3.ProcessingRequest) Holding {
	tenant := tenantOf(headers.GetRequestHeaders().GetHeaders(), s.o.Config.TenantHeader)
	h := Holding{s.memory.open(s.party(tenant, headers), func(*apierror.Error) {})}
	// What is held is in use: nobody else gets it. Nothing has been taken that could be refused.
	_ = h.share.complete()
	return h
}

// Kept is what has been taken for something of the holding's owner that only requests to come can
// use. It makes room for every request.
type Kept struct{ share *memoryShare }

// Take takes bytes, or returns them if they are less than 0. The error is for the client.
func (h Holding) Take(bytes int) *apierror.Error { return h.share.takeBytes(bytes) }

// Close returns everything.
func (h Holding) Close() { h.share.close() }

// Receive opens the memory of what begins to arrive. drop is called if it has made room, by
// another request, which must not wait for it. The error is for the client.
func (h Holding) Receive(drop func(err *apierror.Error)) Arriving {
	return Arriving{h.share.budget.open(h.share.party, drop)}
}

// Take takes bytes. The error is for the client.
func (a Arriving) Take(bytes int) *apierror.Error {
	a.GoesOn(0)
	return a.share.takeBytes(bytes)
}

// GoesOn notes that bytes have arrived.
func (a Arriving) GoesOn(bytes int) { a.share.goesOn(int64(bytes)) }

// Close returns everything.
func (a Arriving) Close() { a.share.close() }

// Keep opens the memory of what is kept. forget is called when so many bytes of it have made room,
// by another request, which must not wait for it.
func (h Holding) Keep(forget func(bytes int)) Kept {
	return Kept{h.share.budget.keeps(h.share.party, func(bytes int64) { forget(int(bytes)) })}
}

// Take takes bytes, or returns them if they are less than 0. With an error there is no room.
func (k Kept) Take(bytes int) *apierror.Error { return k.share.takeBytes(bytes) }

// Use notes that what is kept is of use: what was unused for longest makes room first.
func (k Kept) Use() { k.share.use() }

// Close returns everything.
func (k Kept) Close() { k.share.close() }

// AddressOf are the attributes of a request that name its client's address, as Envoy sends them.
func AddressOf(address string) map[string]*structpb.Struct {
	return map[string]*structpb.Struct{attributes: {Fields: map[string]*structpb.Value{
		"source.address": structpb.NewStringValue(address),
	}}}
}
