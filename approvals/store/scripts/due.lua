-- due: the records whose timer has passed.
-- KEYS  1 due
-- ARGV  1 how many
-- Returns ids, the longest overdue first
local t = now()
return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', num(t), 'LIMIT', 0, tonumber(ARGV[1]))
