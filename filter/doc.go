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
// docs/architecture.md shows how they depend on each other and what a request's way
// through them is.
package filter
