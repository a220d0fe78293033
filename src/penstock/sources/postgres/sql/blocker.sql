-- Of processes and prepared transactions, the one that has been at it longest; some fields may be hidden from us.
SELECT json_build_object(
    'pid', x.pid, 'user', x.owner, 'application', x.application_name, 'state', x.state, 'query', x.query, 'gid', x.gid,
    'seconds', extract(epoch FROM clock_timestamp() - coalesce(x.since, {since})),
    'at_least', x.since IS NULL
)
FROM (
    SELECT a.pid, pg_get_userbyid(a.usesysid)::text AS owner, a.application_name, a.state, a.query, NULL AS gid,
           coalesce(a.xact_start, a.query_start) AS since
    FROM pg_stat_get_activity(NULL) a WHERE a.pid = ANY ({pids}::int[])
    UNION ALL
    SELECT NULL, p.owner::text, NULL, 'prepared', NULL, p.gid, p.prepared
    FROM pg_prepared_xacts p WHERE '-1/' || p.transaction::text = ANY ({prepared}::text[])
) x
ORDER BY x.since NULLS LAST, x.pid
LIMIT 1
