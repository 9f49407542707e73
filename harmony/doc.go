// Package harmony is OpenAI's Harmony format, in which the gpt-oss models read
// and write: conversations become token ids of the o200k_harmony vocabulary,
// and the ids a model answers with become messages again.
//
// It needs nothing but this package: the vocabulary is part of it, nothing is
// downloaded, and it knows no HTTP, no JSON API and no engine.
//
//   - [AppendEncode], [AppendDecode] and [Decoder] turn text into tokens and back.
//   - A [Renderer] turns [Message] values into the tokens of a prompt. It keeps
//     encoded messages, so that re-sent history costs next to nothing.
//   - A [Parser] turns the tokens of a completion into events as they arrive.
//
// # Exactness
//
// Encoding and rendering yield the tokens of openai-harmony 0.0.8, the
// reference, and so does strict parsing, its error texts included. By default
// two things differ, where the reference is not sound: JSON Schemas that it
// cannot express as TypeScript ([WithReferenceSchema] has its form) and which
// old analysis is dropped ([WithAnalysis]). docs/harmony.md lists both.
//
// # Parsing what models write
//
// Models make mistakes in headers. The reference refuses such output; a
// [Parser] in [Tolerant] mode, the zero [Mode], reads any tokens at all: it
// never errs, loses no text, shows no marker as text and counts what it mends
// by [RepairKind].
//
// # Untrusted text
//
// User text is never a control token: text that spells a special token, such
// as "<|start|>", is encoded as ordinary text everywhere; only
// [AppendEncodeSpecial] reads it otherwise. Schemas are bounded in depth and
// size, references that refer to themselves end in any, a Renderer's cache is
// bounded in memory, and so are a Parser's headers; content is not kept.
package harmony
