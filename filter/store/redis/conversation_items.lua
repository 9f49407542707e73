-- Arguments: id, id of the item before the page or '', most items (0: any number), '1' for
-- descending order, most bytes of the reply. The reply contains the id and the JSON of each item.
local after, most, descending = ARGV[3], tonumber(ARGV[4]), ARGV[5] == '1'
if not exists() then return 'NOTFOUND' end

local first = 0
if after ~= '' then
	local rank = redis.call(descending and 'ZREVRANK' or 'ZRANK', order, after)
	if not rank then return 'NOTFOUND' end
	first = rank + 1
end
local last = most > 0 and first + most - 1 or -1
local ids = redis.call(descending and 'ZREVRANGE' or 'ZRANGE', order, first, last)
renew()

local fields, reply = {}, {}
for i, item in ipairs(ids) do fields[i] = 'i:' .. item end
in_slices(fields, function(...)
	for _, json in ipairs(redis.call('HMGET', conversation, ...)) do
		reply[#reply + 1] = ids[#reply / 2 + 1]
		reply[#reply + 1] = counted(json)
	end
end)
return within(reply)
