package prompt

import (
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/toolset"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// A head that was rendered is not rendered again: it would be another one here.
func TestHeadIsRenderedOnce(t *testing.T) {
	t.Parallel()
	rc := &request.Context{Env: &request.Env{Renderer: harmony.NewRenderer()}, Model: &request.Model{}}
	h := newHead(rc, &request.Input{Instructions: "Be brief."}, "", &toolset.Set{})
	render := func(limit int, first opening) (string, *apierror.Error) {
		tokens, err := rendering{rc, limit}.begin(t.Context(), nil, h, first)
		text, _ := harmony.AppendDecode(nil, tokens)
		return string(text), err
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
