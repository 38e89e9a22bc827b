-- finish: what came of the claim, with the sealed answer, in one step. From
-- executing, and from unknown too: the claim's own nonce may say later what it
-- could not say in time.
-- KEYS  1-9 as in the prelude · 10 r the sealed result · 11 own what this owner holds (set)
-- ARGV  1-4 as in the prelude · 5 nonce · 6 succeeded|failed|not_run|unknown · 7 cause
--       8 ms that an answer is kept and given again · 9 sealed result or ''
-- Returns {ok, state} also to the same nonce and outcome again · {late, state} · {gone, ''} · {broken, key}
local bad = unfit({ 'hash', 'zset', 'stream', 'stream', 'string', 'zset', 'set', 'string', 'zset', 'string', 'set' })
if bad then return { 'broken', bad } end
local t, st, to = now(), get('st'), ARGV[6]
if st == '' then return { 'gone', '' } end
if get('cn') ~= ARGV[5] then return { 'late', st } end
if st == to and (st == 'unknown' or get('fn') == ARGV[5]) then return { 'ok', st } end
if st ~= 'executing' and st ~= 'unknown' then return { 'late', st } end

if to == 'unknown' then
  move(t, to, ARGV[7], nil, '', nil, 0, false)
  return { 'ok', to }
end
local keep = 0
if to ~= 'not_run' then keep = t + tonumber(ARGV[8]) end
if ARGV[9] ~= '' then redis.call('SET', KEYS[10], ARGV[9], 'PX', ARGV[8]) end
redis.call('SREM', KEYS[11], ARGV[1])
redis.call('HSET', KEYS[1], 'fn', ARGV[5], 'rx', (ARGV[9] ~= '') and num(keep) or '')
move(t, to, ARGV[7], nil, '', nil, keep, true)
return { 'ok', to }
