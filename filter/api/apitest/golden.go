package apitest

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
)

var update = flag.Bool("update", false, "write the golden files anew")

// Updating reports whether the test has the flag -update.
func Updating() bool { return *update }

// Golden compares, for each folder of testdata, the prompt of request.json, and the
// replies to upstream.tokens with and without stream. A stream that has everything is
// also compared with the object.
//
// upstream.tokens has the engine's output with special tokens spelled. A line
// "@ FINISH" ends a choice; a line break before it is not part of the output.
func (a *API) Golden(t *testing.T) {
	for _, file := range GoldenRequests(t) {
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			body := ReadFile(t, file)
			chunks := Chunks(readOutputs(t, ReadFile(t, filepath.Join(dir, "upstream.tokens"))), Size(3))

			whole := a.MustDecode(t, With(t, body, a.Whole...))
			Compare(t, filepath.Join(dir, "prompt.txt"), Spell(t, whole.Engine().Prompt)+"\n")
			object := Play(t, whole, a.Mode, chunks)
			Compare(t, filepath.Join(dir, "reply.json"), Indent(t, object))

			stream := a.MustDecode(t, With(t, body, "stream", true))
			events := Play(t, stream, a.Mode, chunks)
			Compare(t, filepath.Join(dir, "events.sse"), events)
			a.Read(t, stream, events)

			// The usual stream lacks what its client must ask for, such as the usage of chat.
			full := a.MustDecode(t, With(t, body, a.Streamed...))
			a.compareStream(t, whole, object, full, Play(t, full, a.Mode, chunks))
		})
	}
}

// GoldenRequests returns the paths of the requests of [API.Golden].
func GoldenRequests(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*/request.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	return files
}

// ReadFile returns the text of a file.
func ReadFile(t testing.TB, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func readOutputs(t testing.TB, text string) []Output {
	t.Helper()
	var outputs []Output
	var lines []string
	for line := range strings.Lines(text) {
		finish, ends := strings.CutPrefix(line, "@ ")
		if !ends {
			lines = append(lines, line)
			continue
		}
		outputs = append(outputs, Output{
			Index:  len(outputs),
			Tokens: Tokens(strings.TrimSuffix(strings.Join(lines, ""), "\n")),
			Finish: engine.Finish(strings.TrimSpace(finish)),
		})
		lines = nil
	}

	if len(outputs) == 0 || lines != nil {
		t.Fatal("upstream.tokens does not end in a line \"@ FINISH\"")
	}
	return outputs
}

// Compare compares a text with a golden file, which the flag -update writes.
func Compare(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(ReadFile(t, file), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}
