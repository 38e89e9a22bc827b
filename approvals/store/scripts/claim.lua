-- claim: the one way from approved to executing. One nonce wins.
-- KEYS  1-9 as in the prelude · 10 fence (claims of the namespace so far) · 11 own what this owner holds (set) · 12 gen
-- ARGV  1-4 as in the prelude · 5 nonce · 6 owner · 7 lease ms · 8 rev that the client judged · 9 bound
--       10 claim deadline ms, from the votes that verify · 11 hex digest of the policy it was judged by ·
--       12 '1' when a generation was seen before
-- Returns {ok, fence} also to the same nonce again · {moved, rev} · {late, state} · {due, ''} lapsed: tick it ·
--       {digest, ''} · {behind, n} another policy is the newest · {gone, ''} · {broken, key}
-- The branch of the same nonce writes before it says ok: WAIT counts from the
-- last write of its own connection, and a retry on a fresh connection that
-- wrote nothing would be told that all replicas have it.
local bad = unfit({ 'hash', 'zset', 'stream', 'stream', 'string', 'zset', 'set', 'string', 'zset', 'string', 'set', 'hash' })
if bad then return { 'broken', bad } end
if not counts(redis.call('GET', KEYS[10])) then return { 'broken', KEYS[10] } end
local t, st = now(), get('st')
if st == '' then return { 'gone', '' } end
local lease = t + tonumber(ARGV[7])
if st == 'executing' and get('cn') == ARGV[5] then
  redis.call('HINCRBY', KEYS[1], 're', 1)
  redis.call('HSET', KEYS[1], 'lease', num(lease))
  redis.call('ZADD', KEYS[2], num(lease), ARGV[1])
  return { 'ok', get('fence') }
end
if st ~= 'approved' then return { 'late', st } end
if t >= tonumber(ARGV[10]) then return { 'due', '' } end
if get('b') ~= ARGV[9] then return { 'digest', '' } end
local newest = behind(KEYS[12], ARGV[11], ARGV[12])
if newest then return { 'behind', newest } end
if get('rev') ~= ARGV[8] then return { 'moved', get('rev') } end

local fence = redis.call('INCR', KEYS[10])
redis.call('SADD', KEYS[11], ARGV[1])
redis.call('HSET', KEYS[1], 'cn', ARGV[5], 'own', ARGV[6], 'fence', num(fence), 'lease', num(lease))
move(t, 'executing', '', nil, '', lease, 0, false)
return { 'ok', num(fence) }
