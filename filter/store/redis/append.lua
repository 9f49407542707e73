-- Arguments: id, owner, first, last, '1' if the batch ends the stream, events
local id, owner, first, last, ends = ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6] == '1'
local chain, h = find(id)
if not chain then return 'NOTFOUND' end
if h[ENDED] or first <= h[LAST] or last < first then return 'CONFLICT' end
if h[LIVE] and h[OWNER] ~= owner then return 'CONFLICT' end
if not h[LIVE] and not ends then return 'CONFLICT' end

local events = events_key(id)
redis.call('XADD', events, (last + 1) .. '-0', 'first', first, 'end', ARGV[6], 'sse', ARGV[7])
redis.call('PEXPIRE', events, index_ttl)
h[LAST], h[ENDED] = last, ends
set_header(chain, id, h)
redis.call('PUBLISH', events, '')
return 'OK'
