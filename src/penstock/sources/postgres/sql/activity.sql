-- Since when the others in this database are at work, and how far a time may therefore be read: `sure` at once, `full`
-- once every transaction that began before `moment` must have shown itself. Floored to what the cursor can hold.
-- One that is not idle and does not show its beginning is `unseen`: its locks must tell.
-- A client's message may hold several transactions, in all of which now() is when it came; between them, and before
-- the first has shown itself, only the message does.
WITH others AS MATERIALIZED (
    SELECT a.pid, a.usesysid, a.application_name, a.state, a.query,
           CASE WHEN a.state IS DISTINCT FROM 'idle'
                THEN coalesce(a.xact_start, CASE WHEN a.backend_type = 'client backend' THEN a.query_start END)
           END AS since,
           a.state IS DISTINCT FROM 'idle' AND a.xact_start IS NULL AS unseen,
           coalesce(a.state = 'disabled' OR a.query = '<insufficient privilege>', false) AS hidden
    FROM pg_stat_get_activity(NULL) a
    WHERE a.datid = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND a.pid <> pg_backend_pid()
    AND coalesce(a.backend_type, '') NOT IN ('autovacuum worker', 'walsender')
    -- Of those whose kind is hidden, the ones without a user are the server's own, such as autovacuum.
    AND (a.backend_type IS NOT NULL OR a.usesysid IS NOT NULL)
    AND right(a.application_name, length({reads})) <> {reads}
), seen AS (
    SELECT min(since) AS oldest, count(*) AS others, count(*) FILTER (WHERE hidden) AS hidden,
           coalesce(array_agg(pid) FILTER (WHERE unseen), '{{}}') AS unseen,
           -- What a standby has not replayed yet may be older than this moment.
           CASE WHEN pg_is_in_recovery() AND pg_last_wal_receive_lsn() IS DISTINCT FROM pg_last_wal_replay_lsn()
                THEN least({moment}, pg_last_xact_replay_timestamp()) ELSE {moment} END AS moment
    FROM others
), lagged AS (
    SELECT *, moment - CASE WHEN {proven} AND hidden = 0 THEN interval '0' ELSE {lag} END AS late FROM seen
), bounds AS (
    SELECT *, least(late, oldest) AS full_at, least(late, oldest, moment - {margin}) AS sure_at FROM lagged
), floored AS (
    SELECT *,
           full_at::{type} - CASE WHEN full_at::{type} > full_at THEN {unit} ELSE interval '0' END AS full_,
           sure_at::{type} - CASE WHEN sure_at::{type} > sure_at THEN {unit} ELSE interval '0' END AS sure_
    FROM bounds
)
SELECT json_build_object(
    'sure', sure_::text,
    'full', full_::text,
    'covered', {top} < sure_,
    'reached', {top} < full_,
    'by', CASE WHEN oldest <= late THEN 'transaction' WHEN late < moment THEN 'lag'
               WHEN {top} >= full_at + {unit} THEN 'run' ELSE 'precision' END,
    -- What is rounded may lie a little ahead by that alone.
    'ahead', {top} >= {now} + {unit},
    'set_back', coalesce({now} < {before}, false),
    'others', others,
    'hidden', hidden,
    'unseen', unseen,
    'prepares', current_setting('max_prepared_transactions') <> '0',
    'blocker', (
        SELECT json_build_object(
            'pid', o.pid, 'user', pg_get_userbyid(o.usesysid), 'application', o.application_name, 'state', o.state,
            'query', o.query, 'gid', NULL, 'seconds', extract(epoch FROM clock_timestamp() - o.since)
        )
        FROM others o WHERE o.since = floored.oldest ORDER BY o.pid LIMIT 1
    )
)
FROM floored
