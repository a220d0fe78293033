-- Of the transactions that have written into the outbox and have not ended, the one that has been open longest.
SELECT CASE WHEN x.gid IS NULL THEN 'pid ' || x.pid ELSE 'prepared transaction ' || quote_literal(x.gid) END,
       x.owner, x.state, extract(epoch FROM clock_timestamp() - x.since)::float8, left(x.query, 200)
FROM (
    SELECT a.pid, NULL AS gid, a.usename::text AS owner, a.state, a.query, a.xact_start AS since
    FROM pg_stat_activity a
    WHERE a.pid IN (SELECT l.pid FROM pg_locks l WHERE l.locktype = 'relation' AND l.relation = {name}::regclass
                    AND l.mode = 'RowExclusiveLock' AND l.granted)
    UNION ALL
    SELECT NULL, p.gid, p.owner::text, 'prepared', NULL, p.prepared
    FROM pg_prepared_xacts p
    WHERE '-1/' || p.transaction::text IN (SELECT l.virtualtransaction FROM pg_locks l WHERE l.locktype = 'relation'
                                           AND l.relation = {name}::regclass AND l.mode = 'RowExclusiveLock')
) x
WHERE x.since IS NOT NULL
ORDER BY x.since LIMIT 1
