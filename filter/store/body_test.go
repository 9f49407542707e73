package store

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBody(t *testing.T) {
	for _, r := range []*Response{
		{},
		{Object: []byte(`{"a": "<\u00e9>"}`)},
		{Input: []Item{{"a", []byte("1")}, {"", nil}}, Output: []Item{{strings.Repeat("x", 300), []byte(strings.Repeat("y", 70000))}}},
	} {
		b := appendBody(nil, r)
		if len(b) > bodySize(r) {
			t.Errorf("%d bytes, more than %d", len(b), bodySize(r))
		}
		var got Response
		must(t, decodeBody(context.Background(), b, &got))
		if diff := cmp.Diff(r, &got, cmp.Transformer("string", func(b []byte) string { return string(b) })); diff != "" {
			t.Error(diff)
		}
		for i := range min(len(b), 100) {
			if err := decodeBody(context.Background(), b[:i], &got); err == nil {
				t.Errorf("the first %d bytes are decoded without an error", i)
			}
		}
	}
}

func FuzzBody(f *testing.F) {
	f.Add(appendBody(nil, &Response{Object: []byte("{}"), Input: []Item{{"a", []byte("1")}}}))
	f.Add([]byte{bodyFormat, 0, 255, 255, 255, 255, 255, 255, 255, 255, 127})
	f.Fuzz(func(t *testing.T, b []byte) {
		var r Response
		if decodeBody(context.Background(), b, &r) != nil {
			return
		}
		var again Response
		if err := decodeBody(context.Background(), appendBody(nil, &r), &again); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(r, again); diff != "" {
			t.Error(diff)
		}
	})
}

// TestItemClone checks that a cloned item does not refer to the body.
func TestItemClone(t *testing.T) {
	b := appendBody(nil, &Response{Input: []Item{{"a", []byte(`{"id":"a"}`)}}})
	var r Response
	must(t, decodeBody(context.Background(), b, &r))
	item := r.Input[0].clone()
	clear(b)
	if item.ID != "a" || string(item.JSON) != `{"id":"a"}` {
		t.Errorf("%q", item)
	}
}
