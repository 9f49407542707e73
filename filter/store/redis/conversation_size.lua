-- Arguments: id. The reply contains the number of items and the length of their JSON.
if not exists() then return 'NOTFOUND' end
local ids, bytes = redis.call('ZRANGE', order, 0, -1), 0
for _, item in ipairs(ids) do bytes = bytes + redis.call('HSTRLEN', conversation, 'i:' .. item) end
return {#ids, bytes}
