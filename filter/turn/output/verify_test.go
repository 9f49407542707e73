package output

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/filter/work"
)

// TestAloneChecks shows that what no engine enforces is checked as far as the request's
// account goes, and that the check says when it does not.
func TestAloneChecks(t *testing.T) {
	t.Parallel()
	v := verifier{answer: constraint.AnswerRegex("^a*" + strings.Repeat("a{0,128}", 7) + "b$"), alone: true}
	text := []byte(strings.Repeat("a", 4000))
	if ok, err := v.answerFollows(work.New(context.Background(), work.PerRequest), append(text, 'b')); !ok || err != nil {
		t.Errorf("%t, %v", ok, err)
	}
	if ok, err := v.answerFollows(work.New(context.Background(), 500_000), text); ok || !errors.Is(err, work.ErrExceeded) {
		t.Errorf("%t, %v", ok, err)
	}
}
