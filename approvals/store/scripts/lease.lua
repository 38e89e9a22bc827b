-- lease: who tells about a record at the moment.
-- KEYS  1 lease (string: "ms owner")
-- ARGV  1 owner · 2 ms; 0 gives it back
-- Returns {ok, ''} · {held, ''} by another · {broken, key}
local bad = wrong({ 'string' })
if bad then return { 'broken', bad } end
local t, held = now(), redis.call('GET', KEYS[1])
if held then
  local until_, owner = string.match(held, '^(%d+) (.*)$')
  if until_ and owner ~= ARGV[1] and t < tonumber(until_) then return { 'held', '' } end
end
if ARGV[2] == '0' then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], num(t + tonumber(ARGV[2])) .. ' ' .. ARGV[1], 'PX', ARGV[2])
end
return { 'ok', '' }
