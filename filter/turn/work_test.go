package turn

import (
	"context"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/work"
)

// A turn is prepared in a job too, when the context has ended in which the request was
// decoded.
func TestPrepareInAJob(t *testing.T) {
	t.Parallel()
	rc, _ := newContext()
	decoding, end := context.WithCancel(t.Context())
	rc.Work = work.New(decoding, work.PerRequest)
	end()
	in := &Input{Items: []Item{{Kind: User, Text: "hi"}}}
	if _, err := rc.Prepare(t.Context(), in); err != nil {
		t.Error(err)
	}

	job, end := context.WithCancel(t.Context())
	end()
	if _, err := rc.Prepare(job, in); err == nil {
		t.Error("prepared in a job that has ended")
	}
}

// Tools that join take steps, in each try to truncate a conversation too.
func TestJoinsTakeSteps(t *testing.T) {
	t.Parallel()
	const joins = 20
	for _, truncate := range []bool{false, true} {
		rc, _ := newContext()
		in := &Input{Truncate: truncate}
		for range joins {
			in.Items = append(in.Items, Item{Kind: Tools, Tools: &JoinedTools{Namespaces: functions("f", "g", "h")}})
		}
		for range 200 {
			in.Items = append(in.Items, Item{Kind: User, Text: strings.Repeat("word ", 100)}, Item{Kind: Answer, Text: "yes"})
		}
		in.Items = append(in.Items, Item{Kind: User, Text: "hi"})
		model := *rc.Model
		model.ContextLength = 4000
		rc.Model = &model

		const once = joinSteps * 4 * joins
		rc.Work = work.New(t.Context(), once-1)
		if _, err := rc.Prepare(t.Context(), in); err == nil || err.Code != CodeTooCostly {
			t.Errorf("truncate %t, with too few steps to join: %v", truncate, err)
		}
		rc.Work = work.New(t.Context(), 2*once)
		if _, err := rc.Prepare(t.Context(), in); truncate && (err == nil || err.Code != CodeTooCostly) {
			t.Errorf("with too few steps to try: %v", err)
		}
		rc.Work = work.New(t.Context(), 10*once)
		if _, err := rc.Prepare(t.Context(), in); truncate && err != nil {
			t.Errorf("with enough steps: %v", err)
		}
	}
}

// A head that was rendered is not rendered again: it would be another one here.
func TestHeadIsRenderedOnce(t *testing.T) {
	t.Parallel()
	rc, _ := newContext()
	h := rc.head(&Input{Instructions: "Be brief."}, "", &toolset{})
	render := func(limit int, first opening) (string, *apierror.Error) {
		prompt, err := rendering{rc, limit}.begin(t.Context(), nil, h, first)
		return spell(t, prompt), err
	}
	want, err := render(1000, opening{instructions: "Be kind."})
	if err != nil || !strings.Contains(want, "Be brief.") {
		t.Fatalf("%q, %v", want, err)
	}
	h.instructions = "Be long."
	if got, err := render(1000, opening{instructions: "Be kind."}); err != nil || got != want {
		t.Errorf("it is rendered again: %q, %v", got, err)
	}
	if got, _ := render(1000, opening{}); !strings.Contains(got, "Be long.") {
		t.Errorf("another opening is not rendered: %q", got)
	}

	h.instructions = strings.Repeat("long ", 100_000)
	_, long := render(1000, opening{instructions: "x"})
	h.instructions = ""
	if _, again := render(1000, opening{instructions: "x"}); !tooLong(long) || again != long {
		t.Errorf("what was too long is rendered again: %v, %v", long, again)
	}
	if _, err := render(1001, opening{instructions: "x"}); err != nil {
		t.Errorf("with another limit: %v", err)
	}
}
