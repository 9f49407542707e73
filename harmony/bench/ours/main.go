// Command ours measures package harmony the way the other programs of this
// folder measure its peers:
//
//	ours WORK FILE...
//
// For each file it prints its path, the CPU milliseconds that the work took,
// the number of tokens and a hash of the result, which is equal where a peer
// yields the same. The first line is the CPU time up to the first encoding.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"syscall"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// works reads a file and does the work. Only what is done in timed counts.
var works = map[string]func(data []byte) (tokens int, hash uint64){
	// text
	"encode": func(data []byte) (int, uint64) {
		text := string(data)
		timed(func() { buffer = harmony.AppendEncode(buffer[:0], text) })
		return len(buffer), hash(buffer)
	},
	// a JSON list of completions, each a list of tokens
	"parse": parse,
	// a conversation, from its JSON
	"render": func(data []byte) (int, uint64) {
		timed(func() { render(newRenderer(), conversation(data)) })
		return len(buffer), hash(buffer)
	},
	// the same without reading the JSON
	"render-messages": func(data []byte) (int, uint64) {
		msgs := conversation(data)
		timed(func() { render(newRenderer(), msgs) })
		return len(buffer), hash(buffer)
	},
	// the same where all but the last message has been rendered before
	"render-last": func(data []byte) (int, uint64) {
		msgs, r := conversation(data), newRenderer()
		render(r, msgs[:len(msgs)-1])
		timed(func() { render(r, msgs) })
		return len(buffer), hash(buffer)
	},
}

var (
	buffer []harmony.Token
	took   float64 // by timed, in CPU milliseconds
)

func main() {
	log.SetFlags(0)
	if len(os.Args) < 2 || works[os.Args[1]] == nil {
		log.Fatal("usage: ours encode|parse|render|render-messages|render-last FILE...")
	}
	timed(func() { buffer = harmony.AppendEncode(nil, "x") })
	fmt.Fprintln(os.Stdout, "load", took)
	for _, path := range os.Args[2:] {
		data, err := os.ReadFile(path)
		if err != nil {
			log.Fatal(err)
		}
		tokens, hash := works[os.Args[1]](data)
		fmt.Fprintf(os.Stdout, "%s %.4f %d %016x\n", path, took, tokens, hash)
	}
}

// parse reads the tokens as a server does: delta, channel and recipient after
// each of them.
func parse(data []byte) (tokens int, h uint64) {
	var completions [][]harmony.Token
	if err := json.Unmarshal(data, &completions); err != nil {
		log.Fatal(err)
	}
	p, read := harmony.NewParser(harmony.Strict, harmony.RoleAssistant), 0
	each := func(see func(delta []byte, channel, recipient string)) {
		for _, completion := range completions {
			p.Reset(harmony.RoleAssistant)
			for _, t := range completion {
				if _, err := p.Push(t); err != nil {
					log.Fatal(err)
				}
				see(p.LastDelta(), p.Channel(), p.Recipient())
			}
			tokens += len(completion)
		}
	}
	timed(func() {
		each(func(delta []byte, channel, recipient string) { read += len(delta) + len(channel) + len(recipient) })
	})
	if read == 0 {
		log.Fatal("nothing was read")
	}
	tokens, h = 0, offset
	each(func(delta []byte, channel, recipient string) {
		for _, s := range []string{string(delta), channel, recipient} {
			for i := range len(s) {
				h = (h ^ uint64(s[i])) * prime
			}
			h = (h ^ 0xff) * prime
		}
	})
	return tokens, h
}

func conversation(data []byte) []harmony.Message {
	msgs, err := harmony.UnmarshalConversation(data)
	if err != nil {
		log.Fatal(err)
	}
	return msgs
}

// newRenderer returns one that has seen nothing and writes what the reference
// does.
func newRenderer() *harmony.Renderer {
	return harmony.NewRenderer(harmony.WithReferenceSchema(), harmony.WithAnalysis(harmony.DropBeforeFirstFinal))
}

func render(r *harmony.Renderer, msgs []harmony.Message) {
	var err error
	if buffer, err = r.AppendCompletion(buffer[:0], msgs, harmony.RoleAssistant); err != nil {
		log.Fatal(err)
	}
}

func timed(work func()) {
	start := cpu()
	work()
	took = cpu() - start
}

// cpu returns the CPU time of the process in milliseconds.
func cpu() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		log.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e6
}

// Of FNV-1a.
const offset, prime = 0xcbf29ce484222325, 0x100000001b3

// hash is FNV-1a over the ids.
func hash(tokens []harmony.Token) uint64 {
	h := uint64(offset)
	for _, t := range tokens {
		h = (h ^ uint64(t)) * prime
	}
	return h
}
