-- Transactions by their virtual ids, which everyone may see: who holds a lock to write on a table, its ancestors or its
-- partitions; what sessions that do not show it are in a transaction; and who of `waited` is still there.
-- A prepared one has no process, and its virtual id may not outlive the server: it is called by its transaction id.
-- Every writer holds RowExclusiveLock at least; the stronger ones change the table. VACUUM, ANALYZE and CREATE
-- INDEX (ShareUpdateExclusive, Share) do not count: no row of theirs is new.
WITH RECURSIVE above (relid) AS (
    SELECT {name}::regclass::oid
    UNION SELECT i.inhparent FROM above JOIN pg_inherits i ON i.inhrelid = above.relid
), below (relid) AS (
    SELECT {name}::regclass::oid
    UNION SELECT i.inhrelid FROM below JOIN pg_inherits i ON i.inhparent = below.relid
), found AS (
    SELECT CASE WHEN l.pid IS NULL THEN '-1/' || min(l.transactionid::text) FILTER (WHERE l.granted)
                ELSE l.virtualtransaction END AS id,
           l.pid,
           bool_or(l.locktype = 'relation' AND l.granted
               AND l.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
               AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
               AND l.relation IN (SELECT relid FROM above UNION SELECT relid FROM below)) AS writes,
           bool_or(l.locktype = 'virtualxid' AND l.virtualxid = l.virtualtransaction
               AND l.pid = ANY ({unseen}::int[])) AS unseen
    FROM pg_locks l
    WHERE l.pid IS DISTINCT FROM pg_backend_pid()
    GROUP BY l.virtualtransaction, l.pid
)
SELECT id, pid, coalesce(writes, false), coalesce(unseen, false), id = ANY ({waited}::text[])
FROM found
WHERE writes OR unseen OR id = ANY ({waited}::text[])
