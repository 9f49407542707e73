package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

const oneMessage = `{"messages":[{"role":"user","content":"Hi"}]}`

// runTokens runs the command and returns its exit status.
func runTokens(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	p := program{stdin: stdin, stdout: stdout, stderr: stderr}
	return p.main(context.Background(), append([]string{"tokens"}, args...))
}

func TestTokens(t *testing.T) {
	for _, c := range []struct {
		args, stdin, want string
	}{
		{"encode", "hello world", "24912 2375\n"},
		{"encode", "<|end|>", "27 91 419 91 29\n"},
		{"encode -special", "<|end|>", "200007\n"},
		{"encode -jsonl", "{\"s\":\"hello world\"}\n\n{\"s\":\"\"}", "{\"t\":[24912,2375]}\n{\"t\":[]}\n"},
		{"decode", "[24912, 2375,\n200007]", "hello world<|end|>\n"},
		{"decode -jsonl", `{"t":[31446,244,9552,200007,99999999]}`, "{\"s\":\"💖 \uFFFD<|end|>\uFFFD\"}\n"},
		{"render", oneMessage, "200006 1428 200008 12194 200007 200006 173781\n"},
		{"render -next none", oneMessage, "200006 1428 200008 12194 200007\n"},
		{"render -text -next user", oneMessage, "<|start|>user<|message|>Hi<|end|><|start|>user\n"},
		{"render -training -text", `{"messages":[{"role":"assistant","channel":"final","content":"Hi"}]}`, "<|start|>assistant<|channel|>final<|message|>Hi<|return|>\n"},
		{"render -jsonl -filter", oneMessage + "\n" + oneMessage, "{\"t\":[200006,1428,200008,12194,200007,200006,173781]}\n{\"t\":[200006,1428,200008,12194,200007,200006,173781]}\n"},
		{"parse", "200005 17196 200008 12194 200002", "[assistant, final]\nHi<|return|>\n"},
		{"parse", "12194", "[assistant, final]\nHi\nrepaired: missing_header (1)\n"},
		{"parse -jsonl", `{"t":[200005,17196,200008,12194,200002,200002]}`, `{"msgs":[["final","","","Hi"]],"delta":"Hi","err":false}` + "\n"},
		{"parse -jsonl -strict", `{"t":[200005,17196,200008,12194,200002,200002]}`, `{"msgs":[["final","","","Hi"]],"delta":"Hi","err":true,"error":"Unexpected token 200002 while expecting start token 200006"}` + "\n"},
		{"parse -jsonl -permissive", `{"t":[12194,200002]}`, `{"msgs":[["","","","Hi"]],"delta":"","err":false}` + "\n"},
		{"parse -jsonl -strict -role none", `{"t":[200006,1428,200008,12194,200007]}`, `{"msgs":[["","","","Hi"]],"delta":"Hi","err":false}` + "\n"},
		{"parse -jsonl", `{"t":[]}`, `{"msgs":[],"delta":"","err":false}` + "\n"},
	} {
		var stdout, stderr bytes.Buffer
		if code := runTokens(strings.Fields(c.args), strings.NewReader(c.stdin), &stdout, &stderr); code != 0 || stderr.Len() > 0 {
			t.Errorf("%s: exit %d, %s", c.args, code, &stderr)
		}
		if diff := cmp.Diff(c.want, stdout.String()); diff != "" {
			t.Errorf("%s < %s (-want +got):\n%s", c.args, c.stdin, diff)
		}
	}
}

func TestTokensErrors(t *testing.T) {
	for _, c := range []struct {
		args, stdin, wantOut, wantErr string
		code                          int
	}{
		{"", "", "", "Usage:", 2},
		{"count", "", "", `no command "count": use encode, decode, render or parse`, 2},
		{"encode -nope", "", "", "flag provided but not defined", 2},
		{"encode a b", "", "", "name one", 1},
		{"encode /does/not/exist", "", "", "no such file", 1},
		{"decode", "12 x", "", `token 1 is "x": write ids as numbers`, 1},
		{"render", "{}", "", `it has no "messages"`, 1},
		{"render -next model", oneMessage, "", `role "model": use assistant`, 1},
		{"parse -strict", "12194", "", "Unexpected EOS", 1},
		{"encode -jsonl", "{\"s\":\"a\"}\n{}\n{\"s\":\"b\"}", "{\"t\":[64]}\n{\"error\":\"the line has no \\\"s\\\": write {\\\"s\\\": \\\"text\\\"}\"}\n{\"t\":[65]}\n", "1 lines failed", 1},
		{"parse -jsonl", "{}", "{\"error\":\"the line has no \\\"t\\\": write {\\\"t\\\": [ids]}\"}\n", "1 lines failed", 1},
	} {
		var stdout, stderr bytes.Buffer
		code := runTokens(strings.Fields(c.args), strings.NewReader(c.stdin), &stdout, &stderr)
		if code != c.code || !strings.Contains(stderr.String(), c.wantErr) || stdout.String() != c.wantOut {
			t.Errorf("%q: exit %d, %q, %q", c.args, code, &stdout, &stderr)
		}
	}
}

func TestTokensHelp(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := runTokens([]string{"-h"}, nil, &stdout, &stderr); code != 0 || !strings.Contains(stdout.String(), "Usage:") {
		t.Errorf("-h: exit %d, %q", code, &stdout)
	}
	if code := runTokens([]string{"parse", "-h"}, nil, &stdout, &stderr); code != 0 || !strings.Contains(stdout.String(), "-strict") {
		t.Errorf("parse -h: exit %d, %q", code, &stdout)
	}
}

func TestTokensFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(name, []byte("hello world"), 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	if code := runTokens([]string{"encode", name}, nil, &stdout, &stderr); code != 0 || stdout.String() != "24912 2375\n" {
		t.Errorf("exit %d, %q, %q", code, &stdout, &stderr)
	}
}

// On a terminal, tokens are colored and control characters are visible.
func TestPainter(t *testing.T) {
	var b strings.Builder
	out := bufio.NewWriter(&b)
	painter{on: true}.tokens(out, harmony.AppendEncodeSpecial(nil, "<|start|>assistant<|channel|>final<|message|>\x1b[2J"))
	if err := out.Flush(); err != nil {
		t.Fatal(err)
	}
	want := "\x1b[7m<|start|>\x1b[0massistant\x1b[7m<|channel|>\x1b[0m\x1b[32mfinal\x1b[0m\x1b[7m<|message|>\x1b[0m"
	got := b.String()
	if !strings.HasPrefix(got, want) || strings.Contains(got[len(want):], "\x1b[2J") || !strings.Contains(got[len(want):], "␛") {
		t.Errorf("got %q", got)
	}
	if newPainter(&b).on {
		t.Error("colors without a terminal")
	}
}
