-- Arguments: for each charge name, length of the windows in milliseconds, amount, limit
-- or 0, number of the window or 0
--
-- The key budget:NAME is a hash of the window's number n and the count u. It expires
-- with the window. A clock that is set back does not begin an earlier window.
local charges, ok = {}, 1
for i = 2, #ARGV, 5 do
	local c = {
		key = base .. 'budget:' .. ARGV[i], length = tonumber(ARGV[i + 1]), amount = tonumber(ARGV[i + 2]),
	}
	local limit, number = tonumber(ARGV[i + 3]), tonumber(ARGV[i + 4])
	c.number, c.before = math.floor(now / c.length), 0
	local stored = redis.call('HMGET', c.key, 'n', 'u')
	if stored[1] and tonumber(stored[1]) >= c.number then
		c.number, c.before = tonumber(stored[1]), tonumber(stored[2])
	end
	c.after = c.before
	if number == 0 or number == c.number then
		c.after = c.before + c.amount
	end
	if limit > 0 and c.after > limit then
		ok = 0
	end
	charges[#charges + 1] = c
end
local reply = {ok}
for _, c in ipairs(charges) do
	local used, left = c.before, (c.number + 1) * c.length - now
	if ok == 1 then
		used = c.after
		redis.call('HSET', c.key, 'n', string.format('%.0f', c.number), 'u', string.format('%.0f', used))
		redis.call('PEXPIRE', c.key, left)
	end
	reply[#reply + 1] = used
	reply[#reply + 1] = c.number
	reply[#reply + 1] = left
end
return reply
