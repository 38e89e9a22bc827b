-- publish: say by which policy all processes are to judge from now on.
-- KEYS  1 a string that exists when this nonce was seen · 2 gen the newest generation (hash: n, d, at)
-- ARGV  1 '' · 2 '' · 3 ms that a nonce is remembered · 4 hex digest of the policy
-- Returns {new, 'n d at'} a generation was made · {same, 'n d at'} this policy is the newest already ·
--       {again, 'n d at'} this nonce was seen; nothing was done, and another may be the newest by now ·
--       {broken, key}. 'n d at' is the newest generation; of "new" the digest that it replaced follows.
local bad = wrong({ 'string', 'hash' })
if bad then return { 'broken', bad } end
local g = redis.call('HMGET', KEYS[2], 'n', 'd', 'at')
local n, d, at = g[1] or '0', g[2] or '', g[3] or '0'
if not counts(n) then return { 'broken', KEYS[2] } end
if redis.call('EXISTS', KEYS[1]) == 1 then return { 'again', n .. ' ' .. d .. ' ' .. at } end
redis.call('SET', KEYS[1], '1', 'PX', ARGV[3])
if d == ARGV[4] then return { 'same', n .. ' ' .. d .. ' ' .. at } end
n, at = num(n + 1), num(now())
redis.call('HSET', KEYS[2], 'n', n, 'd', ARGV[4], 'at', at)
return { 'new', n .. ' ' .. ARGV[4] .. ' ' .. at .. ' ' .. d }
