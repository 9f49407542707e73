-- Arguments: item ids, most bytes of the reply. The reply contains a list for each response
-- that has some of the items: its body, then the ids of the items.
local reply, place = {}, {}
for i = 2, #ARGV - 1 do
	local item = ARGV[i]
	for _, id in ipairs(redis.call('ZREVRANGE', item_key(item), 0, -1)) do
		local chain = find(id)
		if chain then
			if not place[id] then
				reply[#reply + 1] = {counted(redis.call('HGET', chain, 'b:' .. id))}
				place[id] = #reply
			end
			table.insert(reply[place[id]], item)
			break
		end
	end
end
return within(reply)
