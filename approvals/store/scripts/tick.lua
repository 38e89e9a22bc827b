-- tick: do what a record's timer says, if its time has come. Anyone may call
-- it, any number of times.
-- KEYS  1-9 as in the prelude · 10 v · 11 r · 12 rn · 13 all · 14 index key or the record's own · 15 own
-- ARGV  1-4 as in the prelude · 5 the sealed deadline ms or '' · 6 ms that "expired" is given again
-- Returns {expired|lapsed|unknown|forgotten|early|noop|gone, ''} · {broken, key}
local bad = wrong({ 'hash', 'zset', 'stream', 'stream', 'string', 'zset', 'set', 'string', 'zset', 'string',
  'string', 'set', 'zset' })
if bad then return { 'broken', bad } end
local t, st, id = now(), get('st'), ARGV[1]
if st == '' then
  redis.call('ZREM', KEYS[2], id)
  redis.call('ZREM', KEYS[6], id)
  redis.call('SREM', KEYS[7], id)
  redis.call('ZREM', KEYS[9], id)
  redis.call('ZREM', KEYS[13], id)
  return { 'gone', '' }
end
if st == 'pending' then
  local dl = tonumber(get('dl')) or 0
  if ARGV[5] ~= '' then dl = math.min(dl, tonumber(ARGV[5])) end
  if t < dl then
    redis.call('ZADD', KEYS[2], num(dl), id)
    return { 'early', '' }
  end
  local cause = 'undelivered'
  for _, f in ipairs(redis.call('HKEYS', KEYS[1])) do
    if string.sub(f, 1, 4) == 'ref:' then cause = '' end
  end
  move(t, 'expired', cause, '', '', nil, t + tonumber(ARGV[6]), true)
  return { 'expired', '' }
end
if st == 'approved' then
  local cb = tonumber(get('cb')) or 0
  if ARGV[5] ~= '' then cb = math.min(cb, tonumber(ARGV[5])) end
  if t < cb then
    redis.call('ZADD', KEYS[2], num(cb), id)
    return { 'early', '' }
  end
  redis.call('HDEL', KEYS[1], 'rs')
  move(t, 'lapsed', '', '', '', nil, 0, true)
  return { 'lapsed', '' }
end
if st == 'executing' then
  local lease = tonumber(get('lease')) or 0
  if t < lease then
    redis.call('ZADD', KEYS[2], num(lease), id)
    return { 'early', '' }
  end
  move(t, 'unknown', 'owner_lost', nil, '', nil, 0, false)
  return { 'unknown', '' }
end
if st == 'unknown' then
  redis.call('ZREM', KEYS[2], id)
  return { 'noop', '' }
end
local forget = (tonumber(get('ed')) or 0) + tonumber(ARGV[3])
if t < forget then
  redis.call('ZADD', KEYS[2], num(forget), id)
  return { 'early', '' }
end
if KEYS[14] ~= KEYS[1] and redis.call('GET', KEYS[14]) == id then redis.call('DEL', KEYS[14]) end
redis.call('DEL', KEYS[1], KEYS[8], KEYS[10], KEYS[11], KEYS[12])
redis.call('ZREM', KEYS[2], id)
redis.call('ZREM', KEYS[6], id)
redis.call('SREM', KEYS[7], id)
redis.call('ZREM', KEYS[13], id)
redis.call('SREM', KEYS[15], id)
return { 'forgotten', '' }
