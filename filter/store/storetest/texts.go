package storetest

import (
	"strconv"
	"strings"
	"testing"
)

func (s *tester) texts(tenant string, names ...string) map[string]string {
	s.Helper()
	texts, err := s.Texts(s.ctx, tenant, names)
	s.must(err)
	return texts
}

func testTexts(t *testing.T, open Open) {
	s := begin(t, open)
	s.same("Texts of an empty store", s.texts("a", "x"), map[string]string{})
	s.same("Texts of no names", s.texts("a"), map[string]string{})
	s.must(s.PutTexts(s.ctx, "a", nil))
	long := strings.Repeat("long \x00 \xff ", 1000)
	s.must(s.PutTexts(s.ctx, "a", map[string]string{"x": "1", "y": "", "z": long}))
	s.same("Texts", s.texts("a", "x", "y", "z", "none", "x"), map[string]string{"x": "1", "y": "", "z": long})
	s.must(s.PutTexts(s.ctx, "a", map[string]string{"x": "2", "w": "3"}))
	s.same("Texts in place of others", s.texts("a", "x", "w"), map[string]string{"x": "2", "w": "3"})

	for _, c := range []struct{ name, text, want string }{{"x", "4", "2"}, {"f", "5", "5"}, {"f", "6", "5"}, {"y", "7", ""}} {
		got, err := s.FirstText(s.ctx, "a", c.name, c.text)
		s.must(err)
		s.same("FirstText of "+c.name, got, c.want)
	}
	s.same("Texts after FirstText", s.texts("a", "x", "f"), map[string]string{"x": "2", "f": "5"})
}

func testTextsConcurrent(t *testing.T, open Open) {
	s := begin(t, open)
	const writers = 8
	got := make(chan string, writers)
	for i := range writers {
		go func() {
			text, err := s.FirstText(s.ctx, "a", "x", strconv.Itoa(i))
			if err != nil {
				t.Error(err)
			}
			got <- text
		}()
	}
	first := <-got
	for range writers - 1 {
		s.same("FirstText", <-got, first)
	}
	if winners := s.won(writers, func(i int) error {
		return s.PutTexts(s.ctx, "a", map[string]string{"p": strconv.Itoa(i), "q": "", "r": "", "s": ""})
	}); len(winners) != writers {
		t.Errorf("%d of %d put texts at once", len(winners), writers)
	}
}
