-- Arguments: id
if not exists() then return 'NOTFOUND' end
return redis.call('HMGET', conversation, 'created', 'metadata')
