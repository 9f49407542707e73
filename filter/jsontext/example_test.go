package jsontext_test

import (
	"fmt"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

type sampling struct {
	Temperature *float64
}

// A table maps each field of a request to its decoder, to an error or to
// nothing. Errors name the field at fault.
func Example() {
	table := jsontext.Table[*sampling]{
		"temperature": {Read: func(s *sampling, v jsontext.Field) *apierror.Error { return v.SetNumber(&s.Temperature, 0, 2) }},
		"functions":   {Refused: "functions is not supported. Use tools."},
		"user":        {Ignored: "names the client's user"},
	}

	for _, body := range []string{`{"temperature":0.5,"user":"u","unknown":1}`, `{"temperature":3}`, `{"functions":[{}]}`} {
		var s sampling
		var ignored jsontext.Ignored
		root, err := jsontext.Parse([]byte(body))
		if err == nil {
			err = table.Decode(&s, jsontext.Field{Result: root}, &ignored)
		}

		if err != nil {
			fmt.Println(err.Param+":", err.Message)
			continue
		}

		fmt.Println(*s.Temperature, ignored)
	}
	// Output:
	// 0.5 [user unknown]
	// temperature: The field "temperature" must be between 0 and 2.
	// functions: functions is not supported. Use tools.
}

// A writer is a byte slice: it goes on where another function has stopped.
func ExampleWriter() {
	appendSize := func(dst []byte) []byte { return jsontext.Writer(dst).Int("bytes", 3) }

	var dst []byte
	w := jsontext.Writer(dst).Event("file.read").Open().Text("name", "a\tb")
	w = appendSize(w)
	w = w.Key("lines").OpenList().CloseList()
	dst = w.Close().EndEvent()

	fmt.Print(string(dst))
	// Output:
	// event: file.read
	// data: {"name":"a\tb","bytes":3,"lines":[]}
}
