package storetest

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/store"
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

func (s *tester) claim(tenant, name, text string) string {
	s.Helper()
	kept, err := s.Claim(s.ctx, tenant, name, text)
	s.must(err)
	return kept
}

func testClaims(t *testing.T, open Open) {
	s := begin(t, open)
	s.same("the first Claim", s.claim("a", "x", "1"), "1")
	s.same("a second Claim", s.claim("a", "x", "2"), "1")
	s.same("Claim of another tenant", s.claim("b", "x", "3"), "3")
	settled := strings.Repeat("long \x00 \xff ", 10_000)
	s.must(s.Settle(s.ctx, "a", "x", settled))
	s.same("Claim of what is settled", s.claim("a", "x", "4"), settled)
	s.must(s.Settle(s.ctx, "a", "y", "5"))
	s.same("Claim of what was settled without one", s.claim("a", "y", "6"), "5")

	// Texts of the same name are others.
	s.same("Texts of a claim's name", s.texts("a", "x"), map[string]string{})
	s.must(s.PutTexts(s.ctx, "a", map[string]string{"x": "7"}))
	s.same("Claim beside a text", s.claim("a", "x", "8"), settled)
	s.same("Texts beside a claim", s.texts("a", "x"), map[string]string{"x": "7"})
}

func testClaimsConcurrent(t *testing.T, open Open) {
	s := begin(t, open)
	const claimants = 8
	winners := s.won(claimants, func(i int) error {
		mine := strconv.Itoa(i)
		kept, err := s.Claim(s.ctx, "a", "x", mine)
		if err == nil && kept != mine {
			err = store.ErrConflict
		}
		return err
	})
	if len(winners) != 1 {
		t.Errorf("%d of %d were the first", len(winners), claimants)
	}
}

// testClaimsLast shows that claims have the age of responses, not that of texts.
func testClaimsLast(t *testing.T, open Open) {
	o := options
	o.TextTTL = time.Second
	s := beginWith(t, open, o)
	s.must(s.PutTexts(s.ctx, "a", map[string]string{"x": "1"}))
	s.claim("a", "x", "1")
	s.eventually("a text is gone", func() bool { return len(s.texts("a", "x")) == 0 })
	s.same("Claim that is older than a text gets", s.claim("a", "x", "2"), "1")

	o = options
	o.ResponseTTL = time.Second
	s = beginWith(t, open, o)
	s.claim("a", "x", "1")
	s.must(s.Settle(s.ctx, "a", "y", "1"))
	s.put("a", response("1", ""))
	gone := func() bool { return errors.Is(errorOf(s.Get(s.ctx, "a", "1")), store.ErrNotFound) }
	s.eventually("a response of that age is gone", gone)
	for _, name := range []string{"x", "y"} {
		s.same("Claim that has run out", s.claim("a", name, "2"), "2")
	}
}
