-- park: keep a new call, or find the twin that is kept already.
-- KEYS  1-9 as in the prelude · 10 ah new records of this actor (zset: id, ms) · 11 all (zset: id, ms)
--       12 v sealed view · 13 nh new records of all actors (zset: id, ms) · 14 dn denials of this actor
--       (hash, see decide) · then n index keys · then n records that the client found in them
--       (the new record's own key where it found none) · then gen the newest generation
-- ARGV  1-4 as in the prelude · 5 client's ms · 6 earliest deadline ms · 7 nonce · 8 sealed record
--       9 sealed view · 10 sealed envelope · 11 bound · 12 shown · 13 actor · 14 server · 15 tool
--       16 cap of the actor's pending · 17 cap of the actor's hour · 18 cap of all · 19 run: on_approve or ''
--       20 cap of everybody's hour, 0: none · 21 '1' where denials close · 22 n · then n ids found ·
--       then hex digest of the policy it was judged by, and '1' when a generation was seen before
-- The first index key is the one under the current key.
-- Returns {fresh, id} also to the same nonce again · {attached, id} · {reused, id} the id is taken ·
--       {skew, ms} the client's clock reading is too old · {retry, ''} an index moved meanwhile ·
--       {due, id} that record's timer has passed: tick it first · {behind, n} another policy
--       is the newest: only attaching is possible · {parked|total, ''} that cap is reached ·
--       {hour|allhour, ms until there is room} · {closed, ms until it is open} · {broken, key}
-- The caps and the closing are for new records alone: what is found comes first.
local bad = unfit({ 'hash', 'zset', 'stream', 'stream', 'string', 'zset', 'set', 'string', 'zset', 'zset', 'zset', 'string',
  'zset', 'hash' }) or odd(KEYS[#KEYS], 'hash')
if bad then return { 'broken', bad } end
local t, id, n = now(), ARGV[1], tonumber(ARGV[22])

if redis.call('EXISTS', KEYS[1]) == 1 then
  if get('pn') == ARGV[7] then return { 'fresh', id } end
  return { 'reused', id }
end
if math.abs(t - tonumber(ARGV[5])) > 2000 then return { 'skew', num(t) } end

local found
for i = 1, n do
  local old = redis.call('GET', KEYS[14 + i]) or ''
  if old ~= ARGV[22 + i] then return { 'retry', '' } end
  if old ~= '' and not found then
    local r = redis.call('HMGET', KEYS[14 + n + i], 'st', 'dl', 'cb', 'lease', 'keep')
    local st = r[1] or ''
    local timer = (st == 'pending' and r[2]) or (st == 'approved' and r[3]) or (st == 'executing' and r[4])
    if timer and t >= tonumber(timer) then return { 'due', old } end
    if timer or st == 'unknown' or (st ~= '' and t < tonumber(r[5] or 0)) then found = old end
  end
end
if found then return { 'attached', found } end
local newest = behind(KEYS[#KEYS], ARGV[#ARGV - 1], ARGV[#ARGV])
if newest then return { 'behind', newest } end

if ARGV[21] == '1' then
  local until_ = redis.call('HGET', KEYS[14], 'until')
  if not counts(until_) then return { 'broken', KEYS[14] } end
  if until_ and t < tonumber(until_) then return { 'closed', num(tonumber(until_) - t) } end
end
if redis.call('ZCARD', KEYS[6]) >= tonumber(ARGV[18]) then return { 'total', '' } end
if redis.call('SCARD', KEYS[7]) >= tonumber(ARGV[16]) then return { 'parked', '' } end
local hour = t - 3600000

-- room gives the ms until fewer than cap of the last hour are listed under key; false
-- where that is so now.
local function room(key, cap)
  local since = '(' .. num(hour)
  local have = redis.call('ZCOUNT', key, since, '+inf')
  if have < cap then return false end
  local last = redis.call('ZRANGEBYSCORE', key, since, '+inf', 'WITHSCORES', 'LIMIT', have - cap, 1)
  return num((tonumber(last[2]) or t) - hour)
end

local wait = room(KEYS[10], tonumber(ARGV[17]))
if wait then return { 'hour', wait } end
if ARGV[20] ~= '0' then
  wait = room(KEYS[13], tonumber(ARGV[20]))
  if wait then return { 'allhour', wait } end
end

redis.call('HSET', KEYS[1], 'st', 'pending', 'ca', '', 'by', '', 'rev', 1, 'pn', ARGV[7], 'f', ARGV[8],
  'b', ARGV[11], 'sh', ARGV[12], 'ac', ARGV[13], 'sv', ARGV[14], 'tl', ARGV[15], 'ix', KEYS[15],
  'cr', num(t), 'dl', ARGV[6], 'run', ARGV[19])
redis.call('SET', KEYS[12], ARGV[9])
redis.call('SET', KEYS[8], ARGV[10])
redis.call('SET', KEYS[15], id)
redis.call('ZADD', KEYS[2], ARGV[6], id)
redis.call('ZADD', KEYS[6], num(t), id)
redis.call('ZADD', KEYS[11], num(t), id)
redis.call('SADD', KEYS[7], id)
for _, key in ipairs({ KEYS[10], KEYS[13] }) do
  redis.call('ZREMRANGEBYSCORE', key, '-inf', num(hour))
  redis.call('ZADD', key, num(t), id)
  redis.call('PEXPIRE', key, 3600000)
end
emit('requested', t, 'state', 'pending', 'actor', ARGV[13], 'server', ARGV[14], 'tool', ARGV[15],
  'bound', ARGV[11], 'shown', ARGV[12])
tell(1)
return { 'fresh', id }
