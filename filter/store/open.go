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

// System returns the name of the database behind a store's URL, as OpenTelemetry's
// db.system.name has it: sqlite, postgresql or redis; "" for a store in memory.
func System(url string) string {
	scheme, _, _ := strings.Cut(url, ":")
	switch scheme = strings.ToLower(scheme); {
	case scheme == "sqlite":
		return "sqlite"
	case scheme == "postgres", scheme == "postgresql":
		return "postgresql"
	case strings.HasPrefix(scheme, "redis"):
		return "redis"
	}
	return ""
}

// orNil returns s, or a nil interface if there is an error.
func orNil[S Store](s S, err error) (Store, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}
