-- decide: one person's vote. Who may vote was judged by the client from the
-- sealed record; the deadline and the quorums come from there too, so that
-- nothing written into the hash can stretch or lower them.
-- A denial is counted here, with the step that makes it one, so a vote that is sent
-- again or comes too late never counts twice. As many in a row as the record says
-- close the actor's way to new records for a while; an approval ends the row.
-- KEYS  1-9 as in the prelude · 10 dn denials of this actor (hash: row how many in a row, until ms of the closing)
-- ARGV  1-4 as in the prelude · 5 client's ms · 6 deadline ms · 7 claim deadline of this vote ms
--       8 nonce · 9 person · 10 approve|deny · 11 bound · 12 ms that a denial is kept · 13 source
--       14 sealed reason or '' · 15 how many denials close, 0: none · 16 ms that they close for
--       17 actor · 18 ms that a row is remembered · 19 n · then for each of n requirements: route,
--       quorum, the vote to store or '' where this person has no such vote
-- Returns {ok, state} also to the same nonce again · {dup, state} this person has voted, or the nonce was
--       another vote's · {late, state} · {due, ''} the deadline has passed: tick it · {skew, ms} ·
--       {digest, ''} the record is bound to another call · {gone, ''} · {broken, key}
local bad = unfit({ 'hash', 'zset', 'stream', 'stream', 'string', 'zset', 'set', 'string', 'zset', 'hash' })
if bad then return { 'broken', bad } end
local closed = redis.call('HGET', KEYS[10], 'until')
if not (counts(closed) and counts(redis.call('HGET', KEYS[10], 'row'))) then return { 'broken', KEYS[10] } end
local t, st = now(), get('st')
if st == '' then return { 'gone', '' } end
local mine = ARGV[10] .. ':' .. ARGV[9]
local seen = get('n:' .. ARGV[8])
if seen ~= '' then
  if seen == mine then return { 'ok', st } end
  return { 'dup', st }
end
if st ~= 'pending' then return { 'late', st } end
if t >= tonumber(ARGV[6]) then return { 'due', '' } end
if math.abs(t - tonumber(ARGV[5])) > 2000 then return { 'skew', num(t) } end
if get('b') ~= ARGV[11] then return { 'digest', '' } end

local n, have = tonumber(ARGV[19]), {}
for i = 1, n do have[i] = 0 end
for _, f in ipairs(redis.call('HKEYS', KEYS[1])) do
  local i = string.match(f, '^v:(%d+):')
  if i and have[tonumber(i)] then have[tonumber(i)] = have[tonumber(i)] + 1 end
end
local new = {}
for i = 1, n do
  local field = 'v:' .. i .. ':' .. ARGV[9]
  if ARGV[19 + 3 * i] ~= '' then
    local voted = redis.call('HEXISTS', KEYS[1], field) == 1
    if ARGV[10] == 'deny' or not voted then new[#new + 1] = i end
    if not voted then have[i] = have[i] + 1 end
  end
end
if #new == 0 then return { 'dup', st } end
local full = true
for i = 1, n do
  if have[i] < tonumber(ARGV[18 + 3 * i]) then full = false end
end
local until_ = math.max(tonumber(ARGV[7]), tonumber(redis.call('HGET', KEYS[1], 'vc') or 0))

redis.call('HSET', KEYS[1], 'n:' .. ARGV[8], mine)
for _, i in ipairs(new) do
  redis.call('HSET', KEYS[1], 'v:' .. i .. ':' .. ARGV[9], ARGV[19 + 3 * i])
  emit('vote', t, 'person', ARGV[9], 'source', ARGV[13], 'route', ARGV[17 + 3 * i], 'verdict', ARGV[10],
    'bound', ARGV[11])
end
if ARGV[10] == 'deny' then
  redis.call('HSET', KEYS[1], 'dat', num(t), 'rs', ARGV[14])
  move(t, 'denied', '', ARGV[9], ARGV[13], nil, t + tonumber(ARGV[12]), true)
  if ARGV[15] ~= '0' then
    local row = redis.call('HINCRBY', KEYS[10], 'row', 1)
    if row >= tonumber(ARGV[15]) then
      local till = num(math.max(t + tonumber(ARGV[16]), tonumber(closed or 0)))
      redis.call('HSET', KEYS[10], 'until', till)
      emit('review_closed', t, 'actor', ARGV[17], 'person', ARGV[9], 'source', ARGV[13], 'row', num(row), 'until', till)
    end
    redis.call('PEXPIRE', KEYS[10], ARGV[18])
  end
  return { 'ok', 'denied' }
end
redis.call('HSET', KEYS[1], 'vc', num(until_))
if full then
  redis.call('HSET', KEYS[1], 'dat', num(t), 'cb', num(until_), 'rs', ARGV[14])
  move(t, 'approved', '', ARGV[9], ARGV[13], until_, 0, false)
  redis.call('HDEL', KEYS[10], 'row')
  return { 'ok', 'approved' }
end
tell(redis.call('HINCRBY', KEYS[1], 'rev', 1))
return { 'ok', 'pending' }
