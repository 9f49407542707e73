-- Arguments: id
local id = ARGV[2]
local chain = find(id)
if not chain then return 'NOTFOUND' end

for _, item in ipairs(items_of(chain, id)) do redis.call('ZREM', item_key(item), id) end
redis.call('DEL', response_key(id), events_key(id))
redis.call('HDEL', chain, 'h:' .. id, 'b:' .. id, 'i:' .. id)
redis.call('HINCRBY', chain, 'epoch', 1)
if redis.call('HLEN', chain) == 2 then redis.call('DEL', chain) end
return 'OK'
