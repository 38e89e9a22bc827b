-- labels: what a session carries, and more of it. Labels are only added, so one
-- that is written twice, or by two at once, is there once.
-- KEYS  1 lb under the current key · 2… lb under the older keys of the ring
-- ARGV  1 ms that they are kept from now · 2… field, sealed label, …
-- Returns {ok, fields of KEYS[1], field, sealed label, …, fields of KEYS[2], …} · {broken, key}
local types = {}
for i = 1, #KEYS do types[i] = 'hash' end
local bad = wrong(types)
if bad then return { 'broken', bad } end
for _, key in ipairs(KEYS) do
  if redis.call('HLEN', key) > 64 then return { 'broken', key } end -- there are not so many labels
end
for i = 2, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
local out = { 'ok' }
for _, key in ipairs(KEYS) do
  -- At most once a minute, so that asking is seldom a write.
  if redis.call('PTTL', key) < tonumber(ARGV[1]) - 60000 then redis.call('PEXPIRE', key, ARGV[1]) end
  local all = redis.call('HGETALL', key)
  out[#out + 1] = num(#all / 2)
  for _, v in ipairs(all) do out[#out + 1] = v end
end
return out
