package engine

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// promptIDList returns n ids as JSON.
func promptIDList(n int) string {
	random := rand.New(rand.NewPCG(1, 1))
	ids := make([]harmony.Token, n)
	for i := range ids {
		ids[i] = harmony.Token(random.IntN(200_000))
	}
	return "[" + string(appendIDList(nil, ids)) + "]"
}

// feedPieces decodes a stream in pieces of a size, and returns its ids and the longest
// buffer of an incomplete line.
func feedPieces(t *testing.T, stream string, size int) (ids []harmony.Token, longest int) {
	t.Helper()
	d, ok := vllm{}.NewDecoder(&Request{N: 2}).(*vllmDecoder)
	if !ok {
		t.Fatal("another decoder")
	}
	for len(stream) > 0 {
		p := stream[:min(size, len(stream))]
		stream = stream[len(p):]
		chunks, err := d.Feed([]byte(p), nil)
		if err != nil {
			t.Fatalf("pieces of %d bytes: %v", size, err)
		}
		for _, c := range chunks {
			ids = append(ids, c.Tokens...)
		}
		longest = max(longest, cap(d.lines.pending))
	}
	return ids, longest
}

// The ids of a prompt, which vLLM repeats, are not kept until their event is complete.
// What follows them is read in pieces of any size.
func TestPromptIDsAreNotKept(t *testing.T) {
	t.Parallel()
	long := promptIDList(50_000)
	for name, ids := range map[string]string{
		"long":          long,
		"with spaces":   strings.ReplaceAll(long, ",", ", "),
		"short":         "[1,2]",
		"none":          "[]",
		"null":          "null",
		"a few hundred": promptIDList(300),
		"not numbers":   `[1,"` + strings.Repeat("x", 3000) + `]",{"a":[2]},3]`,
		"nested":        `[` + long + `,` + long + `]`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := strings.Repeat(`\"prompt_token_ids\":[`, 100)
			first := func(index string) string {
				return `data: {"choices":[{"index":` + index + `,"text":"` + text + `","prompt_token_ids":` + ids + `,"token_ids":[1` + index + `,5]}]}` + "\n\n"
			}
			stream := first("0") + first("1") + `data: {"choices":[{"index":0,"token_ids":[7]}]}` + "\n\n"
			for _, size := range []int{len(stream), 1000, 1025, 1500, 8 << 10, 8<<10 + 1, 100_000} {
				got, longest := feedPieces(t, stream, size)
				if want := []harmony.Token{10, 5, 11, 5, 7}; !slices.Equal(got, want) {
					t.Errorf("pieces of %d bytes: ids %v, want %v", size, got, want)
				}
				if name == "long" && size <= 8<<10+1 && size > leastDropped && longest > 4*(8<<10) {
					t.Errorf("pieces of %d bytes: %d bytes are kept", size, longest)
				}
			}
		})
	}
}

// Ids that are not kept count for the length of a line.
func TestPromptIDsAreBounded(t *testing.T) {
	t.Parallel()
	d := vllm{}.NewDecoder(&Request{N: 1})
	piece := []byte(strings.Repeat("1234567,", 1<<10))
	_, err := d.Feed([]byte(`data: {"choices":[{"index":0,"text":"`+strings.Repeat("x", leastDropped)+`","prompt_token_ids":[`), nil)
	for n := 0; err == nil; n += len(piece) {
		if n > 2*maxLine {
			t.Fatal("the line has no end")
		}
		_, err = d.Feed(piece, nil)
	}
	if !strings.Contains(err.Message, "too long") {
		t.Error(err)
	}
}
