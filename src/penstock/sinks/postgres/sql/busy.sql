-- Who has moved a row of the ledger in a transaction that has not ended: not who waits for it as we do.
SELECT a.pid, a.state, extract(epoch FROM clock_timestamp() - a.state_change)::bigint
FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.relation = to_regclass({ledger}) AND l.mode = 'RowExclusiveLock' AND l.granted
AND a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.wait_event_type IS DISTINCT FROM 'Lock'
