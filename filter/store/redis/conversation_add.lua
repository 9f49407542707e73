-- Arguments: id, lock owner or '', then the id and the JSON of each item
local owner = ARGV[3]
if not exists() then return 'NOTFOUND' end
if owner ~= '' and last_owner() ~= owner or locked_by_other(owner) then return 'CONFLICT' end
local has = {}
for i = 4, #ARGV, 2 do
	local item = ARGV[i]
	if has[item] or redis.call('HEXISTS', conversation, 'i:' .. item) == 1 then return 'CONFLICT' end
	has[item] = true
end
for i = 4, #ARGV, 2 do
	redis.call('HSET', conversation, 'i:' .. ARGV[i], ARGV[i + 1])
	redis.call('ZADD', order, redis.call('HINCRBY', conversation, 'next', 1), ARGV[i])
	redis.call('HINCRBY', conversation, 'items', 1)
end
if owner == '' then unlock() end
renew()
return 'OK'
