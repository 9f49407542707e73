// Command ours measures package harmony in the same way as the other programs
// in this folder measure other libraries:
//
//	ours TASK FILE...
//
// For each file it prints the path, the CPU time of the task in milliseconds,
// the number of tokens and a hash of the result. Libraries with equal results
// print equal hashes. The first line is the CPU time up to the end of the first
// encoding.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"syscall"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// tasks read a file and perform a task. Only the time of the calls of timed is
// measured.
var tasks = map[string]func(data []byte) (tokens int, hash uint64){
	// The file is a text.
	"encode": func(data []byte) (int, uint64) {
		text := string(data)
		timed(func() { buffer = harmony.AppendEncode(buffer[:0], text) })
		return len(buffer), hash(buffer)
	},
	// The file is a JSON list of completions, which are lists of tokens.
	"parse": parse,
	// The file is a conversation in JSON.
	"render": func(data []byte) (int, uint64) {
		timed(func() { render(newRenderer(), conversation(data)) })
		return len(buffer), hash(buffer)
	},
	// The same without parsing the JSON.
	"render-messages": func(data []byte) (int, uint64) {
		msgs := conversation(data)
		timed(func() { render(newRenderer(), msgs) })
		return len(buffer), hash(buffer)
	},
	// The same after all messages but the last one have been rendered.
	"render-last": func(data []byte) (int, uint64) {
		msgs, r := conversation(data), newRenderer()
		render(r, msgs[:len(msgs)-1])
		timed(func() { render(r, msgs) })
		return len(buffer), hash(buffer)
	},
}

var (
	buffer []harmony.Token
	took   float64 // time measured by timed, in CPU milliseconds
)

func main() {
	log.SetFlags(0)
	if len(os.Args) < 2 || tasks[os.Args[1]] == nil {
		log.Fatal("usage: ours encode|parse|render|render-messages|render-last FILE...")
	}

	// The first encoding includes what the program does at its start.
	timed(func() { buffer = harmony.AppendEncode(nil, "x") })
	fmt.Fprintln(os.Stdout, "load", took)

	for _, path := range os.Args[2:] {
		data, err := os.ReadFile(path)
		if err != nil {
			log.Fatal(err)
		}

		tokens, hash := tasks[os.Args[1]](data)
		fmt.Fprintf(os.Stdout, "%s %.4f %d %016x\n", path, took, tokens, hash)
	}
}

// parse parses the tokens like a server: it reads the delta, channel and
// recipient after each token.
func parse(data []byte) (tokens int, h uint64) {
	var completions [][]harmony.Token
	if err := json.Unmarshal(data, &completions); err != nil {
		log.Fatal(err)
	}

	p, read := harmony.NewParser(harmony.Strict, harmony.RoleAssistant), 0
	each := func(visit func(delta []byte, channel, recipient string)) {
		for _, completion := range completions {
			p.Reset(harmony.RoleAssistant)
			for _, t := range completion {
				if _, err := p.Push(t); err != nil {
					log.Fatal(err)
				}
				visit(p.LastDelta(), p.Channel(), p.Recipient())
			}
			tokens += len(completion)
		}
	}

	timed(func() {
		each(func(delta []byte, channel, recipient string) { read += len(delta) + len(channel) + len(recipient) })
	})

	// A compiler must not find out that nothing uses the result.
	if read == 0 {
		log.Fatal("nothing was read")
	}

	// The hash is of a second pass, so that its time is not measured.
	tokens, h = 0, offset
	each(func(delta []byte, channel, recipient string) {
		for _, s := range []string{string(delta), channel, recipient} {
			for i := range len(s) {
				h = (h ^ uint64(s[i])) * prime
			}

			// A byte that no UTF-8 has keeps the fields apart.
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

// newRenderer returns a Renderer with an empty cache and the output of the
// reference.
func newRenderer() *harmony.Renderer {
	return harmony.NewRenderer(harmony.WithReferenceSchema(), harmony.WithAnalysis(harmony.DropBeforeFirstFinal))
}

func render(r *harmony.Renderer, msgs []harmony.Message) {
	var err error
	if buffer, err = r.AppendCompletion(buffer[:0], msgs, harmony.RoleAssistant); err != nil {
		log.Fatal(err)
	}
}

func timed(task func()) {
	start := cpu()
	task()
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

// The constants of FNV-1a.
const offset, prime = 0xcbf29ce484222325, 0x100000001b3

// hash returns the FNV-1a hash of the ids.
func hash(tokens []harmony.Token) uint64 {
	h := uint64(offset)
	for _, t := range tokens {
		h = (h ^ uint64(t)) * prime
	}
	return h
}
