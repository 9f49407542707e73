package apierror_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

func ExampleError_JSON() {
	err := apierror.Invalid("temperature", "temperature is %g. It must be from 0 to 2.", 3.0)
	fmt.Println(err.Status, string(err.JSON()))
	// Output: 400 {"error":{"message":"temperature is 3. It must be from 0 to 2.","type":"invalid_request_error","param":"temperature","code":null}}
}

func TestTypeFollowsFromTheStatus(t *testing.T) {
	for status, want := range map[int]string{
		http.StatusBadRequest:            apierror.TypeInvalidRequest,
		http.StatusUnauthorized:          apierror.TypeAuthentication,
		http.StatusForbidden:             apierror.TypePermission,
		http.StatusNotFound:              apierror.TypeNotFound,
		http.StatusRequestEntityTooLarge: apierror.TypeInvalidRequest,
		http.StatusTooManyRequests:       apierror.TypeRateLimit,
		http.StatusBadGateway:            apierror.TypeServer,
	} {
		if got := apierror.New(status, "", "", "x").Type; got != want {
			t.Errorf("type of status %d = %s, want %s", status, got, want)
		}
	}
}

func TestWithKeepsTheCauseAndTheOriginal(t *testing.T) {
	cause := errors.New("inside")
	plain := apierror.Invalid("", "outside")
	err := plain.With(cause)
	if !errors.Is(err, cause) || plain.Cause != nil || err.Error() != "400 invalid_request_error: outside" {
		t.Errorf("%v with cause %v, original's cause %v", err, err.Cause, plain.Cause)
	}
}
