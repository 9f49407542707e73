// Package kept keeps what the model wrote in a choice that ended in tool calls, and finds it again when a
// client sends the step back.
//
// A client sends back what calls mean, in its own words, and most send no reasoning. The engine has the
// tokens in its cache, and the model has been trained on the reasoning that led to its calls. So both are
// kept in the store: the reasoning as a text, and the tokens as [Written]. Each is kept under the id of the
// first call, to which the ids of the others refer.
//
//   - write: [New] makes a [Keep], a job, of a choice that has ended;
//   - read: [Read] returns the [Items] of a conversation with what is kept of their steps. A step is as the
//     model wrote it as long as what the client has sent means the same, which is compared by meaning: texts
//     but for the white space around them, arguments as JSON;
//   - renew: texts expire, and a turn of hours must not lose them one by one, because each loss changes the
//     beginning of the prompt. What is [Due] goes into the next Keep as a [Renewal].
//
// What tools returned that ran here is kept beside ([KeepResults], [Results]).
//
// The package is the only room of a turn that reads from the request's memory of texts and writes to it, but
// for the date of a conversation. What it cannot read within [ReadTimeout] a request goes on without. It
// knows no prompt: which items it is given, and what is rendered of them, is the caller's.
package kept
