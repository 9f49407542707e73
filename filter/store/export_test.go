package store

// RedisTestURL is exported for tests in package store_test.
var RedisTestURL = redisTestURL

// MaxCounts is exported for tests in package store_test.
const MaxCounts = maxCounts

// Bytes returns a rough estimate of the memory that the data takes.
func (m *Memory) Bytes() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.texts.bytes + m.approvals.bytes + m.groups.bytes
}
