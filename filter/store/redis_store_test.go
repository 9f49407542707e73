package store_test

import (
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/store/storetest"
)

// redisAt returns a function that opens stores at the server that an
// environment variable names. All stores opened by one Open share their data.
func redisAt(variable string) func(testing.TB) storetest.Open {
	return func(t testing.TB) storetest.Open {
		u := store.RedisTestURL(t, variable)
		return func(t testing.TB, o store.Options) store.Store { return openURL(t, u, o) }
	}
}

// openRedis opens stores that do not share data.
func openRedis(variable string) storetest.Open {
	return func(t testing.TB, o store.Options) store.Store { return redisAt(variable)(t)(t, o) }
}

func TestRedis(t *testing.T)        { storetest.Test(t, openRedis("STORE_TEST_REDIS")) }
func TestRedisCluster(t *testing.T) { storetest.Test(t, openRedis("STORE_TEST_REDIS_CLUSTER")) }

// TestRedisRoomFirst is not parallel: allocations are counted.
func TestRedisRoomFirst(t *testing.T) {
	storetest.TestRoomFirst(t, openRedis("STORE_TEST_REDIS"))
}

func TestRedisShared(t *testing.T) { storetest.TestShared(t, redisAt("STORE_TEST_REDIS")) }

func TestRedisClusterShared(t *testing.T) {
	storetest.TestShared(t, redisAt("STORE_TEST_REDIS_CLUSTER"))
}

func BenchmarkRedis(b *testing.B) { storetest.Benchmark(b, openRedis("STORE_TEST_REDIS")) }
