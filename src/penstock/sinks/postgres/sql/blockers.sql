-- Who holds what we have waited for: locks on some tables, or the right to make them; the longest transaction first.
SELECT a.pid, a.usename::text, a.state, extract(epoch FROM clock_timestamp() - coalesce(a.xact_start, a.query_start))::bigint
FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.granted AND a.pid <> pg_backend_pid() AND a.datname = current_database()
-- Who only reads is in nobody's way, and who waits for a lock waits as we do.
AND l.mode NOT IN ('AccessShareLock', 'RowShareLock') AND a.wait_event_type IS DISTINCT FROM 'Lock'
AND (
    l.relation IN (SELECT to_regclass(t.name) FROM unnest({tables}::text[]) t (name))
    OR (l.locktype = 'advisory' AND (l.classid::bigint << 32) + l.objid::bigint = {making} AND l.objsubid = 1)
)
ORDER BY coalesce(a.xact_start, a.query_start)
LIMIT 1
