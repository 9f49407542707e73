package store

// RedisTestURL is for tests outside of the package.
var RedisTestURL = redisTestURL
