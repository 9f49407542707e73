package store

import (
	"errors"
	"strings"
)

// Check returns an error for a URL that [Open] would not accept, without opening
// the store. It contains no password.
func Check(url string) error {
	var err error
	scheme, path, _ := strings.Cut(url, ":")
	switch scheme = strings.ToLower(scheme); {
	case url == "", url == "memory:":
	case scheme == "sqlite":
		err = checkSQLitePath(path)
	case scheme == "postgres", scheme == "postgresql":
		_, _, err = postgresConfig(url)
	case strings.HasPrefix(scheme, "redis"):
		err = checkRedis(url)
	default:
		err = errScheme
	}

	return err
}

var errScheme = errors.New(
	"the URL of the store has an unknown scheme: write memory:, sqlite:PATH, redis://… or postgres://…",
)
