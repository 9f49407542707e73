-- Arguments: id, id of the item, most bytes of the reply
if not exists() then return 'NOTFOUND' end
local json = redis.call('HGET', conversation, 'i:' .. ARGV[3])
if not json then return 'NOTFOUND' end
return within({counted(json)})
