-- Arguments: key, text
local key = base .. ARGV[2]
local text = redis.call('GET', key)
if text then
	redis.call('PEXPIRE', key, ttl)
	return {text}
end
redis.call('SET', key, ARGV[3], 'PX', ttl)
return {ARGV[3]}
