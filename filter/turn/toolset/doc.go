// Package toolset maps the tools of one request between the names of the client and those that the
// model sees and writes, and says what of them the output may have.
//
// [New] makes the [Set] of a request: its own tools, the built-in ones, those that joined in the
// conversation, and those that are deferred. Three things are asked of it:
//
//   - What is the model shown? Namespaces and Builtins, with names that it can write. Once they are in
//     the prompt they are dropped.
//   - Which tool does a message call? [Set.Addressee] reads the header. A model writes a name in many
//     ways, and where it may have meant two tools it has called neither: the tool is [Unknown] then,
//     under the name that it wrote.
//   - What may be called, and with what? [NewSpec] makes the spec of the output, of the choice of tools
//     and their schemas, for the grammar of an engine. How the arguments of a call are read that no
//     grammar enforces, says [Set.Repairer].
//
// The package knows names, headers and schemas. It knows no prompt: how tools that join are shown is not
// its matter, and of the output it reads nothing but a header. A Set is used by one goroutine.
package toolset
