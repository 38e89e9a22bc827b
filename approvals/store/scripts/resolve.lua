-- resolve: a person says whether a call of unknown outcome ran.
-- KEYS  1-9 as in the prelude · 10 own what the claim's owner holds (set)
-- ARGV  1-4 as in the prelude · 5 succeeded|not_run · 6 by · 7 sealed note or '' · 8 ms that "it ran" is given again
-- Returns {ok, state} also when the same person has said the same before · {late, state} · {gone, ''} · {broken, key}
local bad = unfit({ 'hash', 'zset', 'stream', 'stream', 'string', 'zset', 'set', 'string', 'zset', 'set' })
if bad then return { 'broken', bad } end
local t, st = now(), get('st')
if st == '' then return { 'gone', '' } end
if st == ARGV[5] and get('ca') == 'resolved' and get('by') == ARGV[6] then return { 'ok', st } end
if st ~= 'unknown' then return { 'late', st } end
local keep = 0
if ARGV[5] == 'succeeded' then keep = t + tonumber(ARGV[8]) end
redis.call('SREM', KEYS[10], ARGV[1])
redis.call('HSET', KEYS[1], 'rs', ARGV[7])
move(t, ARGV[5], 'resolved', ARGV[6], '', nil, keep, true)
return { 'ok', ARGV[5] }
