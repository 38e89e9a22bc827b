-- pin: set pins of one upstream, all or none, each only over what the client saw there.
-- KEYS  1 pn the upstream's pins (hash) · 2 a the record of the claim under which it is done (KEYS[1] again without one)
-- ARGV  1 nonce of that claim, or '' · 2 n · then n times: field, the value that was seen or '', the new value
-- With a claim the record must still be executing under it: what a dead owner sent late changes nothing.
-- Returns {ok, ''} also where the new values stand already · {moved, field} · {late, state} · {broken, key}
local bad = wrong({ 'hash', 'hash' })
if bad then return { 'broken', bad } end
if ARGV[1] ~= '' then
  local st = redis.call('HGET', KEYS[2], 'st') or ''
  if st ~= 'executing' or redis.call('HGET', KEYS[2], 'cn') ~= ARGV[1] then return { 'late', st } end
end
local n, sets = tonumber(ARGV[2]), {}
for i = 0, n - 1 do
  local field, seen, new = ARGV[3 + 3 * i], ARGV[4 + 3 * i], ARGV[5 + 3 * i]
  local is = redis.call('HGET', KEYS[1], field) or ''
  if is ~= new then
    if is ~= seen then return { 'moved', field } end
    sets[#sets + 1] = { field, new }
  end
end
for _, s in ipairs(sets) do redis.call('HSET', KEYS[1], s[1], s[2]) end
return { 'ok', '' }
