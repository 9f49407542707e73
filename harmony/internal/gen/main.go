// Command gen writes the vocabulary table that package harmony embeds, from the
// o200k_base ranks in github.com/pkoukk/tiktoken-go-loader. Run it with go
// generate ./harmony. Its output is deterministic.
package main

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"

	"github.com/pkoukk/tiktoken-go-loader/assets"
)

const (
	ranksFile   = "o200k_base.tiktoken"
	ranksSHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
	tokens      = 199998
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: gen VOCABULARY.bin LAYOUT.go")
	}

	ranks, err := readRanks()
	if err != nil {
		log.Fatalf("reading %s: %v", ranksFile, err)
	}
	table := build(ranks)

	if err := os.WriteFile(os.Args[1], table.data, 0o644); err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(os.Args[2], table.layout(), 0o644); err != nil {
		log.Fatal(err)
	}
}

// readRanks returns the bytes of each token, indexed by id.
func readRanks() ([]string, error) {
	file, err := assets.Assets.ReadFile(ranksFile)
	if err != nil {
		return nil, err
	}

	// Another version of the loader could have other ranks, and every token would be wrong.
	if sum := sha256.Sum256(file); hex.EncodeToString(sum[:]) != ranksSHA256 {
		return nil, fmt.Errorf("SHA-256 is %x, want %s", sum, ranksSHA256)
	}

	text := make([]string, tokens)
	for line := range strings.Lines(string(file)) {
		encoded, rank, _ := strings.Cut(strings.TrimSpace(line), " ")
		b, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			return nil, err
		}

		id, err := strconv.Atoi(rank)
		if err != nil {
			return nil, err
		}

		// The table has a place for each id, so each must occur, and only once.
		if id < 0 || id >= tokens || text[id] != "" || len(b) == 0 {
			return nil, fmt.Errorf("unexpected rank %d", id)
		}
		text[id] = string(b)
	}

	for id, t := range text {
		if t == "" {
			return nil, fmt.Errorf("rank %d is missing", id)
		}
	}
	return text, nil
}
