-- tick: do what a record's timer says, if its time has come. Anyone may call
-- it, any number of times.
-- KEYS  1-9 as in the prelude · 10 v · 11 r · 12 rn · 13 all · 14 index key or the record's own · 15 own
-- ARGV  1-4 as in the prelude · 5 the sealed deadline ms or '' · 6 ms that "expired" is given again
-- Returns {expired|lapsed|unknown|forgotten|early|noop|gone, ''} · {broken, key}
local bad = unfit({ 'hash', 'zset', 'stream', 'stream', 'string', 'zset', 'set', 'string', 'zset', 'string',
  'string', 'hash', 'zset' })
if bad then return { 'broken', bad } end
local t, st, id = now(), get('st'), ARGV[1]

-- unlist takes the id off every list.
local function unlist()
  redis.call('ZREM', KEYS[2], id)
  redis.call('ZREM', KEYS[6], id)
  redis.call('SREM', KEYS[7], id)
  redis.call('ZREM', KEYS[9], id)
  redis.call('ZREM', KEYS[13], id)
end

-- early tells whether a timer's moment is still to come, and sets the timer by it.
local function early(at)
  if t >= at then return false end
  redis.call('ZADD', KEYS[2], num(at), id)
  return true
end

-- moment is an open field, or the sealed deadline where that is earlier.
local function moment(field)
  local at = tonumber(get(field)) or 0
  if ARGV[5] ~= '' then at = math.min(at, tonumber(ARGV[5])) end
  return at
end

if st == '' then
  unlist()
  return { 'gone', '' }
end
if st == 'pending' then
  if early(moment('dl')) then return { 'early', '' } end
  local cause = 'undelivered'
  for _, f in ipairs(redis.call('HKEYS', KEYS[1])) do
    if string.sub(f, 1, 4) == 'ref:' then cause = '' end
  end
  move(t, 'expired', cause, '', '', nil, t + tonumber(ARGV[6]), true)
  return { 'expired', '' }
end
if st == 'approved' then
  if early(moment('cb')) then return { 'early', '' } end
  redis.call('HDEL', KEYS[1], 'rs')
  move(t, 'lapsed', '', '', '', nil, 0, true)
  return { 'lapsed', '' }
end
if st == 'executing' then
  if early(tonumber(get('lease')) or 0) then return { 'early', '' } end
  move(t, 'unknown', 'owner_lost', nil, '', nil, 0, false)
  return { 'unknown', '' }
end
if st == 'unknown' then
  redis.call('ZREM', KEYS[2], id)
  return { 'noop', '' }
end
if early((tonumber(get('ed')) or 0) + tonumber(ARGV[3])) then return { 'early', '' } end
if KEYS[14] ~= KEYS[1] and redis.call('GET', KEYS[14]) == id then redis.call('DEL', KEYS[14]) end
redis.call('DEL', KEYS[1], KEYS[8], KEYS[10], KEYS[11], KEYS[12])
unlist()
redis.call('SREM', KEYS[15], id)
return { 'forgotten', '' }
