package responses

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
// upstream.tokens has the engine's output with special tokens spelled. Its last
// line is "@ FINISH"; a line break before it is not part of the output.
func TestGolden(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*/request.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			request := read(t, file)
			out := readOutput(t, read(t, filepath.Join(dir, "upstream.tokens")))
			three := func() int { return 3 }

			whole := mustDecode(t, with(t, request, "stream", false))
			compare(t, filepath.Join(dir, "prompt.txt"), spell(t, whole.Engine().Prompt)+"\n")
			object := run(t, whole, chunks(out, three))
			compare(t, filepath.Join(dir, "reply.json"), indent(t, object))

			stream := mustDecode(t, with(t, request, "stream", true))
			events := run(t, stream, chunks(out, three))
			compare(t, filepath.Join(dir, "events.sse"), events)
			if diff := cmp.Diff(object, final(t, stream, events)); diff != "" {
				t.Errorf("the stream is not the whole reply (-whole +stream):\n%s", diff)
			}
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

// with sets a member of a JSON object.
func with(t testing.TB, object, name string, value any) string {
	t.Helper()
	object, err := sjson.Set(object, name, value)
	if err != nil {
		t.Fatal(err)
	}
	return object
}

func readOutput(t *testing.T, text string) output {
	t.Helper()
	text, finish, found := strings.Cut(text, "@ ")
	if !found {
		t.Fatal("upstream.tokens does not end in a line \"@ FINISH\"")
	}
	return output{tokens(strings.TrimSuffix(text, "\n")), engine.Finish(strings.TrimSpace(finish))}
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
