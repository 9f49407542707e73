-- Arguments: id, id of the item
if not exists() then return 'NOTFOUND' end
local json = redis.call('HGET', conversation, 'i:' .. ARGV[3])
if not json then return 'NOTFOUND' end
return {json}
