-- Arguments: id
if not exists() then return 'NOTFOUND' end
redis.call('DEL', conversation, order)
return 'OK'
