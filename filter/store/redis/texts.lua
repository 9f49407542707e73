-- Arguments: names, most bytes of the reply. The reply has for each name its text, or nothing.
local keys, reply = {}, {}
for i = 2, #ARGV - 1 do keys[i - 1] = base .. 'text:' .. ARGV[i] end
in_slices(keys, function(...)
	for _, text in ipairs(redis.call('MGET', ...)) do reply[#reply + 1] = counted(text) end
end)
return within(reply)
