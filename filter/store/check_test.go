package store

import (
	"context"
	"strings"
	"testing"
	"time"
)

// What Check accepts can be opened as far as the URL goes, and what it does not
// accept cannot. No error has the password.
func TestCheck(t *testing.T) {
	t.Parallel()
	for url, ok := range map[string]bool{
		"":                         true,
		"memory:":                  true,
		"sqlite:/nowhere/store.db": true,
		"sqlite:":                  false,
		"postgres://u:s3cret@h:5432/db?pool_size=3": true,
		"postgres://u:s3cret@h:5432/db?pool_size=0": false,
		"redis://u:s3cret@h:6379/1":                 true,
		"redis://h:99999":                           false,
		"redis://u:s3cret@h:6379/?nope=1":           false,
		"redis-sentinel://h?master_name=m&addr=a:1": true,
		"redis-sentinel://h":                        false,
		"redis-cluster://h:1":                       true,
		"redis-other://h:1":                         false,
		"ftp://u:s3cret@h":                          false,
		"memory":                                    false,
	} {
		err := Check(url)
		if (err == nil) != ok {
			t.Errorf("%s: error %v", url, err)
		}
		if err == nil {
			continue
		}
		if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: the error has the password: %v", url, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if s, err := Open(ctx, url, Options{ResponseTTL: time.Hour, TextTTL: time.Hour}); err == nil {
			t.Errorf("%s: it is opened", url)
			_ = s.Close()
		}
	}
}
