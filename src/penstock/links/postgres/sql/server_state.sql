-- The server that answers: system, oid, database, whether it is a standby, timeline, position; then what else is asked.
SELECT
    {system},
    d.oid::text,
    d.datname::text,
    pg_catalog.pg_is_in_recovery(),
    {timeline},
    {lsn}{more}
FROM pg_catalog.pg_database AS d
WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()
