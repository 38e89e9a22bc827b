-- renew: the claim's owner is alive.
-- KEYS  1 a · 2 due
-- ARGV  1 id · 2 nonce · 3 lease ms
-- Returns {ok, ''} · {late, state} the claim is not this nonce's any more · {gone, ''} · {broken, key}
local bad = wrong({ 'hash', 'zset' })
if bad then return { 'broken', bad } end
local st = get('st')
if st == '' then return { 'gone', '' } end
if st ~= 'executing' or get('cn') ~= ARGV[2] then return { 'late', st } end
local lease = now() + tonumber(ARGV[3])
redis.call('HSET', KEYS[1], 'lease', num(lease))
redis.call('ZADD', KEYS[2], num(lease), ARGV[1])
return { 'ok', '' }
