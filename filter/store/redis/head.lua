-- Arguments: id
local chain, h = find(ARGV[2])
if not chain then return 'NOTFOUND' end
renew(chain)
return {h[VERSION], redis.call('HGET', chain, 'epoch')}
