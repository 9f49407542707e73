// Command corpus keeps one of each shape of request that real clients send: requests/CLIENT.jsonl.
//
// "make corpus-record" runs the clients with a relay that records what they send
// (stack.Recorded), and this command makes rows of the recordings: texts, names and ids of others
// are replaced by neutral ones of the same form, and a request of a shape that a client has a row
// of adds no more than its version. Rows that are there stay.
//
// TestCorpus reads every row through the filter's own door, its ext_proc streams and WebSocket
// connections, and compares verdict and prompt with verdicts/CLIENT.txt. It needs no client.
package main

import (
	"flag"
	"fmt"
	"os"
)

// requestsFolder has the rows.
const requestsFolder = "e2e/corpus/requests"

func main() {
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: go run ./e2e/corpus FOLDER...\n\nIt adds the recordings of folders to the corpus.")
	}
	flag.Parse()
	if err := run(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "corpus:", err)
		os.Exit(1)
	}
}

func run(folders []string) error {
	recordings, err := readRecordings(folders)
	if err != nil {
		return err
	}
	for _, client := range recordings.clients() {
		rows, err := readRows(requestsFolder, client)
		if err != nil {
			return err
		}
		before := len(rows)
		rows = withRecordings(rows, recordings[client])
		if err := writeRows(requestsFolder, client, rows); err != nil {
			return err
		}
		fmt.Printf("%s: %d rows, %d of them new\n", client, len(rows), len(rows)-before)
	}
	return nil
}
