-- Transactions that have begun to write into the outbox and have not ended: the number of each, NULL if it has none yet.
WITH locks AS MATERIALIZED (
    SELECT locktype, relation, database, virtualtransaction, pid, mode, transactionid FROM pg_locks WHERE granted
)
SELECT x.transactionid::text::bigint
FROM locks l LEFT JOIN locks x ON x.virtualtransaction = l.virtualtransaction AND x.pid IS NOT DISTINCT FROM l.pid
AND x.locktype = 'transactionid' AND x.mode = 'ExclusiveLock'
WHERE l.locktype = 'relation' AND l.relation = {name}::regclass
AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
AND l.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
