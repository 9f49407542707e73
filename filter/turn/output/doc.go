// Package output reads what the model writes: the tokens of a model call become events.
//
// A [Plan] says how the output of a turn is read: the tools, the stop strings, the spec that it has to
// follow, the rules by which the model is interrupted. Three things are made of it, and each looks at the same
// tokens:
//
//   - a [Reader] of each choice turns tokens into events: reasoning, preambles, answers and calls, each with
//     its text. It repairs what it can, and counts what it repaired;
//   - a [Watcher] of each choice finds, before the client sees anything, where the model has to be
//     interrupted: reasoning beyond its budget, repetitions, arguments of calls that their tool does not take;
//   - a [Check] reads a whole answer, for engines that cannot enforce what the request demands, and says
//     whether the client may have it.
//
// The result does not depend on how the tokens are cut into chunks, and no sequence of tokens is an error
// unless the model's setting says so. Nothing is allocated for a token of a text.
//
// What follows from the output elsewhere is told to a [Listener], and what later requests need of it is a
// kept.Keep. The package does no I/O. It knows no prompt, but for the message that a reply continues, and
// no API: log probabilities ([AppendLogprobs]) and custom tools ([Unwrapper]) are here because all APIs
// have them in one form.
package output
