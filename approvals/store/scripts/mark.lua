-- mark: what is known of the messages. It moves no rev, makes no event, no
-- outbox entry and no hint.
-- KEYS  1 a
-- ARGV  1 channel · 2 the message or '' · 3 the trouble or '' · 4 an attempt or '' · 5 the message's id or ''
--       6 the id of a message that is gone, or ''
-- Fields: "ref:CHANNEL" is the message that we posted, "ref:CHANNEL ID" one more that was adopted.
-- Returns {ok, ''} · {gone, ''} · {broken, key}
local bad = wrong({ 'hash' })
if bad then return { 'broken', bad } end
if get('st') == '' then return { 'gone', '' } end
local main = 'ref:' .. ARGV[1]
local function shows(id)
  local ref = get(main)
  return ref ~= '' and cjson.decode(ref).id == id
end
local drop = ARGV[6] ~= '' and shows(ARGV[6])
if ARGV[6] ~= '' then redis.call('HDEL', KEYS[1], main .. ' ' .. ARGV[6]) end
if drop then redis.call('HDEL', KEYS[1], main) end
if ARGV[4] ~= '' then redis.call('HSET', KEYS[1], 'att:' .. ARGV[1], ARGV[4]) end
if ARGV[2] ~= '' then
  local extra = main .. ' ' .. ARGV[5]
  if redis.call('HEXISTS', KEYS[1], extra) == 1 then
    redis.call('HSET', KEYS[1], extra, ARGV[2])
  else
    redis.call('HSET', KEYS[1], main, ARGV[2])
  end
  redis.call('HDEL', KEYS[1], 'att:' .. ARGV[1])
end
if ARGV[3] ~= '' then
  redis.call('HSET', KEYS[1], 'tr:' .. ARGV[1], ARGV[3])
else
  redis.call('HDEL', KEYS[1], 'tr:' .. ARGV[1])
end
return { 'ok', '' }
