-- read: a record and its parts as of one moment, with the clock.
-- KEYS  1 a · 2 v · 3 p or a · 4 r or a (a where the part is not wanted)
-- Returns {ms, view or '', envelope or '', result or '', field, value, …}; without fields there is no record
local out = { num(now()) }
for i = 2, 4 do
  out[i] = KEYS[i] ~= KEYS[1] and redis.call('GET', KEYS[i]) or ''
end
for _, v in ipairs(redis.call('HGETALL', KEYS[1])) do out[#out + 1] = v end
return out
