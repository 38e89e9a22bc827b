-- rights: may this account run everything that the scripts run? A script that is
-- stopped in its middle keeps what it wrote: a record without its message, a
-- decision without its event. So an account that can't run it all is refused
-- before the first of them. Nothing of the try is left behind.
-- KEYS  1 a key that nobody uses
-- ARGV  1 ''  2 channel of the wake hints
-- Returns {ok, ''} · {denied, command}
local denied
local function try(command, ...)
  local r = redis.pcall(command, ...)
  if type(r) == 'table' and r.err and not denied then denied = command end
end
local k = KEYS[1]
try('TIME')
try('PUBLISH', ARGV[2], 'beat rights')
try('EXISTS', k)
try('TYPE', k)
try('SET', k, '1', 'PX', '60000')
try('GET', k)
try('INCR', k)
try('PEXPIRE', k, '60000')
try('PTTL', k)
try('DEL', k)
try('HSET', k, 'f', '1')
try('HGET', k, 'f')
try('HMGET', k, 'f')
try('HGETALL', k)
try('HKEYS', k)
try('HEXISTS', k, 'f')
try('HLEN', k)
try('HINCRBY', k, 'f', '1')
try('HDEL', k, 'f')
try('SADD', k, 'm')
try('SISMEMBER', k, 'm')
try('SCARD', k)
try('SREM', k, 'm')
try('ZADD', k, '1', 'm')
try('ZCARD', k)
try('ZCOUNT', k, '-inf', '+inf')
try('ZRANGEBYSCORE', k, '-inf', '+inf', 'LIMIT', '0', '1')
try('ZREMRANGEBYSCORE', k, '-inf', '0')
try('ZREM', k, 'm')
try('XADD', k, '*', 'id', '1')
try('DEL', k)
if denied then return { 'denied', denied } end
return { 'ok', '' }
