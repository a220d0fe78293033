-- The sessions that hold locks on some tables, or the lock for creating them; the longest transaction first.
SELECT a.pid, a.usename::text, a.state, extract(epoch FROM clock_timestamp() - coalesce(a.xact_start, a.query_start))::bigint
FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.granted AND a.pid <> pg_backend_pid() AND a.datname = current_database()
-- A session that only reads blocks nobody, and a session that waits for a lock is blocked itself.
AND l.mode NOT IN ('AccessShareLock', 'RowShareLock') AND a.wait_event_type IS DISTINCT FROM 'Lock'
AND (
    l.relation IN (SELECT to_regclass(t.name) FROM unnest({tables}::text[]) t (name))
    OR (l.locktype = 'advisory' AND (l.classid::bigint << 32) + l.objid::bigint = {create_lock} AND l.objsubid = 1)
)
ORDER BY coalesce(a.xact_start, a.query_start)
LIMIT 1
