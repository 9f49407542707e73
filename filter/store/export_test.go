package store

// RedisTestURL is for tests outside of the package.
var RedisTestURL = redisTestURL

// Bytes is how much memory the store takes, roughly.
func (m *Memory) Bytes() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.texts.bytes + m.claims.bytes + m.groups.bytes
}
