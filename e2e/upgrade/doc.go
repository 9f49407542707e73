// Package upgrade tests the change from an earlier version of the program to this one, and
// back, as docs/upgrading.md says that operators make it. "make test-upgrade" builds the
// earlier version from git, starts Redis and PostgreSQL and runs it; without them its tests
// are skipped.
//
// [TestUpgrade] has, for each kind of store, an Envoy with the bootstrap of the earlier
// version, and four places for filters behind it. Clients load it all the time. Two filters
// of one version serve; filters of the other version start beside them, and the first two are
// drained. What a client needs to go on with is a check: it makes something with the first
// version (a response, a sealed text, …), and goes on with it after the change. The checks are
// the rows of a table in docs/upgrading.md, which a test compares.
//
// The earlier versions, why these, and what the changelog says has changed since, are in
// from.json: there the tests take what is said in place of what was.
package upgrade
