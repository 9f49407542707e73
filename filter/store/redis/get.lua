-- Arguments: id, '1' to get the responses that it continues too, most bytes of the reply
local id, all = ARGV[2], ARGV[3] == '1'
local chain, h = find(id)
if not chain then return 'NOTFOUND' end

local ids, headers, seen = {}, {}, {}
while id ~= '' do
	if not h or seen[id] then return 'NOTFOUND' end
	ids[#ids + 1], headers[#headers + 1], seen[id] = id, h, true
	if not all then break end
	id = h[PREVIOUS]
	h = id ~= '' and header(chain, id)
end
if all then renew(chain) end

local fields, bodies = {}, {}
for i, one in ipairs(ids) do fields[i] = 'b:' .. one end
in_slices(fields, function(...)
	for _, body in ipairs(redis.call('HMGET', chain, ...)) do bodies[#bodies + 1] = counted(body) end
end)

local reply = {}
for i = #ids, 1, -1 do
	local r = headers[i]
	local lapsed = r[LIVE] and r[LEASE] <= now
	reply[#reply + 1] = {ids[i], r[VERSION], r[PREVIOUS], r[CONVERSATION],
		r[LIVE] and 1 or 0, r[OWNER], lapsed and 1 or 0, bodies[i]}
end
return within(reply)
