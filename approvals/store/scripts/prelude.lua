-- prelude: put in front of every script.
-- The scripts that move a record have these first:
--   KEYS[1] a     the record (hash)
--   KEYS[2] due   timers of all records (zset: id, ms)
--   KEYS[3] ob    outbox (stream of ids)
--   KEYS[4] ev    events (stream)
--   KEYS[5] evn   number of the last event
--   KEYS[6] pend  what is pending (zset: id, ms of its making)
--   KEYS[7] ap    what is pending of this actor (set)
--   KEYS[8] p     the sealed envelope
--   KEYS[9] torun what is approved and runs by itself (zset: id, ms of its claim deadline)
--   ARGV[1] id, ARGV[2] channel of the wake hints,
--   ARGV[3] ms that an ended record is kept, ARGV[4] ms that its envelope is kept
-- Rules: every read, type check, cap and look at a counter comes before the first
-- write, since an error in the middle keeps what was written; times are ms of this server's
-- clock; replies are arrays of strings and numbers and never hold a nil.

local function now()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end

-- num writes a number without an exponent.
local function num(n) return string.format('%.0f', n) end

-- wrong gives the first of KEYS that has another type than its place wants.
local function wrong(types)
  for i, want in ipairs(types) do
    local t = redis.call('TYPE', KEYS[i])
    if type(t) == 'table' then t = t.ok or t[1] end
    if t ~= 'none' and t ~= want then return KEYS[i] end
  end
  return false
end

local moving = { 'hash', 'zset', 'stream', 'stream', 'string', 'zset', 'set', 'string', 'zset' }

-- counts tells whether a value that was read can be counted on.
local function counts(v) return not v or (#v < 16 and string.find(v, '^%d+$') ~= nil) end

-- unfit is wrong for the scripts that move a record, and looks at the counters too.
local function unfit(types)
  local bad = wrong(types)
  if bad then return bad end
  if not counts(redis.call('GET', KEYS[5])) then return KEYS[5] end
  if not counts(redis.call('HGET', KEYS[1], 'rev')) then return KEYS[1] end
  return false
end

-- odd is wrong for one key that has no fixed place.
local function odd(key, want)
  local t = redis.call('TYPE', key)
  if type(t) == 'table' then t = t.ok or t[1] end
  return t ~= 'none' and t ~= want and key
end

-- behind gives the number of the newest generation where it is of another policy
-- than the caller judged by. Before the first generation there is nothing to be
-- behind; known is '1' when the caller has seen one, so that a lost one is missed.
local function behind(gen, policy, known)
  local g = redis.call('HMGET', gen, 'd', 'n')
  if g[1] == policy or not g[1] and known ~= '1' then return false end
  return g[2] or '0'
end

-- get reads one field; a missing one is ''.
local function get(field) return redis.call('HGET', KEYS[1], field) or '' end

-- emit appends a numbered event. The numbers have no gap: counting and
-- appending are one step.
local function emit(kind, t, ...)
  local n = redis.call('INCR', KEYS[5])
  redis.call('XADD', KEYS[4], '*', 'n', num(n), 'at', num(t), 'kind', kind, 'id', ARGV[1], ...)
end

-- tell puts the record on the outbox and wakes who waits for it.
local function tell(rev)
  redis.call('XADD', KEYS[3], '*', 'id', ARGV[1])
  redis.call('PUBLISH', ARGV[2], ARGV[1] .. ' ' .. num(rev))
end

-- move brings the record to a state, with its event, outbox entry and hint.
-- next is the ms of its next timer; nil where the state has none; an ended
-- record's timer is the moment it is forgotten. keep is until when a repeated
-- call is given this record instead of a new one. by is who did it: '' for the
-- clock, nil to leave the person who decided.
local function move(t, to, cause, by, source, next, keep, ended)
  local rev = redis.call('HINCRBY', KEYS[1], 'rev', 1)
  redis.call('HSET', KEYS[1], 'st', to, 'ca', cause, 'keep', num(keep))
  if by then redis.call('HSET', KEYS[1], 'by', by) end
  redis.call('ZREM', KEYS[6], ARGV[1])
  redis.call('SREM', KEYS[7], ARGV[1])
  if ended then
    redis.call('HSET', KEYS[1], 'ed', num(t))
    next = t + tonumber(ARGV[3])
    if redis.call('EXISTS', KEYS[8]) == 1 then redis.call('PEXPIRE', KEYS[8], ARGV[4]) end
  end
  if to == 'approved' and get('run') == 'on_approve' then
    redis.call('ZADD', KEYS[9], num(next), ARGV[1])
  else
    redis.call('ZREM', KEYS[9], ARGV[1])
  end
  if next then
    redis.call('ZADD', KEYS[2], num(next), ARGV[1])
  else
    redis.call('ZREM', KEYS[2], ARGV[1])
  end
  emit('state', t, 'state', to, 'cause', cause, 'person', by or '', 'source', source,
    'actor', get('ac'), 'server', get('sv'), 'tool', get('tl'), 'bound', get('b'), 'shown', get('sh'))
  tell(rev)
  return rev
end
