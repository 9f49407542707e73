// Package harmony implements OpenAI's Harmony format, in which the gpt-oss
// models read and write. It renders conversations as token ids of the
// o200k_harmony vocabulary, and parses the ids that a model generates into
// messages.
//
// The package contains the vocabulary. It downloads nothing and has no
// dependency on HTTP, a JSON API or an engine. It does not know which tools
// exist: a recipient is returned as the model wrote it, and what it means is
// decided by who knows the tools. It does not sample, and does not constrain
// what a model may write.
//
// # The types
//
//   - [AppendEncode], [AppendDecode] and [Decoder] convert text to tokens and back.
//   - A [Renderer] renders [Message] values as the tokens of a prompt. It caches encoded
//     messages, so that history that is sent again costs little. Any number of goroutines
//     may share one.
//   - A [Parser] converts the tokens of a completion to events as they arrive. Each
//     completion needs one; [Parser.Reset] makes it ready for the next.
//
// A turn is a prompt, the tokens that an engine generates for it, and their
// events. The example of the package makes one.
//
//	renderer := harmony.NewRenderer()
//	prompt, err := renderer.AppendCompletion(nil, conversation, harmony.RoleAssistant)
//	// An engine generates tokens for the prompt.
//	parser := harmony.NewParser(harmony.Tolerant, harmony.RoleAssistant)
//	for token := range generated {
//		events, err := parser.Push(token)
//	}
//	events, err := parser.Close()
//
// # Exactness
//
// "The reference" in this package is openai-harmony 0.0.8. Encoding, rendering
// and strict parsing yield the same tokens, events and error texts as the
// reference. There are two differences by default, because the reference is not
// correct there: JSON Schemas that it cannot express as TypeScript (see
// [WithReferenceSchema]), and which old analysis is dropped (see
// [WithAnalysis]). docs/harmony.md lists them.
//
// # Parsing the output of models
//
// Models make mistakes in headers. The reference returns errors for them. A
// [Parser] in [Tolerant] mode, the zero [Mode], accepts any tokens: it returns
// no errors, loses no text, never outputs a control token as text, and counts
// its repairs by [RepairKind].
//
// # Untrusted text
//
// User text never becomes a control token: text that spells a special token,
// such as "<|start|>", is encoded as ordinary text. Only [AppendEncodeSpecial]
// encodes such text as the special token. [ReadWritten] lets a prompt repeat what a
// model wrote, and only if it is well formed. Limits apply to the depth and size of
// schemas, the memory of a Renderer's cache, and the headers of a Parser, which
// keeps no content. In a schema, a reference to itself is rendered as any.
//
// # Speed
//
// Warm encoding and parsing allocate nothing but the result. The vocabulary is
// used in the form in which it lies in the binary: a program has no start-up
// cost, and processes share its pages. Any text is encoded in time that is
// proportional to its length, apart from pieces that are merged by rank, which
// take n log n. docs/performance.md has the figures.
package harmony
