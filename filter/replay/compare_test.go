package replay

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
)

// An error differs by all of it that the client gets.
func TestCompareErrors(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(e *apierror.Error){
		"":            func(*apierror.Error) {},
		"code":        func(e *apierror.Error) { e.Code = "other" },
		"param":       func(e *apierror.Error) { e.Param = "other" },
		"retry after": func(e *apierror.Error) { e.RetryAfter = time.Hour },
		"overflow":    func(e *apierror.Error) { e.Overflow = &apierror.Overflow{Tokens: 3, Max: 2} },
		"message":     func(e *apierror.Error) { e.Message = "other" },
	} {
		made := apierror.New(http.StatusServiceUnavailable, "overloaded", "model", "Try again.")
		made.RetryAfter, made.Overflow = time.Second, &apierror.Overflow{Tokens: 2, Max: 1}
		s := newScript(&record.Record{Events: []record.Event{{Kind: record.KindRefused, Error: &record.Error{
			Status: made.Status, Type: made.Type, Code: made.Code, Param: made.Param, Message: made.Message, RetryAfter: made.RetryAfter, Overflow: &apierror.Overflow{Tokens: 2, Max: 1},
		}}}}, nil)
		change(made)
		s.made.refused = made
		if got := len(s.compare()) > 0; got != (name != "") {
			t.Errorf("another %q: found %t", name, got)
		}
	}
}

// Only what is sealed is compared without its bytes: texts that a model or a client has
// written under the same names are compared.
func TestCompareSealed(t *testing.T) {
	t.Parallel()
	sealed := "Ah" + strings.Repeat("k3-_", 40)
	stored := func(item string) string {
		return `["a",{"JSON":"` + base64.StdEncoding.EncodeToString([]byte(item)) + `"}]`
	}
	for _, c := range []struct {
		name, was, is string
		differ        bool
	}{
		{"another seal", `{"encrypted_content":"` + sealed + `"}`, `{"encrypted_content":"Av` + strings.Repeat("u_8p", 40) + `"}`, false},
		{"another seal of steps", `{"encrypted_content":"steps.` + sealed + `"}`, `{"encrypted_content":"steps.Av` + strings.Repeat("u_8p", 40) + `"}`, false},
		{"a seal of a longer text", `{"encrypted_content":"` + sealed + `"}`, `{"encrypted_content":"` + sealed + `kkkk"}`, true},
		{"a stored seal", stored(`{"encrypted_content":"` + sealed + `"}`), stored(`{"encrypted_content":"Av` + strings.Repeat("u_8p", 40) + `"}`), false},
		{"another stored text", stored(`{"text":"a","encrypted_content":"` + sealed + `"}`), stored(`{"text":"b","encrypted_content":"` + sealed + `"}`), true},
		{"a model's own data", `{"data":"` + strings.Repeat("word", 12) + `"}`, `{"data":"` + strings.Repeat("diff", 12) + `"}`, true},
	} {
		if _, differ := firstDifference([]byte(c.was), []byte(c.is)); differ != c.differ {
			t.Errorf("%s: differs %t", c.name, differ)
		}
	}
}
