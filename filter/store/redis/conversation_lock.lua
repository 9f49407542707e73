-- Arguments: id, lock owner, lease in ms, '1' to renew a lock
local owner, lease = ARGV[3], tonumber(ARGV[4])
if not exists() then return 'NOTFOUND' end
if ARGV[5] == '1' and last_owner() ~= owner or locked_by_other(owner) then return 'CONFLICT' end
if lease > 0 then
	redis.call('HSET', conversation, 'lock_owner', owner, 'locked_until', now + lease)
elseif last_owner() == owner then
	unlock()
end
renew()
return 'OK'
