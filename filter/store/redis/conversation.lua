-- A conversation is a hash and, if it has items, their order:
--
--   conversation:<id>
--     created, metadata
--     holder, held     who may add items, until when (Unix ms)
--     next             place of the next item
--     items            how many there are
--     i:<id>           an item
--   order:<id>         sorted set of the items' ids

local id = ARGV[2]
local conversation, order = base .. 'conversation:' .. id, base .. 'order:' .. id

-- exists tells whether there is the conversation. One of which the server has
-- evicted a part is gone.
local function exists()
	local is = redis.call('HMGET', conversation, 'created', 'items')
	if not is[1] then return false end
	if tonumber(is[2] or 0) == redis.call('ZCARD', order) then return true end
	redis.call('DEL', conversation, order)
	return false
end

local function renew()
	redis.call('PEXPIRE', conversation, ttl)
	redis.call('PEXPIRE', order, ttl)
end

-- last_holder is who was the last to hold the conversation, unless it has been let go.
local function last_holder() return redis.call('HGET', conversation, 'holder') end

local function let_go() redis.call('HDEL', conversation, 'holder', 'held') end

-- held_by_other tells whether another than holder holds the conversation.
local function held_by_other(holder)
	local held = redis.call('HMGET', conversation, 'holder', 'held')
	return held[1] and held[1] ~= holder and tonumber(held[2]) > now
end
