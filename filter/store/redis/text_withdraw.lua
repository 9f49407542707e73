-- Arguments: key, text
local key = base .. ARGV[2]
if redis.call('GET', key) == ARGV[3] then
	redis.call('DEL', key)
end
return 'OK'
