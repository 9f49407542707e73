package engine

import "slices"

// Traits is what an engine can and cannot do, beyond what every dialect has. A caller that needs
// an ability reads it here, and nowhere by asserting what a dialect implements.
type Traits struct {
	// Constrains says that the engine can enforce a Constraint. If it cannot, Encode returns an
	// error for requests with one, and the caller has to check replies itself.
	Constrains bool

	// GRPC says that the engine is a gRPC service. Envoy has to connect to it with HTTP/2.
	GRPC bool
	// ClosesConnections says that the server closes the connection after a reply without
	// announcing it. Envoy must not reuse its connections.
	ClosesConnections bool

	// Disaggregation makes the two model calls of a request for which one process computes the
	// prompt and another one the output; nil: the engine has no such processes.
	Disaggregation Disaggregator
	// NamesModel says that requests name their model, and that the engine refuses one that it does
	// not serve. Others take every name for the one model that they have.
	NamesModel bool
	// KVHints says that requests may have hints about the engine's cache.
	KVHints bool
	// ModelInfo asks the engine for its model with a method of its own; nil: the engine has
	// GET /v1/models.
	ModelInfo ModelInformer
}

// traitsOf returns the traits of a kind; none if there is no such kind.
func traitsOf(kind string) Traits {
	d, ok := ByKind(kind)
	if !ok {
		return Traits{}
	}
	return d.Traits()
}

// IsGRPC reports whether a kind is a gRPC service. Envoy has to connect to it
// with HTTP/2.
func IsGRPC(kind string) bool { return traitsOf(kind).GRPC }

// ClosesConnections reports whether a kind's server closes the connection after
// a reply without announcing it. Envoy must not reuse its connections.
func ClosesConnections(kind string) bool { return traitsOf(kind).ClosesConnections }

// KVHinted returns the kinds of engines whose requests may have hints about their cache, in the order of
// the documentation.
func KVHinted() []string {
	return slices.DeleteFunc(Kinds(), func(kind string) bool { return !traitsOf(kind).KVHints })
}

// Disaggregates reports whether engines of a kind support disaggregated serving
// (ok), and if so, whether they use a bootstrap room.
func Disaggregates(kind string) (bootstrapRoom, ok bool) {
	d := traitsOf(kind).Disaggregation
	return d != nil && d.UsesBootstrapRoom(), d != nil
}

// Disaggregating returns the kinds of engines that support disaggregated
// serving, in the order of the documentation.
func Disaggregating() []string {
	return slices.DeleteFunc(Kinds(), func(kind string) bool {
		_, ok := Disaggregates(kind)
		return !ok
	})
}
