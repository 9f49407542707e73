-- Arguments: id, id of the item
if not exists() then return 'NOTFOUND' end
if redis.call('HDEL', conversation, 'i:' .. ARGV[3]) == 0 then return 'NOTFOUND' end
redis.call('HINCRBY', conversation, 'items', -1)
redis.call('ZREM', order, ARGV[3])
renew()
return 'OK'
