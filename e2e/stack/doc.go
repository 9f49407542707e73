// Package stack is what the end-to-end tests share: an Envoy, the filter, an engine,
// clients and MCP servers, on free ports of this machine, with their logs. "make envoy
// venv" installs the requirements.
//
// The tests are in packages beside it, by subject:
//
//	attack      hostile requests to a running stack, "make attack"
//	clients     real clients and agents
//	engines     every kind of engine, failover and affinity; real engines
//	gateways    Envoy's side: listeners, TLS, limits, endpoint pickers, gateways
//	operations  reload, drain, records, telemetry, rendering, soak
//	replies     what the three APIs answer
//	stores      stores, faults of stores, token budgets
//	upgrade     from earlier versions of the program to this one, and back
//
// A [Dataplane] is the filter inside the test's process, with an Envoy and a simulated
// engine as processes beside it; a [Program] is "envoy-harmony serve" as a process. Both
// end with their test, and a test that fails prints their logs.
//
//	func TestMain(m *testing.M) { stack.Main(m) }
//
//	func TestHello(t *testing.T) {
//		d := stack.Start(t, stack.Options{})
//		resp, body := d.Chat(t, stack.VLLMModel, "SAY Hello.", "")
//		...
//	}
//
// No code of the product imports it.
package stack
