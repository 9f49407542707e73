package chat

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/sjson"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestGolden compares, for each folder of testdata, the prompt of
// request.json, and the replies to upstream.tokens with and without stream.
//
// upstream.tokens has the engine's output with special tokens spelled. A line
// "@ FINISH" ends a choice; line breaks before it are not part of the output.
func TestGolden(t *testing.T) {
	t.Parallel()
	dirs, err := filepath.Glob("testdata/*/request.json")
	if err != nil || len(dirs) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range dirs {
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			request := read(t, file)
			outputs := readOutputs(t, read(t, filepath.Join(dir, "upstream.tokens")))
			three := func() int { return 3 }

			whole := mustDecode(t, with(t, request, "stream", false, "stream_options", nil))
			compare(t, filepath.Join(dir, "prompt.txt"), spell(t, whole.Engine().Prompt)+"\n")
			compare(t, filepath.Join(dir, "reply.json"), string(indent(t, run(t, whole, chunks(outputs, three)))))

			stream := mustDecode(t, with(t, request, "stream", true))
			compare(t, filepath.Join(dir, "events.sse"), run(t, stream, chunks(outputs, three)))
		})
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// with sets members of a JSON object; nil deletes one.
func with(t testing.TB, object string, members ...any) string {
	t.Helper()
	var err error
	for i := 0; i < len(members) && err == nil; i += 2 {
		name := members[i].(string)
		if members[i+1] == nil {
			object, err = sjson.Delete(object, name)
		} else {
			object, err = sjson.Set(object, name, members[i+1])
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return object
}

func readOutputs(t *testing.T, text string) []output {
	t.Helper()
	var outputs []output
	var lines []string
	for line := range strings.Lines(text) {
		finish, ends := strings.CutPrefix(line, "@ ")
		if !ends {
			lines = append(lines, line)
			continue
		}
		outputs = append(outputs, output{
			index:  len(outputs),
			tokens: tokens(strings.TrimSuffix(strings.Join(lines, ""), "\n")),
			finish: engine.Finish(strings.TrimSpace(finish)),
		})
		lines = nil
	}
	if len(outputs) == 0 || lines != nil {
		t.Fatal("upstream.tokens does not end in a line \"@ FINISH\"")
	}
	return outputs
}

func compare(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(read(t, file), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}
