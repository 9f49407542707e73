-- Arguments: id, created, metadata
if exists() then return 'CONFLICT' end
redis.call('DEL', order)
redis.call('HSET', conversation, 'created', ARGV[3], 'metadata', ARGV[4])
renew()
return 'OK'
