-- The beginning of every script: the keys of one tenant and their TTL.
--
-- KEYS[1] is the prefix of the tenant's keys. It contains the hash tag, so that in a
-- cluster they are all on one node. ARGV[1] is the TTL of the keys that the script
-- writes, in milliseconds.
--
-- A script replies with 'OK', 'NOTFOUND', 'CONFLICT' or a list.

local base = KEYS[1]
local ttl = tonumber(ARGV[1])

local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = math.floor(micros / 1000)

-- in_slices calls a function with the elements of a list, at most 1000 at a time.
local function in_slices(list, call)
	for first = 1, #list, 1000 do
		call(unpack(list, first, math.min(first + 999, #list)))
	end
end
