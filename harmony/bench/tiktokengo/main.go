// Command tiktokengo measures github.com/pkoukk/tiktoken-go with files in the
// same way as the command ours measures package harmony.
package main

import (
	"fmt"
	"log"
	"os"
	"syscall"

	"github.com/pkoukk/tiktoken-go"
	tiktoken_loader "github.com/pkoukk/tiktoken-go-loader"
)

func main() {
	log.SetFlags(0)
	start := cpu()
	tiktoken.SetBpeLoader(tiktoken_loader.NewOfflineLoader())
	encoding, err := tiktoken.GetEncoding(tiktoken.MODEL_O200K_BASE)
	if err != nil {
		log.Fatal(err)
	}

	// As in the other programs, the start includes a first encoding.
	encoding.EncodeOrdinary("x")
	fmt.Fprintln(os.Stdout, "load", cpu()-start)

	for _, path := range os.Args[1:] {
		text, err := os.ReadFile(path)
		if err != nil {
			log.Fatal(err)
		}

		// The copy is not a part of the task.
		s := string(text)
		start := cpu()
		tokens := encoding.EncodeOrdinary(s)
		took := cpu() - start

		fmt.Fprintf(os.Stdout, "%s %.4f %d %016x\n", path, took, len(tokens), hash(tokens))
	}
}

// cpu returns the CPU time of the process in milliseconds.
func cpu() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		log.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e6
}

// hash returns the FNV-1a hash of the ids.
func hash(tokens []int) uint64 {
	h := uint64(0xcbf29ce484222325)
	for _, t := range tokens {
		h = (h ^ uint64(t)) * 0x100000001b3
	}
	return h
}
