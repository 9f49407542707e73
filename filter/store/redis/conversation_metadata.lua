-- Arguments: id, metadata
if not exists() then return 'NOTFOUND' end
redis.call('HSET', conversation, 'metadata', ARGV[3])
renew()
return 'OK'
