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
	s.wantEqual("Texts of an empty store", s.texts("a", "x"), map[string]string{})
	s.wantEqual("Texts without names", s.texts("a"), map[string]string{})
	s.must(s.PutTexts(s.ctx, "a", nil))
	long := strings.Repeat("long \x00 \xff ", 1000)
	s.must(s.PutTexts(s.ctx, "a", map[string]string{"x": "1", "y": "", "z": long}))
	s.wantEqual("Texts", s.texts("a", "x", "y", "z", "none", "x"), map[string]string{"x": "1", "y": "", "z": long})
	s.must(s.PutTexts(s.ctx, "a", map[string]string{"x": "2", "w": "3"}))
	s.wantEqual("Texts that were replaced", s.texts("a", "x", "w"), map[string]string{"x": "2", "w": "3"})

	for _, c := range []struct{ name, text, want string }{
		{"x", "4", "2"}, {"f", "5", "5"}, {"f", "6", "5"}, {"y", "7", ""},
	} {
		got, err := s.PutTextIfAbsent(s.ctx, "a", c.name, c.text)
		s.must(err)
		s.wantEqual("PutTextIfAbsent of "+c.name, got, c.want)
	}
	s.wantEqual("Texts after PutTextIfAbsent", s.texts("a", "x", "f"), map[string]string{"x": "2", "f": "5"})
}

func testTextsConcurrent(t *testing.T, open Open) {
	s := begin(t, open)
	const writers = 8
	got := make(chan string, writers)
	for i := range writers {
		go func() {
			text, err := s.PutTextIfAbsent(s.ctx, "a", "x", strconv.Itoa(i))
			if err != nil {
				t.Error(err)
			}
			got <- text
		}()
	}

	first := <-got
	for range writers - 1 {
		s.wantEqual("PutTextIfAbsent", <-got, first)
	}

	if succeeded := s.concurrently(writers, func(i int) error {
		return s.PutTexts(s.ctx, "a", map[string]string{"p": strconv.Itoa(i), "q": "", "r": "", "s": ""})
	}); len(succeeded) != writers {
		t.Errorf("%d of %d writers succeeded", len(succeeded), writers)
	}
}

func (s *tester) beginApproval(tenant, name, text string) string {
	s.Helper()
	kept, err := s.BeginApproval(s.ctx, tenant, name, text)
	s.must(err)
	return kept
}

func testApprovals(t *testing.T, open Open) {
	s := begin(t, open)
	s.wantEqual("the first BeginApproval", s.beginApproval("a", "x", "1"), "1")
	s.wantEqual("a second BeginApproval", s.beginApproval("a", "x", "2"), "1")
	s.wantEqual("BeginApproval of another tenant", s.beginApproval("b", "x", "3"), "3")
	result := strings.Repeat("long \x00 \xff ", 10_000)
	s.must(s.CompleteApproval(s.ctx, "a", "x", result))
	s.wantEqual("BeginApproval after CompleteApproval", s.beginApproval("a", "x", "4"), result)
	s.must(s.CompleteApproval(s.ctx, "a", "y", "5"))
	s.wantEqual("BeginApproval after CompleteApproval alone", s.beginApproval("a", "y", "6"), "5")

	s.wantEqual("a BeginApproval that is withdrawn", s.beginApproval("a", "z", "6"), "6")
	s.must(s.WithdrawApproval(s.ctx, "a", "z", "other"))
	s.wantEqual("BeginApproval after a WithdrawApproval of another's", s.beginApproval("a", "z", "7"), "6")
	s.must(s.WithdrawApproval(s.ctx, "b", "z", "6"))
	s.must(s.WithdrawApproval(s.ctx, "a", "z", "6"))
	s.wantEqual("BeginApproval after WithdrawApproval", s.beginApproval("a", "z", "8"), "8")

	// Texts and approvals of the same name are independent.
	s.wantEqual("Texts with the name of an approval", s.texts("a", "x"), map[string]string{})
	s.must(s.PutTexts(s.ctx, "a", map[string]string{"x": "7"}))
	s.wantEqual("BeginApproval with the name of a text", s.beginApproval("a", "x", "8"), result)
	s.wantEqual("Texts after BeginApproval", s.texts("a", "x"), map[string]string{"x": "7"})
}

func testApprovalsConcurrent(t *testing.T, open Open) {
	s := begin(t, open)
	const callers = 8
	first := s.concurrently(callers, func(i int) error {
		mine := strconv.Itoa(i)
		kept, err := s.BeginApproval(s.ctx, "a", "x", mine)
		if err == nil && kept != mine {
			err = store.ErrConflict
		}
		return err
	})

	if len(first) != 1 {
		t.Errorf("%d of %d callers were the first", len(first), callers)
	}
}

// testApprovalTTL checks that approvals have the TTL of responses, not
// that of texts.
func testApprovalTTL(t *testing.T, open Open) {
	o := options
	o.TextTTL = time.Second
	s := beginWith(t, open, o)
	s.must(s.PutTexts(s.ctx, "a", map[string]string{"x": "1"}))
	s.beginApproval("a", "x", "1")
	s.eventually("a text expires", func() bool { return len(s.texts("a", "x")) == 0 })
	s.wantEqual("BeginApproval after the TTL of texts", s.beginApproval("a", "x", "2"), "1")

	o = options
	o.ResponseTTL = time.Second
	s = beginWith(t, open, o)
	s.beginApproval("a", "x", "1")
	s.must(s.CompleteApproval(s.ctx, "a", "y", "1"))
	s.put("a", response("1", ""))
	expired := func() bool { return errors.Is(errorOf(s.Get(s.ctx, "a", "1")), store.ErrNotFound) }
	s.eventually("a response expires", expired)
	for _, name := range []string{"x", "y"} {
		s.wantEqual("BeginApproval after expiry", s.beginApproval("a", name, "2"), "2")
	}
}
