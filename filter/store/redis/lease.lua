-- Arguments: owner, lease in ms, ids. The reply contains the ids of responses whose
-- lease cannot be renewed.
local owner, lease, lost = ARGV[2], tonumber(ARGV[3]), {}
for i = 4, #ARGV do
	local id = ARGV[i]
	local chain, h = find(id)
	if chain and h[LIVE] and h[OWNER] == owner then
		h[LEASE] = now + lease
		set_header(chain, id, h)
		renew(chain)
	else
		lost[#lost + 1] = id
	end
end
return lost
