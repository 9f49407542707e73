package jsontext

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strconv"
	"testing"
)

func TestWriter(t *testing.T) {
	t.Parallel()
	for want, got := range map[string]Writer{
		`{}`:                        Writer(nil).Open().Close(),
		`[]`:                        Writer(nil).OpenList().CloseList(),
		`{"a":"b"}`:                 Writer(nil).Open().Text("a", "b").Close(),
		`{"a":"\n","b":1,"c":true}`: Writer(nil).Open().Text("a", "\n").Int("b", 1).Bool("c", true).Close(),
		`{"a":{},"b":{"c":null}}`: Writer(nil).Open().Key("a").Open().Close().
			Key("b").Open().Literal("c", "null").Close().Close(),
		`[{"a":1},{"a":2},[true]]`: append(Writer(nil).OpenList().
			Open().Int("a", 1).Close().Open().Int("a", 2).Close().
			OpenList().Element(), "true]]"...),
		`{"a":"\\","\"":[]}`:      Writer(nil).Open().Text("a", `\`).ClientKey(`"`).OpenList().CloseList().Close(),
		`{"a":"{","b":"[","c":1}`: Writer(nil).Open().Text("a", "{").Text("b", "[").Int("c", 1).Close(),
		`"a":1,"b":[{}]`:          Writer(nil).Int("a", 1).Raw("b", []byte(`[{}]`)),
		`{"a":1,"b":2}`:           Writer(`{"a":1`).Int("b", 2).Close(),
		"{\"a\":{} \n,\"b\":[] }": Writer(nil).Open().Raw("a", []byte("{} \n")).Raw("b", []byte("[] ")).Close(),
		`{"a":1,"b":3}`:           Writer(`{"a":1,`).Int("b", 3).Close(),

		"event: x\ndata: {\"a\":1}\n\ndata: {}\n\n": Writer(nil).Event("x").Open().Int("a", 1).Close().EndEvent().
			Event("").Open().Close().EndEvent(),
		"data: [1]\n\n" + Done: append(Writer(nil).Event("").OpenList().Element(), "1]\n\n"+Done...),
	} {
		if string(got) != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestWriterWritesJSON shows that calls which nest as JSON does write it, whatever the values.
func TestWriterWritesJSON(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))

	var value func(w Writer, depth int) (Writer, any)
	value = func(w Writer, depth int) (Writer, any) {
		switch kind := rng.IntN(6); {
		case kind == 0 && depth < 4:
			w, object := w.Open(), map[string]any{}
			for i := range rng.IntN(4) {
				name := strconv.Itoa(i) + `{["`
				w, object[name] = value(w.ClientKey(name), depth+1)
			}
			return w.Close(), object

		case kind == 1 && depth < 4:
			w, list := w.OpenList(), []any{}
			for range rng.IntN(4) {
				var element any
				w, element = value(w.Element(), depth+1)
				list = append(list, element)
			}
			return w.CloseList(), list

		case kind == 2:
			return append(w, "true"...), true
		case kind == 3:
			return append(w, "-1.5"...), -1.5
		}

		text := []string{"", "{", "[", ":", ",", " ", "\n", `"`, `\`}[rng.IntN(9)]
		return AppendString(w, text), text
	}

	for range 10_000 {
		got, want := value(nil, 0)
		var read any
		if err := json.Unmarshal(got, &read); err != nil || !reflect.DeepEqual(read, want) {
			t.Fatalf("%s is read as %v, want %v: %v", got, read, want, err)
		}
	}
}

func TestWriterAllocates(t *testing.T) {
	dst, value := make([]byte, 0, 1024), []byte(`{"type":"object"}`)
	long := "a text that is longer than what a function keeps on its stack for conversions, \n" + string(make([]byte, 32))

	n := testing.AllocsPerRun(100, func() {
		w := Writer(dst[:0]).Event("response.created").Open().Text("type", long).Raw("schema", value).Int("n", 1<<40)
		w = w.Key("list").OpenList().Open().Bool("is", true).Close().CloseList().ClientKey(long).Open().Close()
		dst = w.Close().EndEvent()
	})
	if n > 0 {
		t.Errorf("%v allocations", n)
	}
}
