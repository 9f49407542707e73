package item_test

import (
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

func TestReadContent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, content, want string }{
		{"a text", `"one"`, "one"},
		{"parts are lines", `[{"type":"input_text","text":"one"},{"type":"input_text","text":"two"}]`, "one\ntwo"},
		{"white space is enough", `[{"type":"input_text","text":"one "},{"type":"input_text","text":"two"}]`, "one two"},
		{"a refusal", `[{"type":"output_text","text":"one"},{"type":"refusal","refusal":"two"}]`, "one\ntwo"},
		{"a picture has its line", `[{"type":"input_text","text":"one "},{"type":"input_image","image_url":"x"},{"type":"input_text","text":"two"}]`, "one \n" + turn.ImagePlaceholder + "\ntwo"},
	} {
		got, err := item.ReadContent(jsontext.Field{Result: gjson.Parse(c.content)}, turn.ImagesPlaceholder, false)
		if err != nil || got != c.want {
			t.Errorf("%s: got %q, want %q; %v", c.name, got, c.want, err)
		}
	}
}
