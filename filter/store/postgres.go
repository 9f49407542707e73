package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

const (
	// postgresConnections is the most connections of a process, unless the URL
	// has a parameter "pool_size".
	postgresConnections = 16
	postgresConnect     = 5 * time.Second
	postgresRetry       = 500 * time.Millisecond
	// postgresLock is the advisory lock held while the tables are created.
	postgresLock = 0x6861726d6f6e79
)

// OpenPostgres opens a store in a PostgreSQL database, which all replicas may
// share:
//
//	postgres://user:password@host:port/database?sslmode=verify-full&pool_size=16
//
// The parameter pool_size limits the connections. All others are parameters of
// libpq, such as search_path for the schema with the tables. OpenPostgres waits
// for a server that cannot be reached yet until ctx ends. Errors do not contain
// the URL's password.
func OpenPostgres(ctx context.Context, rawURL string, o Options) (*SQL, error) {
	config, connections, err := postgresConfig(rawURL)
	if err != nil {
		return nil, err
	}

	db := stdlib.OpenDB(*config)
	db.SetMaxOpenConns(connections)
	// By default two would stay, and under load each access would connect anew.
	db.SetMaxIdleConns(connections)
	db.SetConnMaxIdleTime(5 * time.Minute)
	s := &SQL{dialect: postgresDialect(), read: db, write: db, responseTTL: o.ResponseTTL, textTTL: o.TextTTL}
	if err := awaitPostgres(ctx, db, o.Unreached); err != nil {
		return nil, errors.Join(fmt.Errorf(
			"postgres: connect to %s: check the address, the user and that the server runs: %w", config.Host, err,
		), db.Close())
	}
	if err := s.migrate(ctx); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	s.start()
	return s, nil
}

func postgresConfig(rawURL string) (config *pgx.ConnConfig, connections int, err error) {
	malformed := errors.New("postgres: the URL does not have the form " +
		"postgres://user:password@host:port/database?parameter=value " +
		"(reserved characters in the password must be percent-encoded; sslmode and pool_size must be valid)")

	u, err := url.Parse(rawURL)
	if err != nil {
		// The error itself contains the URL, with its password.
		return nil, 0, malformed
	}

	// The size of the pool is ours: pgx would send it to the server as a parameter.
	query := u.Query()
	connections = postgresConnections
	if text := query.Get("pool_size"); text != "" {
		if connections, err = strconv.Atoi(text); err != nil || connections < 1 {
			return nil, 0, malformed
		}
	}

	query.Del("pool_size")
	u.RawQuery = query.Encode()
	if config, err = pgx.ParseConfig(u.String()); err != nil {
		return nil, 0, malformed
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = postgresConnect
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "envoy-harmony"
	}

	return config, connections, nil
}

// awaitPostgres waits until the server can be reached and has started. unreached, which may be
// nil, is called once if that is not so at first.
func awaitPostgres(ctx context.Context, db *sql.DB, unreached func(error)) error {
	for {
		err := db.PingContext(ctx)
		var refused *pgconn.PgError
		if err == nil || errors.As(err, &refused) && refused.Code != "57P03" {
			return err
		}
		if unreached != nil {
			unreached(err)
			unreached = nil
		}

		select {
		case <-ctx.Done():
			return err
		case <-time.After(postgresRetry):
		}
	}
}

func postgresDialect() dialect {
	return dialect{
		name: "postgres",
		now:  func() string { return "CAST(extract(epoch FROM statement_timestamp()) * 1000 AS BIGINT)" },
		phrase: strings.NewReplacer(
			"{blob}", "BYTEA",
			"{identity}", "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
			"{sequence}", "CREATE SEQUENCE harmony_written",
			"{written}", "nextval('harmony_written')",
			"{keys}", "(SELECT decode(value, 'hex') AS key FROM json_array_elements_text(CAST($1 AS JSON)) value) k",
			"{rows}", "(SELECT n, decode(value ->> 0, 'hex') AS a, "+
				"decode(value ->> 1, 'hex') AS b, decode(value ->> 2, 'hex') AS c "+
				"FROM json_array_elements(CAST($1 AS JSON)) WITH ORDINALITY AS element (value, n)) r",
			// With LIMIT the planner does not read a whole small table for each
			// response of a chain.
			"{previous}", "JOIN LATERAL (SELECT * FROM harmony_responses WHERE key = r.previous_key LIMIT 1)",
			"{, tenant}", "", "{, c}", "",
			"{share}", "FOR SHARE OF r",
			"{skip locked}", "FOR UPDATE SKIP LOCKED",
		),
		schema:  sqlSchema,
		lock:    "SELECT pg_advisory_xact_lock(" + strconv.Itoa(postgresLock) + ")",
		singles: true,
	}
}
