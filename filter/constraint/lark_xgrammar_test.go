//go:build engines

package constraint

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
)

// TestXgrammarInputGrammars shows that xgrammar accepts and rejects the arguments of
// custom tools as their grammars say.
func TestXgrammarInputGrammars(t *testing.T) {
	formats := make([]Format, len(inputGrammars))
	texts := make([][]string, len(inputGrammars))

	for i, c := range inputGrammars {
		var grammar Grammar
		var err error
		if c.lark != "" {
			grammar, _, err = InputLark(newAccount(), c.lark)
		} else {
			grammar, _, err = InputRegex(newAccount(), c.regex)
		}

		if err != nil {
			t.Fatal(err)
		}

		formats[i] = grammar
		for _, text := range slices.Concat(c.yes, c.no) {
			var b bytes.Buffer
			e := json.NewEncoder(&b)
			e.SetEscapeHTML(false)
			if err := e.Encode(map[string]string{"input": text}); err != nil {
				t.Fatal(err)
			}
			texts[i] = append(texts[i], string(bytes.TrimSpace(b.Bytes())))
		}
	}

	for i, v := range xgrammar(t, formats, texts) {
		for j, accepted := range v.Accepts {
			if accepted != (j < len(inputGrammars[i].yes)) {
				t.Errorf("grammar %d: %s: %v", i, texts[i][j], accepted)
			}
		}
		if v.Error != "" || v.Seconds > 15 {
			t.Errorf("grammar %d: %s, %v s", i, v.Error, v.Seconds)
		}
	}
}
