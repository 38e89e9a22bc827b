-- refuse: put on the event stream that a verified person's vote was refused.
-- The record itself is not touched.
-- KEYS  1-9 as in the prelude · 10 rn nonces of refused votes of this record (set)
-- ARGV  1-4 as in the prelude · 5 nonce · 6 person · 7 source · 8 approve|deny · 9 why
-- Returns {ok, state} also to the same nonce again · {gone, ''} · {broken, key}
local bad = wrong({ 'hash', 'zset', 'stream', 'stream', 'string', 'zset', 'set', 'string', 'zset', 'set' })
if bad then return { 'broken', bad } end
local st = get('st')
if st == '' then return { 'gone', '' } end
if redis.call('SISMEMBER', KEYS[10], ARGV[5]) == 1 then return { 'ok', st } end
local t = now()
redis.call('SADD', KEYS[10], ARGV[5])
redis.call('PEXPIRE', KEYS[10], ARGV[3])
emit('vote_refused', t, 'person', ARGV[6], 'source', ARGV[7], 'verdict', ARGV[8], 'refused', ARGV[9],
  'state', st, 'bound', get('b'))
return { 'ok', st }
