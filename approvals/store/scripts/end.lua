-- end: withdrawn, void or revoked: over without a run.
-- KEYS  1-9 as in the prelude · 10 gen
-- ARGV  1-4 as in the prelude · 5 to · 6 cause · 7 by · 8 sealed words or '' · 9 deadline ms of pending
--       10 from: ",pending,approved," or ",approved," · of void alone: 11 hex digest of the policy by which
--       it does not fit · 12 '1' when a generation was seen before
-- Returns {ok, state} also when the same one has ended it so before · {late, state} · {due, ''} · {gone, ''} ·
--       {behind, n} only the newest policy makes void ·
--       {broken, key}
local bad = unfit(moving) or odd(KEYS[10], 'hash')
if bad then return { 'broken', bad } end
local t, st = now(), get('st')
if st == '' then return { 'gone', '' } end
if st == ARGV[5] and get('by') == ARGV[7] and get('ca') == ARGV[6] then return { 'ok', st } end
if not string.find(ARGV[10], ',' .. st .. ',', 1, true) then return { 'late', st } end
if st == 'pending' and t >= tonumber(ARGV[9]) then return { 'due', '' } end
if st == 'approved' and t >= tonumber(get('cb')) then return { 'due', '' } end
if ARGV[5] == 'void' then
  local newest = behind(KEYS[10], ARGV[11], ARGV[12])
  if newest then return { 'behind', newest } end
end
redis.call('HSET', KEYS[1], 'rs', ARGV[8])
move(t, ARGV[5], ARGV[6], ARGV[7], '', nil, 0, true)
return { 'ok', ARGV[5] }
