-- Arguments: id, version, previous, conversation, live, owner, lease in ms, body, item ids...
local id, version, previous = ARGV[2], tonumber(ARGV[3]), ARGV[4]
local chain, stored, root = find(id)

if stored then
	if stored[VERSION] ~= version - 1 then return 'CONFLICT' end
	redis.call('HINCRBY', chain, 'epoch', 1)
else
	if version ~= 1 then return 'CONFLICT' end
	if previous ~= '' then
		local _
		chain, _, root = find(previous)
	end
	if not chain then chain, root = chain_key(id), id end
	redis.call('HSETNX', chain, 'epoch', micros)
	redis.call('DEL', events_key(id))
end

set_header(chain, id, {version, previous, ARGV[5], ARGV[6] == '1', ARGV[7], now + tonumber(ARGV[8]),
	stored and stored[LAST] or -1, stored and stored[ENDED] or false})
redis.call('HSET', chain, 'b:' .. id, ARGV[9])

local items, has = {}, {}
for i = 10, #ARGV do
	local item = item_key(ARGV[i])
	items[#items + 1] = ARGV[i]
	has[ARGV[i]] = true
	redis.call('ZADD', item, micros, id)
	redis.call('ZREMRANGEBYRANK', item, 0, -1 - max_item_responses)
	redis.call('PEXPIRE', item, index_ttl)
end
for _, item in ipairs(items_of(chain, id)) do
	if not has[item] then redis.call('ZREM', item_key(item), id) end
end
redis.call('HSET', chain, 'i:' .. id, cmsgpack.pack(items))

redis.call('SET', response_key(id), root, 'PX', index_ttl)
local index = tonumber(redis.call('HGET', chain, 'index') or math.huge)
redis.call('HSET', chain, 'index', math.min(index, now + index_ttl))
renew(chain)
return 'OK'
