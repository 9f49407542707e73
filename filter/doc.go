// Package filter is the ext_proc filter as one service: [New] makes it from a
// configuration, and wires the packages below it.
//
//	extproc     Envoy's streams: one exchange for each HTTP request
//	background  responses that are made without a client
//	models      the list of models
//	loopback    model calls through Envoy's loopback listener
//	run         the reply to one request: model calls and jobs
//	api         the contract between run and the APIs
//	chat, responses, turn, engine, constraint, store, tools ...
//
// It knows both sides of the architecture, the edge and the APIs, and does nothing
// itself: what a part does is in the part. A [Server] has what lives as long as the
// process; what follows from the configuration is a generation (generation.go), which
// [Server.Apply] replaces. [NewPlayer] wires the same endpoints for records, and
// [NewRenderService] those that need no engine.
//
// docs/architecture.md shows how the packages depend on each other and what a request's
// way through them is.
package filter
