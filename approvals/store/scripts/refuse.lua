-- refuse: put on the event stream that a verified person's vote was refused.
-- The record itself is not touched. Beyond a number of them by one person on one
-- record they are only counted: a person may click for ever.
-- KEYS  1-9 as in the prelude · 10 rn refused votes of this record (hash: "n:NONCE", "c:PERSON" how many)
-- ARGV  1-4 as in the prelude · 5 nonce · 6 person · 7 source · 8 approve|deny · 9 why
--       10 how many of a person's are recorded
-- Returns {ok, state} also to the same nonce again · {gone, ''} · {broken, key}
local bad = unfit({ 'hash', 'zset', 'stream', 'stream', 'string', 'zset', 'set', 'string', 'zset', 'hash' })
if bad then return { 'broken', bad } end
local st = get('st')
if st == '' then return { 'gone', '' } end
local seen, person = 'n:' .. ARGV[5], 'c:' .. ARGV[6]
if redis.call('HEXISTS', KEYS[10], seen) == 1 then return { 'ok', st } end
local n = redis.call('HGET', KEYS[10], person)
if not counts(n) then return { 'broken', KEYS[10] } end
local t = now()
redis.call('HINCRBY', KEYS[10], person, 1)
redis.call('PEXPIRE', KEYS[10], ARGV[3])
if tonumber(n or 0) >= tonumber(ARGV[10]) then return { 'ok', st } end
redis.call('HSET', KEYS[10], seen, '')
emit('vote_refused', t, 'person', ARGV[6], 'source', ARGV[7], 'verdict', ARGV[8], 'refused', ARGV[9],
  'state', st, 'bound', get('b'))
return { 'ok', st }
