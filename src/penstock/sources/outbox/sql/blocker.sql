-- The oldest transaction that a snapshot does not see, and how long it has been open.
SELECT CASE WHEN x.gid IS NULL THEN 'pid ' || x.pid ELSE 'prepared transaction ' || quote_literal(x.gid) END,
       x.owner, x.state, extract(epoch FROM clock_timestamp() - x.since)::float8, left(x.query, 200)
FROM (
    SELECT a.pid, NULL AS gid, a.usename::text AS owner, a.state, a.query, a.xact_start AS since
    FROM pg_stat_activity a WHERE a.backend_xid::text::bigint = {transaction}::bigint % 4294967296
    UNION ALL
    SELECT NULL, p.gid, p.owner::text, 'prepared', NULL, p.prepared
    FROM pg_prepared_xacts p WHERE p.transaction::text::bigint = {transaction}::bigint % 4294967296
) x
LIMIT 1
