-- Arguments: id
local chain, h = find(ARGV[2])
if not chain then return 'NOTFOUND' end
renew(chain)
local live = h[LIVE] and h[LEASE] > now
return {h[VERSION], redis.call('HGET', chain, 'epoch'), live and 1 or 0}
