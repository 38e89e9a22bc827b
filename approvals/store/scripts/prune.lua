-- prune: forget the consumers of a group that are silent for long and owe
-- nothing. Each boot has a name of its own, so they would pile up. One that
-- comes back is made again by its next read.
-- KEYS  1 stream
-- ARGV  1 group · 2 ms of silence
-- Returns {ok, how many} · {broken, key}
local bad = wrong({ 'stream' })
if bad then return { 'broken', bad } end
local gone = {}
for _, consumer in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local c = {}
  for i = 1, #consumer, 2 do c[consumer[i]] = consumer[i + 1] end
  if c.pending == 0 and c.idle >= tonumber(ARGV[2]) then gone[#gone + 1] = c.name end
end
for _, name in ipairs(gone) do redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], name) end
return { 'ok', num(#gone) }
