-- head: put the head of a ledger file on the event stream.
-- KEYS  1 a string that exists when this nonce was seen · 2-5 as in the prelude
-- ARGV  1 '' · 2 '' · 3 ms that a nonce is remembered · 4 nonce · 5 text
-- Returns {ok, ''} also to the same nonce again · {broken, key}
local bad = wrong({ 'string', 'zset', 'stream', 'stream', 'string' })
if bad then return { 'broken', bad } end
if not counts(redis.call('GET', KEYS[5])) then return { 'broken', KEYS[5] } end
if redis.call('EXISTS', KEYS[1]) == 1 then return { 'ok', '' } end
local t = now()
redis.call('SET', KEYS[1], '1', 'PX', ARGV[3])
emit('head', t, 'text', ARGV[5])
return { 'ok', '' }
