-- clock: the time by which deadlines are made and kept.
-- KEYS  1 any key of the namespace, so that in a Cluster the right node answers
-- Returns {ms, ''}
return { num(now()), '' }
