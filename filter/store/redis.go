package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// redisPrefix is the default prefix of all key names. The URL's parameter
// "prefix" replaces it.
const redisPrefix = "envoy-harmony:"

// maxRedisValue is the largest value that is written, in bytes. Redis accepts
// 512 MiB but blocks all clients while it copies a value.
const maxRedisValue = 128 << 20

// Redis is a [Store] in Redis or Valkey, which all replicas may share. Every
// call is one round trip, or two for what is large: a Lua script, which the server
// runs atomically. The scripts in the folder redis document the keys.
//
// All keys of a tenant have the same hash tag, so that they are on one node of
// a cluster.
type Redis struct {
	client      redis.UniversalClient
	prefix      string
	responseTTL time.Duration
	textTTL     time.Duration

	journals      notifier[string] // by the channel of the journal
	subscriptions *subscriptions
}

var _ Store = (*Redis)(nil)

// OpenRedis opens a store in the server that the URL names:
//
//	redis://[user:password@]host[:port][/database]           one server
//	redis-sentinel://…[/database]?master_name=…&addr=…        the primary that sentinels know
//	redis-cluster://…?addr=…                                  a cluster
//
// With rediss instead of redis, connections use TLS. The parameter prefix sets
// the prefix of all key names. All others are options of go-redis, such as
// pool_size. The server need not be reachable yet; while it is not, calls fail
// after a few seconds. Errors do not contain the URL's password.
func OpenRedis(_ context.Context, rawURL string, o Options) (*Redis, error) {
	prefix, settings, err := redisSettings(rawURL)
	if err != nil {
		return nil, redactRedis(rawURL, err)
	}

	newClient, err := redisClient(settings)
	if err != nil {
		return nil, redactRedis(rawURL, err)
	}

	client := newClient()
	s := &Redis{client: client, prefix: prefix, responseTTL: o.ResponseTTL, textTTL: o.TextTTL}
	s.subscriptions = newSubscriptions(client, s.journals.notify)
	return s, nil
}

// Close closes the connections.
func (s *Redis) Close() error {
	// First, since their connection is one of the client.
	s.subscriptions.close()
	return s.client.Close()
}

// redisSettings returns the URL's parameter prefix and the URL without it, with
// our defaults for options of go-redis that are not set.
func redisSettings(rawURL string) (prefix string, settings *url.URL, err error) {
	settings, err = url.Parse(rawURL)
	if err != nil {
		return "", nil, err
	}
	if port := settings.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > math.MaxUint16 {
			return "", nil, fmt.Errorf("the port %s is not a number from 1 to 65535", port)
		}
	}

	// They are options of the URL, so that an operator can set each of them otherwise.
	query := settings.Query()
	defaults := map[string]string{
		"prefix":       redisPrefix,
		"client_name":  "envoy-harmony",
		"dial_timeout": "2s",
		"max_retries":  "1",
		// The store does not use a separate pool for pipelines.
		"pipeline_pool_size": "-1",
	}

	for name, value := range defaults {
		if !query.Has(name) {
			query.Set(name, value)
		}
	}

	// The prefix is ours: go-redis rejects options that it does not know.
	prefix = query.Get("prefix")
	if strings.ContainsAny(prefix, "{}") {
		return "", nil, errors.New("the parameter prefix must not contain braces, which mark the hash tag")
	}

	query.Del("prefix")
	settings.RawQuery = query.Encode()
	return prefix, settings, nil
}

// redactRedis returns an error about a URL. It omits the text of err, which may
// quote the URL, if the URL may contain a password.
func redactRedis(rawURL string, err error) error {
	if strings.Contains(rawURL, "@") || strings.Contains(rawURL, "password") {
		return errors.New("redis: the URL does not have the form " +
			"redis[s][-sentinel|-cluster]://user:password@host:port/database?option=value " +
			"(reserved characters in the password must be percent-encoded, unknown options are errors)")
	}
	return fmt.Errorf("redis: URL: %w", err)
}

// checkRedis returns an error for a URL that [OpenRedis] would not accept.
func checkRedis(rawURL string) error {
	_, settings, err := redisSettings(rawURL)
	if err == nil {
		_, err = redisClient(settings)
	}
	if err != nil {
		return redactRedis(rawURL, err)
	}
	return nil
}

// redisClient reads the settings of a client, and returns what makes it.
func redisClient(settings *url.URL) (newClient func() redis.UniversalClient, err error) {
	// The client also returns what it would log.
	logging.Disable()
	var kind string
	settings.Scheme, kind, _ = strings.Cut(settings.Scheme, "-")
	// Maintenance notifications of managed servers are not used.
	maintenance := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}

	switch kind {
	case "":
		o, err := redis.ParseURL(settings.String())
		if err != nil {
			return nil, err
		}
		o.DialerRetries, o.ContextTimeoutEnabled, o.MaintNotificationsConfig = 1, true, maintenance
		return func() redis.UniversalClient { return redis.NewClient(o) }, nil
	case "sentinel":
		o, err := redis.ParseFailoverURL(settings.String())
		if err != nil {
			return nil, err
		}
		if o.MasterName == "" {
			return nil, errors.New("the parameter master_name is missing")
		}
		o.DialerRetries, o.ContextTimeoutEnabled = 1, true
		return func() redis.UniversalClient { return redis.NewFailoverClient(o) }, nil
	case "cluster":
		o, err := redis.ParseClusterURL(settings.String())
		if err != nil {
			return nil, err
		}
		o.DialerRetries, o.ContextTimeoutEnabled, o.MaintNotificationsConfig = 1, true, maintenance
		return func() redis.UniversalClient { return redis.NewClusterClient(o) }, nil
	default:
		return nil, errors.New("unknown scheme")
	}
}

