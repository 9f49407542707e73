-- A chain is one hash, so that it has one TTL and is read with one command:
--
--   chain:<id of its first response>
--     epoch        incremented when a response is deleted or overwritten
--     index        when the first of the chain's index entries expires, Unix ms
--     h:<id>       header of a response, see below
--     b:<id>       body of a response (body.go)
--     i:<id>       ids of a response's items
--
-- Index entries lead to a chain:
--
--   response:<id>  id of the first response of the response's chain
--   item:<id>      sorted set of the responses with the item, in the order of writing
--   events:<id>    stream of a response's events; a batch with the last event n has the id n+1
--
-- Their TTL is a quarter longer than the chain's, so that they are not renewed each
-- time the chain is, but only once per quarter.

local index_ttl = ttl + math.ceil(ttl / 4)

-- The most responses in the sorted set of an item. The oldest are dropped.
local max_item_responses = 64

-- The members of a header.
local VERSION, PREVIOUS, CONVERSATION, LIVE, OWNER = 1, 2, 3, 4, 5
local LEASE = 6 -- end of the lease, Unix ms
local LAST, ENDED = 7, 8 -- number of the last event, and whether it ends the stream

local function chain_key(root) return base .. 'chain:' .. root end
local function response_key(id) return base .. 'response:' .. id end
local function item_key(id) return base .. 'item:' .. id end
local function events_key(id) return base .. 'events:' .. id end

-- header returns a response's header from a chain.
local function header(chain, id)
	local packed = redis.call('HGET', chain, 'h:' .. id)
	return packed and cmsgpack.unpack(packed)
end

local function set_header(chain, id, h)
	redis.call('HSET', chain, 'h:' .. id, cmsgpack.pack(h))
end

-- find returns the key of a response's chain, the response's header, and the id of
-- the chain's first response, or nil if there is no response.
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

-- renew restarts the TTL of a chain, and the TTLs of its index entries if they are due.
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
