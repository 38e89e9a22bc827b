-- postpone: look at a record that can't be ticked again later, so that it does not
-- stand before the others at every sweep.
-- KEYS  1 due
-- ARGV  1 id · 2 ms from now
-- Returns {ok, ''} · {broken, key}
local bad = wrong({ 'zset' })
if bad then return { 'broken', bad } end
redis.call('ZADD', KEYS[1], 'XX', num(now() + tonumber(ARGV[2])), ARGV[1])
return { 'ok', '' }