// base returns the prefix of all keys of a tenant. The hash tag contains no
// braces and is not empty, not even for the tenant "", so that two tenants
// never share a key.
func (s *Redis) base(tenant string) string {
	return s.prefix + "{@" + url.QueryEscape(tenant) + "}:"
}

// run runs a script on a tenant's keys. It returns the list that the script
// replies with, or nil if it replies with OK.
func (s *Redis) run(
	ctx context.Context, script redisScript, tenant string, ttl time.Duration, args ...any,
) ([]any, error) {
	reply, err := s.eval(ctx, script, tenant, ttl, args...)
	if err != nil {
		return nil, err
	}
	return script.list(reply)
}

// read runs a script that reads, and has the most bytes of its reply as the last argument. It
// returns the list that the script replies with, and how many bytes the list has.
func (s *Redis) read(
	ctx context.Context, script redisScript, tenant string, ttl time.Duration, args ...any,
) (list []any, size int, err error) {
	size, err = sized(ctx, func(limit int) (int, error) {
		reply, err := s.eval(ctx, script, tenant, ttl, append(slices.Clip(args), limit)...)
		if err != nil {
			return 0, err
		}
		// The list has more than it may, and this is all that was sent.
		if size, ok := reply.(int64); ok {
			return int(size), nil
		}
		list, err = script.list(reply)
		return redisBytes(list), err
	})
	return list, size, err
}

// redisBytes is how many bytes the texts of a reply have.
func redisBytes(parts []any) (n int) {
	for _, part := range parts {
		switch part := part.(type) {
		case string:
			n += len(part)
		case []any:
			n += redisBytes(part)
		}
	}
	return n
}

// eval has the server evaluate a script on a tenant's keys, and returns the reply.
func (s *Redis) eval(
	ctx context.Context, script redisScript, tenant string, ttl time.Duration, args ...any,
) (any, error) {
	args = append([]any{"evalsha", script.hash, 1, s.base(tenant), ttl.Milliseconds()}, args...)
	// Servers forget scripts when they start. The script itself is sent only then.
	reply, err := s.process(ctx, script, args)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		args[0], args[1] = "eval", script.source
		reply, err = s.process(ctx, script, args)
	}
	if err != nil {
		return nil, fmt.Errorf("redis: %s: %w", script.name, err)
	}
	return reply, nil
}

func (s *Redis) process(ctx context.Context, script redisScript, args []any) (any, error) {
	cmd := redis.NewCmd(ctx, args...)
	if script.noRetry {
		// The command has the error.
		_ = s.client.Process(ctx, noRetryCmd{cmd})
	} else {
		_ = s.client.Process(ctx, cmd)
	}
	return cmd.Result()
}

// noRetryCmd is a command that the client does not retry.
type noRetryCmd struct{ *redis.Cmd }

func (noRetryCmd) NoRetry() bool { return true }

// redisScript is a Lua script with its name for error messages.
type redisScript struct {
	name, source, hash string
	// noRetry must be set if the script is not idempotent: a retry after a lost
	// reply would return a conflict with the script's own result.
	noRetry bool
}

func newRedisScript(name string, parts ...string) redisScript {
	source := strings.Join(parts, "\n")
	return redisScript{name: name, source: source, hash: redis.NewScript(source).Hash()}
}

func newRedisNoRetryScript(name string, parts ...string) redisScript {
	script := newRedisScript(name, parts...)
	script.noRetry = true
	return script
}

// list converts the reply of a script into a list or an error.
func (script redisScript) list(reply any) ([]any, error) {
	switch reply := reply.(type) {
	case []any:
		return reply, nil
	case string:
		switch reply {
		case "OK":
			return nil, nil
		case "NOTFOUND":
			return nil, ErrNotFound
		case "CONFLICT":
			return nil, ErrConflict
		}
	}

	return nil, fmt.Errorf("redis: %s: unexpected reply", script.name)
}

// redisReply reads the elements of a script's reply one after another. After an
// element of an unexpected type, err is set and all further elements are zero
// values.
type redisReply struct {
	parts []any
	err   error
}

var errRedisReply = fmt.Errorf("redis: %w", errBody)

func (r *redisReply) next() any {
	if len(r.parts) == 0 {
		r.err = errRedisReply
		return nil
	}
	part := r.parts[0]
	r.parts = r.parts[1:]
	return part
}

func (r *redisReply) string() string {
	s, ok := r.next().(string)
	if !ok {
		r.err = errRedisReply
	}
	return s
}

// bytes is string without a copy, which would be one more of all that is read. Nobody else has the
// string, and callers of a store do not change what it returns.
func (r *redisReply) bytes() []byte {
	s := r.string()
	return unsafe.Slice(unsafe.StringData(s), len(s))
}

func (r *redisReply) int() int64 {
	n, ok := r.next().(int64)
	if !ok {
		r.err = errRedisReply
	}
	return n
}

func (r *redisReply) list() redisReply {
	parts, ok := r.next().([]any)
	if !ok {
		r.err = errRedisReply
	}
	return redisReply{parts: parts}
}
