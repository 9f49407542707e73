package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// redisPrefix begins the names of all keys, unless the URL has a parameter
// "prefix".
const redisPrefix = "envoy-harmony:"

// maxRedisValue is the largest value that is written, in bytes. Redis itself
// takes 512 MiB, but serves nobody else while it copies.
const maxRedisValue = 128 << 20

// Redis keeps everything in Redis or Valkey, shared by all replicas that use
// it. Every call is one round trip: a Lua script that the server runs as a
// whole. The scripts, in the folder redis, say which keys there are.
//
// The names of a tenant's keys have one hash tag, so that in a cluster all of
// them are on one node.
type Redis struct {
	client      redis.UniversalClient
	prefix      string
	responseTTL time.Duration
	textTTL     time.Duration

	bell          bell[string] // rings for the channels of journals
	subscriptions *subscriptions
}

var _ Store = (*Redis)(nil)

// OpenRedis makes a store of the server that the URL names:
//
//	redis://[user:password@]host[:port][/database]           one server
//	redis-sentinel://…[/database]?master_name=…&addr=…        the primary that sentinels know
//	redis-cluster://…?addr=…                                  a cluster
//
// With rediss in place of redis, over TLS. The parameter prefix changes what
// the names of all keys begin with; the others are those of go-redis, such as
// pool_size. The server need not be there yet: until it is, and whenever it is
// not, calls fail after a few seconds at the most. An error never has the URL's
// password.
func OpenRedis(_ context.Context, rawURL string, o Options) (*Redis, error) {
	prefix, settings, err := redisSettings(rawURL)
	if err != nil {
		return nil, redactRedis(rawURL, err)
	}
	client, err := newRedisClient(settings)
	if err != nil {
		return nil, redactRedis(rawURL, err)
	}
	s := &Redis{client: client, prefix: prefix, responseTTL: o.ResponseTTL, textTTL: o.TextTTL}
	s.subscriptions = newSubscriptions(client, s.bell.ring)
	return s, nil
}

// Close gives up the connections.
func (s *Redis) Close() error {
	s.subscriptions.close()
	return s.client.Close()
}

// redisSettings takes the parameter prefix, which go-redis does not know, out of
// the URL, and adds our defaults to those it does.
func redisSettings(rawURL string) (prefix string, settings *url.URL, err error) {
	settings, err = url.Parse(rawURL)
	if err != nil {
		return "", nil, err
	}
	if port := settings.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > math.MaxUint16 {
			return "", nil, fmt.Errorf("the port %s is none", port)
		}
	}
	query := settings.Query()
	defaults := map[string]string{
		"prefix":       redisPrefix,
		"client_name":  "envoy-harmony",
		"dial_timeout": "2s",
		"max_retries":  "1",
		// One pool is enough.
		"pipeline_pool_size": "-1",
	}
	for name, value := range defaults {
		if !query.Has(name) {
			query.Set(name, value)
		}
	}
	prefix = query.Get("prefix")
	if strings.ContainsAny(prefix, "{}") {
		return "", nil, errors.New("the parameter prefix must not have braces, they mark the hash tag")
	}
	query.Del("prefix")
	settings.RawQuery = query.Encode()
	return prefix, settings, nil
}

// redactRedis keeps what an error about a URL quotes of it to itself if there
// may be a password in it.
func redactRedis(rawURL string, err error) error {
	if strings.Contains(rawURL, "@") || strings.Contains(rawURL, "password") {
		return errors.New("redis: the URL is none of redis[s][-sentinel|-cluster]://user:password@host:port/database?option=value " +
			"(reserved characters in the password must be percent-encoded, unknown options are refused)")
	}
	return fmt.Errorf("redis: URL: %w", err)
}

func newRedisClient(settings *url.URL) (redis.UniversalClient, error) {
	logging.Disable() // what go-redis would print is in the errors that calls give
	var kind string
	settings.Scheme, kind, _ = strings.Cut(settings.Scheme, "-")
	// Managed servers need not announce their maintenance.
	maintenance := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}

	switch kind {
	case "":
		o, err := redis.ParseURL(settings.String())
		if err != nil {
			return nil, err
		}
		o.DialerRetries, o.ContextTimeoutEnabled, o.MaintNotificationsConfig = 1, true, maintenance
		return redis.NewClient(o), nil
	case "sentinel":
		o, err := redis.ParseFailoverURL(settings.String())
		if err != nil {
			return nil, err
		}
		if o.MasterName == "" {
			return nil, errors.New("the parameter master_name is missing")
		}
		o.DialerRetries, o.ContextTimeoutEnabled = 1, true
		return redis.NewFailoverClient(o), nil
	case "cluster":
		o, err := redis.ParseClusterURL(settings.String())
		if err != nil {
			return nil, err
		}
		o.DialerRetries, o.ContextTimeoutEnabled, o.MaintNotificationsConfig = 1, true, maintenance
		return redis.NewClusterClient(o), nil
	default:
		return nil, errors.New("unknown scheme")
	}
}

// base begins the names of all keys of a tenant. Its hash tag has no brace in
// it, and is not empty for the empty tenant: two tenants never share a key.
func (s *Redis) base(tenant string) string {
	return s.prefix + "{@" + url.QueryEscape(tenant) + "}:"
}

// run runs a script on a tenant's keys. What the script replies is a list, or
// nil where it has nothing to tell.
func (s *Redis) run(ctx context.Context, script redisScript, tenant string, ttl time.Duration, args ...any) ([]any, error) {
	args = append([]any{"evalsha", script.hash, 1, s.base(tenant), ttl.Milliseconds()}, args...)
	reply, err := s.process(ctx, script, args)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		args[0], args[1] = "eval", script.source
		reply, err = s.process(ctx, script, args)
	}
	if err != nil {
		return nil, fmt.Errorf("redis: %s: %w", script.name, err)
	}
	return script.list(reply)
}

func (s *Redis) process(ctx context.Context, script redisScript, args []any) (any, error) {
	cmd := redis.NewCmd(ctx, args...)
	if script.once {
		_ = s.client.Process(ctx, onceCmd{cmd}) // the error is the command's, too
	} else {
		_ = s.client.Process(ctx, cmd)
	}
	return cmd.Result()
}

// onceCmd is a command that the client does not send again by itself.
type onceCmd struct{ *redis.Cmd }

func (onceCmd) NoRetry() bool { return true }

// redisScript is a script and what it does, for errors.
type redisScript struct {
	name, source, hash string
	// once says that the script finds its own work in its way if it runs
	// again, as it would after its reply got lost.
	once bool
}

func newRedisScript(name string, parts ...string) redisScript {
	source := strings.Join(parts, "\n")
	return redisScript{name: name, source: source, hash: redis.NewScript(source).Hash()}
}

func newRedisOnceScript(name string, parts ...string) redisScript {
	script := newRedisScript(name, parts...)
	script.once = true
	return script
}

// list tells the replies of scripts apart.
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

// redisReply reads the parts of a script's reply one after the other. Once one
// of them is not as expected, all that follow are empty and err is set.
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
