package store

import (
	"context"
	"errors"
	"strings"
	"time"
)

// Open opens the store that a URL names and creates its tables if needed:
//
//	memory: (or "")                      in the memory of the process
//	sqlite:PATH                          in a file
//	postgres://user:password@host/db     in PostgreSQL
//	redis://user:password@host:port      in Redis; see [OpenRedis] for other forms
//
// Errors say what to change. They do not contain the URL's password.
func Open(ctx context.Context, url string, o Options) (Store, error) {
	if o.ResponseTTL < time.Millisecond || o.TextTTL < time.Millisecond {
		return nil, errors.New("the TTLs of responses and of texts must be positive")
	}
	scheme, _, _ := strings.Cut(url, ":")
	switch scheme = strings.ToLower(scheme); {
	case url == "", url == "memory:":
		return NewMemory(o), nil
	case scheme == "sqlite":
		return orNil(OpenSQLite(ctx, url[len("sqlite:"):], o))
	case scheme == "postgres", scheme == "postgresql":
		return orNil(OpenPostgres(ctx, url, o))
	case strings.HasPrefix(scheme, "redis"):
		return orNil(OpenRedis(ctx, url, o))
	}
	return nil, errScheme
}

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

var errScheme = errors.New("the URL of the store has an unknown scheme: write memory:, sqlite:PATH, redis://… or postgres://…")

// orNil returns s, or a nil interface if there is an error.
func orNil[S Store](s S, err error) (Store, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}
