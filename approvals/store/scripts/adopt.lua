-- adopt: a message of ours that the record did not know of was met. It is kept
-- beside the one that is known, and a notifier is told to bring it up to date.
-- KEYS  1 a · 2 ob
-- ARGV  1 id · 2 channel · 3 the message · 4 the message's id · 5 how many a channel may have
-- Returns {ok, ''} · {known, ''} · {many, ''} · {gone, ''} · {broken, key}
local bad = wrong({ 'hash', 'stream' })
if bad then return { 'broken', bad } end
if get('st') == '' then return { 'gone', '' } end
local main = 'ref:' .. ARGV[2]
local ref = get(main)
local field = main .. ' ' .. ARGV[4]
if ref ~= '' and cjson.decode(ref).id == ARGV[4] then return { 'known', '' } end
if redis.call('HEXISTS', KEYS[1], field) == 1 then return { 'known', '' } end
local n = 0
for _, f in ipairs(redis.call('HKEYS', KEYS[1])) do
  if string.sub(f, 1, #main + 1) == main .. ' ' then n = n + 1 end
end
if n >= tonumber(ARGV[5]) then return { 'many', '' } end
redis.call('HSET', KEYS[1], field, ARGV[3])
redis.call('XADD', KEYS[2], '*', 'id', ARGV[1])
return { 'ok', '' }
