package apierror

import (
	"strings"
	"testing"
)

// An error of the server in a stream has the words by which clients try again; one of
// the request has not.
func TestInStream(t *testing.T) {
	t.Parallel()
	for status, again := range map[int]bool{400: false, 409: false, 500: true, 502: true, 504: true} {
		err := New(status, "code", "param", "It broke.")
		got := err.InStream().InStream()
		if strings.Count(got.Message, "server error") != map[bool]int{true: 1}[again] || strings.Contains(got.Message, "connection") != again || !strings.HasPrefix(got.Message, "It broke.") {
			t.Errorf("%d: %q", status, got.Message)
		}
		if err.Message != "It broke." || got.Status != status || got.Code != "code" || got.Param != "param" {
			t.Errorf("%d: %+v of %+v", status, got, err)
		}
	}
}
