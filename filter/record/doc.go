// Package record keeps what exchanges were, so that they can be shown and made again.
//
// A [Tape] takes down one exchange while it goes on: the request, and then, in order
// and with their times, everything that comes in from outside (the engine's tokens,
// results of stores and tools, timers, ids, the clock) and everything that goes out
// (model calls, the reply). State machines do no I/O, so what came in determines what
// goes out: package replay feeds the same inputs to the same code and compares.
//
// A [Record] is what a tape has come to. Its JSON is the file format, which
// docs/records.md describes. A [Recorder] decides which exchanges are recorded, and
// keeps their records in a ring in memory and in a folder.
package record
