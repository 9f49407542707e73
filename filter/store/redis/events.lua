-- Arguments: id, number of the last known event, most bytes of a page, most bytes of the reply
local id, after, page = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
if not find(id) then return {} end

-- Batches are read in steps, so that few are read that do not fit into the reply.
local step = 16
local reply, from = {}, (after + 1) .. '-0'
while true do
	local entries = redis.call('XRANGE', events_key(id), '(' .. from, '+', 'COUNT', step)
	for _, entry in ipairs(entries) do
		local batch = entry[2] -- 'first', value, 'end', value, 'sse', value
		-- One batch is a page, however large it is.
		if size + #batch[6] > page and #reply > 0 then return within(reply) end
		reply[#reply + 1] = {batch[2], entry[1]:match('^%d+') - 1, batch[4], counted(batch[6])}
		from = entry[1]
	end
	if #entries < step then return within(reply) end
end
