-- A chain is one hash, so that it has one age and is read at once:
--
--   chain:<id of its first response>
--     epoch        changes when a response is deleted or overwritten
--     index        when the first of its index entries expires, Unix ms
--     h:<id>       header of a response, see below
--     b:<id>       its body (body.go)
--     i:<id>       the ids of its items
--
-- What leads to it are entries of an index:
--
--   response:<id>  the id of its chain's first response
--   item:<id>      sorted set of the responses that have the item, the last written last
--   events:<id>    stream of a response's events, the batch up to event n under the id n+1
--
-- They live a quarter longer than the chain, so that they need not be renewed
-- whenever the chain is, only once in that quarter.

local index_ttl = ttl + math.ceil(ttl / 4)

-- The newest responses that are remembered of an item.
local holders = 64

-- The members of a header.
local VERSION, PREVIOUS, CONVERSATION, LIVE, OWNER = 1, 2, 3, 4, 5
local LEASE = 6 -- until when, Unix ms
local LAST, ENDED = 7, 8 -- number of the last event, whether it ends the stream

local function chain_key(root) return base .. 'chain:' .. root end
local function response_key(id) return base .. 'response:' .. id end
local function item_key(id) return base .. 'item:' .. id end
local function events_key(id) return base .. 'events:' .. id end

-- header reads a response's header out of a chain.
local function header(chain, id)
	local packed = redis.call('HGET', chain, 'h:' .. id)
	return packed and cmsgpack.unpack(packed)
end

local function set_header(chain, id, h)
	redis.call('HSET', chain, 'h:' .. id, cmsgpack.pack(h))
end

-- find gives the chain of a response, its header, and the chain's first id.
local function find(id)
	local root = redis.call('GET', response_key(id))
	if not root then return nil end
	local chain = chain_key(root)
	local h = header(chain, id)
	if not h then return nil end
	return chain, h, root
end

local function items_of(chain, id)
	local packed = redis.call('HGET', chain, 'i:' .. id)
	return packed and cmsgpack.unpack(packed) or {}
end

-- renew begins the age of a chain anew, and that of its index when it is due.
local function renew(chain)
	redis.call('PEXPIRE', chain, ttl)
	if now + ttl <= tonumber(redis.call('HGET', chain, 'index')) then return end
	for _, field in ipairs(redis.call('HKEYS', chain)) do
		local kind, id = field:sub(1, 2), field:sub(3)
		if kind == 'h:' then
			redis.call('PEXPIRE', response_key(id), index_ttl)
			redis.call('PEXPIRE', events_key(id), index_ttl)
		elseif kind == 'i:' then
			for _, item in ipairs(items_of(chain, id)) do
				redis.call('PEXPIRE', item_key(item), index_ttl)
			end
		end
	end
	redis.call('HSET', chain, 'index', now + index_ttl)
end
