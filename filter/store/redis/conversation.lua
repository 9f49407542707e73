-- A conversation is a hash and, if it has items, a sorted set:
--
--   conversation:<id>
--     created, metadata
--     lock_owner       the only one that may add items
--     locked_until     end of the lock's lease, Unix ms
--     next             position of the last added item
--     items            number of items
--     i:<id>           an item
--   order:<id>         ids of the items by position

local id = ARGV[2]
local conversation, order = base .. 'conversation:' .. id, base .. 'order:' .. id

-- exists reports whether the conversation exists. If the server has evicted one of its
-- keys, exists deletes the other.
local function exists()
	local found = redis.call('HMGET', conversation, 'created', 'items')
	if not found[1] then return false end
	if tonumber(found[2] or 0) == redis.call('ZCARD', order) then return true end
	redis.call('DEL', conversation, order)
	return false
end

local function renew()
	redis.call('PEXPIRE', conversation, ttl)
	redis.call('PEXPIRE', order, ttl)
end

-- last_owner returns the last lock owner, even if the lease has expired.
local function last_owner() return redis.call('HGET', conversation, 'lock_owner') end

local function unlock() redis.call('HDEL', conversation, 'lock_owner', 'locked_until') end

-- locked_by_other reports whether another owner has locked the conversation.
local function locked_by_other(owner)
	local lock = redis.call('HMGET', conversation, 'lock_owner', 'locked_until')
	return lock[1] and lock[1] ~= owner and tonumber(lock[2]) > now
end
