-- mark: what is known of the messages. It moves no rev, makes no event, no
-- outbox entry and no hint.
-- KEYS  1 a
-- ARGV  1 channel · 2 the message or '' · 3 the trouble or '' · 4 an attempt or ''
-- Returns {ok, ''} · {gone, ''} · {broken, key}
local bad = wrong({ 'hash' })
if bad then return { 'broken', bad } end
if get('st') == '' then return { 'gone', '' } end
if ARGV[4] ~= '' then redis.call('HSET', KEYS[1], 'att:' .. ARGV[1], ARGV[4]) end
if ARGV[2] ~= '' then
  redis.call('HSET', KEYS[1], 'ref:' .. ARGV[1], ARGV[2])
  redis.call('HDEL', KEYS[1], 'att:' .. ARGV[1])
end
if ARGV[3] ~= '' then
  redis.call('HSET', KEYS[1], 'tr:' .. ARGV[1], ARGV[3])
else
  redis.call('HDEL', KEYS[1], 'tr:' .. ARGV[1])
end
return { 'ok', '' }
