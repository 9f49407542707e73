package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/envoy-harmony/envoy-harmony/cmd/engine-sim/internal/enginesim"
)

var update = flag.Bool("update", false, "write the reference in docs/simulator.md")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestHelp compares the page of the simulator with what -help prints.
func TestHelp(t *testing.T) {
	var help bytes.Buffer
	if err := run(context.Background(), []string{"-help"}, &help); !errors.Is(err, flag.ErrHelp) {
		t.Fatalf("-help returns %v", err)
	}
	for _, want := range []string{enginesim.Reference, "-behavior directives", "-tokens-per-event tokens"} {
		if !strings.Contains(help.String(), want) {
			t.Errorf("-help does not have %q:\n%s", want, help.String())
		}
	}

	const page, begin, end = "../../docs/simulator.md", "```text\n", "```\n"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	shown, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no block of text for the reference", page)
	}
	if *update {
		if err := os.WriteFile(page, []byte(before+begin+enginesim.Reference+end+after), 0o600); err != nil {
			t.Fatal(err)
		}
	} else if shown != enginesim.Reference {
		t.Errorf("%s does not show the reference of -help: go test ./cmd/engine-sim -update", page)
	}
}

// TestWrongFlags shows that a mistake is told without the whole reference.
func TestWrongFlags(t *testing.T) {
	for args, want := range map[string]string{
		"--dealy 5ms":                 "flag provided but not defined: -dealy (engine-sim -help lists the flags)",
		"--delay 5":                   `directive "delay=5": time: missing unit in duration "5"`,
		"--role both":                 `role "both": use prefill or decode`,
		"--listen 127.0.0.1:0 cut@5":  `unexpected argument "cut@5"`,
		"--behavior fault=explode@99": `directive "fault=explode@99": use one of error, cut, end, done, abort, garbage, hang`,
	} {
		var out bytes.Buffer
		if err := run(context.Background(), strings.Fields(args), &out); err == nil || err.Error() != want || out.Len() > 0 {
			t.Errorf("%s: %v, want %s\n%s", args, err, want, out.String())
		}
	}
}
