-- The beginning of every script: the keys of one tenant and the ages of what
-- they hold.
--
-- KEYS[1] begins the names of all keys of the tenant and has the hash tag, so
-- that in a cluster they are on one node. ARGV[1] is the age of what the script
-- writes, in milliseconds.
--
-- A script replies with 'OK', 'NOTFOUND', 'CONFLICT' or a list.

local base = KEYS[1]
local ttl = tonumber(ARGV[1])

local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = math.floor(micros / 1000)

-- in_slices unpacks a list of any length into commands of limited length.
local function in_slices(list, call)
	for first = 1, #list, 1000 do
		call(unpack(list, first, math.min(first + 999, #list)))
	end
end
