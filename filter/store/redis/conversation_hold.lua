-- id, holder, lease in ms, '1' to renew what is held
local holder, lease = ARGV[3], tonumber(ARGV[4])
if not exists() then return 'NOTFOUND' end
if ARGV[5] == '1' and last_holder() ~= holder or held_by_other(holder) then return 'CONFLICT' end
if lease > 0 then
	redis.call('HSET', conversation, 'holder', holder, 'held', now + lease)
elseif last_holder() == holder then
	let_go()
end
renew()
return 'OK'
